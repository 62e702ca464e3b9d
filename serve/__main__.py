"""The command `python -m serve`."""

from __future__ import annotations

import argparse
import fcntl
import logging
import os
import signal
import sys

from rayctsl.command import OneLineParser, program, run_command


def build_parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog=program("serve"),
        description="Initializations to download and fine-tuning over HTTP, with a page at /.",
        epilog="RAYCTSL_TOKEN holds the token that clients must send; without it only this machine is served.",
    )
    parser.add_argument("--storage", metavar="DIR|URI", help="initializations and jobs (default: RAYCTSL_STORAGE)")
    parser.add_argument("--data-root", metavar="DIR|URI", help="prepared datasets (default: RAYCTSL_DATA)")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8000, help="port to listen at, 0 for a free one (default: 8000)")
    parser.add_argument("--address", metavar="URL", help="a Ray cluster's dashboard (http://HOST:8265), or auto")
    parser.add_argument("--database", metavar="URL", help="SQLAlchemy URL of the job store (default: a SQLite file)")
    parser.add_argument("--allowed-host", action="append", default=[], metavar="NAME", help="a Host header to accept")
    parser.add_argument("--max-running", type=int, default=2, metavar="N", help="jobs at the same time (default: 2)")
    parser.add_argument("--max-queued", type=int, default=100, metavar="N", help="jobs that may wait (default: 100)")
    parser.add_argument("--max-steps", type=int, default=100_000, metavar="N", help="steps a job may ask for")
    parser.add_argument("--job-cpus", type=float, default=1.0, metavar="N", help="CPUs of a job (default: 1)")
    parser.add_argument("--job-gpus", type=float, default=0.0, metavar="N", help="GPUs of a job (default: 0)")
    parser.add_argument("--job-limit", type=float, default=86400.0, metavar="SECONDS", help="longest time of a job")
    parser.add_argument(
        "--worker-idle", type=float, metavar="SECONDS", help="a worker without a job leaves a shared cluster (120)"
    )
    parser.add_argument("--checkpoint-every", type=float, default=30.0, metavar="SECONDS", help="(default: 30)")
    return parser


def main(argv: list[str] | None = None) -> int:
    return run_command(build_parser(), argv, _serve)


def _serve(options: argparse.Namespace) -> int:
    from rayctsl.registry import storage_root
    from serve.settings import Settings

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    settings = Settings(
        storage=storage_root(options.storage),
        data_root=options.data_root,
        database=options.database,
        host=options.host,
        port=options.port,
        address=options.address,
        token=os.environ.get("RAYCTSL_TOKEN") or None,
        allowed_hosts=tuple(options.allowed_host),
        max_running=options.max_running,
        max_queued=options.max_queued,
        max_steps=options.max_steps,
        job_cpus=options.job_cpus,
        job_gpus=options.job_gpus,
        job_limit_seconds=options.job_limit,
        checkpoint_seconds=options.checkpoint_every,
        # Our own Ray has nobody else to make room for: one worker stays warm, so that jobs start at once.
        worker_idle_seconds=options.worker_idle or (120.0 if options.address else 1e9),
        warm_workers=0 if options.address else 1,
    )
    settings.folder.mkdir(parents=True, exist_ok=True)
    if settings.may_be_several:
        return run(settings)
    with (settings.folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ValueError(f"another service is running on {settings.storage}") from None
        return run(settings)


def run(settings: object) -> int:
    """Serve until told to stop."""
    import uvicorn

    from serve.app import create_app
    from serve.protocol import FileProtocol
    from serve.settings import Settings

    assert isinstance(settings, Settings)
    config = uvicorn.Config(
        create_app(settings),
        host=settings.host,
        port=settings.port,
        http=FileProtocol,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=1000,
        timeout_keep_alive=10,
        timeout_graceful_shutdown=3,
        h11_max_incomplete_event_size=64 * 1024,
    )
    # After a clean stop uvicorn raises the signal again, for whoever was there before it: nobody needs to die of it.
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    server = uvicorn.Server(config)
    server.run()
    return 0 if server.started else 1


if __name__ == "__main__":
    sys.exit(main())
