"""The command `python -m serve.bench jobs | uploads | download | list`; the last line printed is one JSON object."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m serve.bench", description="Measure and prove the service.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    jobs = commands.add_parser("jobs", help="no job is lost while service, workers, Ray and disk fail")
    jobs.add_argument("--jobs", type=int, default=200)
    jobs.add_argument("--clients", type=int, default=20)
    jobs.add_argument("--faults", type=int, default=20)
    jobs.add_argument("--small-disk", metavar="DIR", help="an empty disk of some 100 MB, to be filled now and then")
    jobs.add_argument("--max-queued", type=int, default=30)
    jobs.add_argument("--address", help="a cluster's dashboard; default: the service starts Ray itself")
    jobs.add_argument("--seed", type=int, default=0)
    uploads = commands.add_parser("uploads", help="hostile archives: a sentence each, nothing left, probes answered")
    uploads.add_argument("--files", type=int, default=1_000_000, help="of the archives with too many")
    download = commands.add_parser("download", help="speed beside a bare sendfile")
    download.add_argument("--megabytes", type=int, default=256)
    download.add_argument("--rounds", type=int, default=25)
    listing = commands.add_parser("list", help="latency and memory of GET /initializations")
    listing.add_argument("--initializations", type=int, default=1000)
    listing.add_argument("--clients", type=int, default=50)
    listing.add_argument("--requests", type=int, default=20_000)
    listing.add_argument("--limit", type=int, default=20)
    return parser


def main(arguments: list[str] | None = None) -> int:
    options = build_parser().parse_args(arguments)
    if options.command == "jobs":
        from serve.bench.jobs import prove

        figures = prove(
            options.jobs,
            options.clients,
            options.faults,
            max_queued=options.max_queued,
            address=options.address,
            seed=options.seed,
            small_disk=Path(options.small_disk) if options.small_disk else None,
        )
    elif options.command == "uploads":
        from serve.bench.uploads import prove as prove_uploads

        figures = prove_uploads(options.files)
    elif options.command == "download":
        from serve.bench.download import measure as measure_download

        figures = measure_download(options.megabytes, options.rounds)
    else:
        from serve.bench.listing import measure as measure_list

        figures = measure_list(options.initializations, options.clients, options.requests, options.limit)
    print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
