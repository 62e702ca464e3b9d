"""The command `python -m serve.bench COMMAND`; the last line printed is one JSON object."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m serve.bench", description="Measure and prove the service.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    jobs = commands.add_parser("jobs", help="no job is lost while service, workers, Ray and disk fail")
    jobs.add_argument("--jobs", type=int, default=200)
    jobs.add_argument("--clients", type=int, default=20)
    jobs.add_argument("--faults", type=int, default=20)
    jobs.add_argument("--small-disk", type=Path, help="an empty disk of some 100 MB, to be filled now and then")
    jobs.add_argument("--max-queued", type=int, default=30)
    jobs.add_argument("--address", help="a cluster's dashboard; default: the service starts Ray itself")
    jobs.add_argument("--seconds", type=float, default=1800.0, help="give up after these")
    fuzz = commands.add_parser("fuzz", help="nothing that guests send hurts the service")
    fuzz.add_argument("--minutes", type=float, default=60.0)
    for proof in (jobs, fuzz):
        proof.add_argument("--seed", type=int, default=0)
        proof.add_argument("--folder", type=Path, help="keep data, storage and log here")
    uploads = commands.add_parser("uploads", help="hostile archives: a sentence each, nothing left, probes answered")
    uploads.add_argument("--files", type=int, default=1_000_000, help="of the archives with too many")
    download = commands.add_parser("download", help="speed beside a bare sendfile")
    download.add_argument("--megabytes", type=int, default=256)
    download.add_argument("--rounds", type=int, default=25)
    listing = commands.add_parser("list", help="latency and memory of lists and cards")
    listing.add_argument("--initializations", type=int, default=1000)
    listing.add_argument("--jobs", type=int, default=1000)
    listing.add_argument("--clients", type=int, default=50)
    listing.add_argument("--requests", type=int, default=10_000, help="of each kind")
    start = commands.add_parser("start", help="from POST to a job's first step")
    start.add_argument("--rounds", type=int, default=20)
    start.add_argument("--dataset", default="digits")
    return parser


def main(arguments: list[str] | None = None) -> int:
    options = vars(build_parser().parse_args(arguments))
    from serve.bench import download, fuzz, jobs, listing, start, uploads  # with torch, which --help need not wait for

    measures: dict[str, Callable[..., object]] = {
        "jobs": jobs.prove,
        "fuzz": fuzz.prove,
        "uploads": uploads.prove,
        "download": download.measure,
        "list": listing.measure,
        "start": start.measure,
    }
    print(json.dumps(measures[options.pop("command")](**options)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
