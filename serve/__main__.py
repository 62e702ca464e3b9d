"""The command `python -m serve`."""

from __future__ import annotations

import argparse
import errno
import fcntl
import gc
import logging
import os
import signal
import socket
import sys
from types import FrameType
from typing import TYPE_CHECKING

from rayctsl.command import OneLineParser, program, run_command

if TYPE_CHECKING:
    from serve.settings import Settings


KEPT = {
    "jobs": "delete a job so long after its end",
    "models": "delete a job's model so long after its end",
    "datasets": "delete an uploaded dataset so long after its last use",
}


def build_parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog=program("serve"),
        description="Initializations to download and fine-tuning over HTTP, with a page at /.",
        epilog="RAYCTSL_TOKEN holds the token that clients must send; python -m serve keys makes keys with scopes. "
        "Without either only this machine is served.",
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
    parser.add_argument(
        "--worker-start", type=float, default=120.0, metavar="SECONDS", help="a worker must show life within (120)"
    )
    parser.add_argument(
        "--connections-per-address", type=int, default=256, metavar="N", help="open at the same time (default: 256)"
    )
    parser.add_argument(
        "--request-seconds", type=float, default=10.0, metavar="SECONDS", help="for a request's head to come (10)"
    )
    parser.add_argument(
        "--uploads-per-key",
        type=int,
        default=20,
        metavar="GIB",
        help="that a key's own datasets may take (default: 20)",
    )
    for what, text in KEPT.items():
        parser.add_argument(f"--keep-{what}", type=float, metavar="DAYS", help=f"{text} (default: for ever)")
    parser.add_argument(
        "--webhooks",
        choices=("off", "public", "any"),
        default="public",
        help="whom jobs may tell of their end: nobody, addresses of the internet, any (default: public)",
    )
    parser.add_argument("--checkpoint-every", type=float, default=30.0, metavar="SECONDS", help="(default: 30)")
    return parser


def main(argv: list[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    if words[:1] == ["keys"]:
        from serve.keys_command import main as keys

        return keys(words[1:])
    return run_command(build_parser(), argv, _serve)


def _serve(options: argparse.Namespace) -> int:
    from rayctsl.registry import storage_root
    from serve.memory import return_freed_memory
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
        worker_start_seconds=options.worker_start,
        max_connections_per_address=options.connections_per_address,
        request_seconds=options.request_seconds,
        upload_share=options.uploads_per_key * 2**30,
        keep_jobs_days=options.keep_jobs,
        keep_models_days=options.keep_models,
        keep_datasets_days=options.keep_datasets,
        webhooks=options.webhooks,
        has_keys=has_keys(options),
        worker_idle_seconds=_idle_seconds(options),
        warm_workers=0 if options.address else 1,
    )
    return_freed_memory()
    check_storage(options.storage)
    check_port(settings.host, settings.port)
    settings.folder.mkdir(parents=True, exist_ok=True)
    offer_something(settings.storage)
    if settings.may_be_several:
        return run(settings)
    with (settings.folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ValueError(f"another service is running on {settings.storage}") from None
        return run(settings)


def offer_something(storage: str) -> None:
    """The zoo, where there is nothing else yet; a storage that cannot be written is served as it is."""
    from rayctsl.registry import stock

    try:
        if stocked := stock(storage):
            logging.info("nothing to serve yet: the zoo was put in, %s", ", ".join(each.id for each in stocked))
    except OSError as error:
        logging.warning("the zoo could not be put into %s: %s", storage, error)


def _idle_seconds(options: argparse.Namespace) -> float:
    if options.worker_idle is not None:
        return float(options.worker_idle)
    return 120.0 if options.address else 1e9


def has_keys(options: argparse.Namespace) -> bool:
    """Whether keys were ever made for this service; asked only where they decide whether it may start."""
    from serve.keys_command import open_keys
    from serve.settings import is_loopback

    return not is_loopback(options.host) and open_keys(options.storage, options.database).wanted


def check_storage(storage: str | None) -> None:
    """Refuse a misspelt folder, which would be served as a new and empty one."""
    if storage is not None and "://" not in storage and not os.path.isdir(os.path.expanduser(storage)):
        raise ValueError(f"there is no folder {storage}; correct --storage, or make it first: mkdir -p {storage}")


def check_port(host: str, port: int) -> None:
    """Find out before anything is started that somebody else listens there."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            why = "in use" if error.errno == errno.EADDRINUSE else error.strerror or error
            raise ValueError(f"cannot listen at {host} port {port}: {why}; choose another with --port") from None


def run(settings: Settings) -> int:
    """Serve until told to stop."""
    import uvicorn

    from serve.app import create_app
    from serve.protocol import FileProtocol, bounded

    app = create_app(settings)
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        http=bounded(FileProtocol, settings.request_seconds, settings.max_connections_per_address),
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=settings.max_connections,
        timeout_keep_alive=10,
        timeout_graceful_shutdown=3,
        h11_max_incomplete_event_size=64 * 1024,
    )
    # After a clean stop uvicorn raises the signal again, for whoever was there before it: nobody needs to die of it.
    signal.signal(signal.SIGTERM, lambda number, frame: None)

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            leave_alone_what_is_loaded()

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            app.state.service.stop_streams()  # first of all: the server waits for them
            super().handle_exit(sig, frame)

    server = Server(config)
    server.run()
    return 0 if server.started else 1


def leave_alone_what_is_loaded() -> None:
    """Keep modules and routes, which live as long as the process, out of every collection of garbage from now on.

    A full collection would look at all of them, with every thread standing still, and for that reason come seldom.
    """
    gc.collect()
    gc.freeze()
    gc.collect()


if __name__ == "__main__":
    sys.exit(main())
