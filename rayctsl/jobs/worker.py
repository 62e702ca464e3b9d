"""The worker that runs fine-tuning jobs, one after the other: `python -m rayctsl.jobs.worker`.

It takes each job's name from `job.json` in its own folder, where only the service writes, and shows in `alive.json`
that it lives. One worker serves many jobs, so that small ones do not each wait for torch to be imported.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time

from rayctsl.jobs.job import Pace, one_line, read_json, run_job
from rayctsl.storage import Storage

ASSIGNMENT, ALIVE = "job.json", "alive.json"
BEAT_SECONDS = 2.0


def run_worker(storage: Storage, worker: str, *, idle_seconds: float, pace: Pace, poll_seconds: float = 0.1) -> None:
    """Take jobs from the worker's folder until none has come for a while."""
    own = storage.inside(f"workers/{worker}")
    stop = threading.Event()
    threading.Thread(target=_beat, args=(own, stop), daemon=True).start()
    _import_ahead()
    last, last_work, parent = None, time.monotonic(), os.getppid()
    try:
        # An orphan's cluster is gone: it ends the job it has, but waits for no other.
        while time.monotonic() - last_work < idle_seconds and os.getppid() == parent:
            assignment = read_json(own, ASSIGNMENT)
            if assignment is None or assignment == last:
                time.sleep(poll_seconds)
                continue
            if assignment["job"] is None:  # sent away
                return
            run_job(storage.inside(f"jobs/{assignment['job']}"), assignment["attempt"], pace)
            last, last_work = assignment, time.monotonic()
    finally:
        stop.set()


def _beat(own: Storage, stop: threading.Event) -> None:
    """Show life; and end with whoever started this worker, for a cluster that is gone cannot stop it any more."""
    count, parent = 0, os.getppid()
    while True:
        if os.getppid() != parent:
            os._exit(1)
        count += 1
        try:
            own.write(ALIVE, json.dumps({"count": count, "pid": os.getpid()}).encode())
        except OSError as error:
            print(f"the storage does not take the sign of life: {one_line(error)}", file=sys.stderr, flush=True)
        if stop.wait(BEAT_SECONDS):
            return


def _import_ahead() -> None:
    """The seconds that torch takes pass while the worker waits, not while a job does."""
    import rayctsl.jobs.model
    import rayctsl.learning.finetune  # noqa: F401


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m rayctsl.jobs.worker", description="Run fine-tuning jobs.")
    parser.add_argument("--storage", required=True, metavar="DIR|URI", help="where jobs/ and workers/ are")
    parser.add_argument("--worker", required=True, metavar="NAME", help="the worker's folder below workers/")
    parser.add_argument("--idle-seconds", type=float, default=600.0, help="leave after so long without work")
    parser.add_argument("--checkpoint-seconds", type=float, default=Pace.checkpoint)
    parser.add_argument("--limit-seconds", type=float, default=Pace.limit, help="the longest a job may take")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch")
    options = parser.parse_args(arguments)
    try:
        storage = Storage(options.storage)
    except ValueError as error:
        print(f"error: {one_line(error)}", file=sys.stderr)
        return 2

    import torch

    torch.set_num_threads(max(1, options.threads))
    remote = not storage.local
    pace = Pace(2.0 if remote else 0.5, options.checkpoint_seconds, options.limit_seconds)
    run_worker(
        storage, options.worker, idle_seconds=options.idle_seconds, pace=pace, poll_seconds=1.0 if remote else 0.1
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
