# bash attempt.sh COMMAND...: the entry point of a RayJob. The operator builds a new cluster for every failed job, up to
# backoffLimit. Exit code 2 says that the input is bad, which no new cluster can mend: such a job is stopped, not failed.
"$@"
code=$?
if [ "$code" -eq 2 ]; then
    echo "bad input: the job is stopped and not tried again"
    job=$(python -c "import json, os; print(json.loads(os.environ['RAY_JOB_CONFIG_JSON_ENV_VAR'])['metadata']['job_submission_id'])")
    ray job stop "$job"
fi
exit "$code"
