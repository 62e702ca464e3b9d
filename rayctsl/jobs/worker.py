"""The worker that runs fine-tuning jobs, one after the other: `python -m rayctsl.jobs.worker`.

It takes each job's name from `job.json` in its own folder, where only the service writes, and shows in `alive.json`
that it lives. One worker serves many jobs, so that small ones do not each wait for torch to be imported.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time

from rayctsl.jobs.contracts import Assignment, Heartbeat
from rayctsl.jobs.files import ALIVE, ASSIGNMENT, BEAT_SECONDS, job_folder, read_document, worker_folder
from rayctsl.storage import Storage, is_full

CHECKPOINT_SECONDS, LIMIT_SECONDS = 30.0, 24 * 3600.0


def run_worker(
    storage: Storage,
    worker: str,
    *,
    idle_seconds: float,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    limit_seconds: float = LIMIT_SECONDS,
    poll_seconds: float = 0.05,
    full_seconds: float = 1.0,
    threads: int = 1,
    gpus: float = 0.0,
) -> None:
    """Take jobs from the worker's folder until none has come for a while."""
    own = storage.inside(worker_folder(worker))
    stop = threading.Event()
    threading.Thread(target=_beat, args=(own, stop), daemon=True).start()
    # Only now, so that the seconds that torch takes pass with a sign of life, and before the first job comes.
    import torch

    from rayctsl.device import choose_device
    from rayctsl.jobs.job import Pace, run_job

    torch.set_num_threads(threads)
    device = choose_device(granted=gpus > 0)
    pace = Pace(0.5 if storage.local else 2.0, checkpoint_seconds, limit_seconds)
    last, last_work, parent = None, time.monotonic(), os.getppid()
    try:
        # An orphan's cluster is gone: it ends the job it has, but waits for no other.
        while time.monotonic() - last_work < idle_seconds and os.getppid() == parent:
            assignment = read_document(own, ASSIGNMENT, Assignment)
            if assignment is None or assignment == last:
                time.sleep(poll_seconds)
                continue
            if assignment.job is None:  # sent away
                return
            try:
                run_job(storage.inside(job_folder(assignment.job)), assignment.attempt, pace, device)
            except OSError as error:
                if not is_full(error):
                    raise
                # The same attempt again once there is room; who stays silent for long is stopped by the service.
                print(f"job {assignment.job} waits for room on the disk", file=sys.stderr, flush=True)
                time.sleep(full_seconds)
                continue
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
            own.write(ALIVE, Heartbeat(count=count, pid=os.getpid()).to_bytes())
        except OSError as error:
            print(f"the storage does not take the sign of life: {error}", file=sys.stderr, flush=True)
        if stop.wait(BEAT_SECONDS):
            return


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m rayctsl.jobs.worker", description="Run fine-tuning jobs.")
    parser.add_argument("--storage", required=True, metavar="DIR|URI", help="where jobs/ and workers/ are")
    parser.add_argument("--worker", required=True, metavar="NAME", help="the worker's folder below workers/")
    parser.add_argument("--idle-seconds", type=float, default=600.0, help="leave after so long without work")
    parser.add_argument("--checkpoint-seconds", type=float, default=CHECKPOINT_SECONDS)
    parser.add_argument("--limit-seconds", type=float, default=LIMIT_SECONDS, help="the longest a job may take")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch")
    parser.add_argument("--gpus", type=float, default=0.0, help="what was reserved for this worker; 0: it uses none")
    options = parser.parse_args(arguments)
    try:
        storage = Storage(options.storage)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2

    run_worker(
        storage,
        options.worker,
        idle_seconds=options.idle_seconds,
        checkpoint_seconds=options.checkpoint_seconds,
        limit_seconds=options.limit_seconds,
        poll_seconds=0.05 if storage.local else 1.0,
        threads=max(1, options.threads),
        gpus=options.gpus,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
