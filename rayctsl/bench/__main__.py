"""`python -m rayctsl.bench NAME …`: measurements, each a ratio of things measured in one run."""

from __future__ import annotations

import argparse
import json
import sys

from rayctsl.command import run_command


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m rayctsl.bench", description=__doc__)
    commands = parser.add_subparsers(dest="bench", required=True, metavar="NAME")

    data = commands.add_parser("data", help="augmented batches from the store against a per-image pipeline")
    data.add_argument("--batch-size", type=int, default=128)
    data.add_argument("--size", type=int, default=32, help="image size in pixels")
    data.add_argument("--rounds", type=int, default=5)

    chaos = commands.add_parser("chaos", help="train while processes and nodes are killed; compare phi")
    chaos.add_argument("--kills", type=int, default=20, help="how many kills in all")
    chaos.add_argument("--nodes", type=int, default=3, help="nodes of the test cluster")
    chaos.add_argument("--steps", type=int, default=600, help="inner steps of the run")
    chaos.add_argument("--seed", type=int, default=0, help="chooses victims and moments")
    chaos.add_argument("--transport", choices=["collective", "objects"], default="collective")

    transport = commands.add_parser("transport", help="the meta-update with idle learners against plain gloo")
    transport.add_argument("--workers", default="2,4,8", metavar="W,W", help="numbers of learners")
    transport.add_argument("--models", default="resnet20,resnet18", help="vector sizes, by model")
    transport.add_argument("--tasks", type=int, default=8)
    transport.add_argument("--steps", type=int, default=200, help="steps per measurement (fewer for large vectors)")
    transport.add_argument("--rounds", type=int, default=5)

    for command in (data, chaos, transport):
        command.add_argument("--json", action="store_true", help="print nothing but one JSON object")
    return parser


def main(argv: list[str] | None = None) -> int:
    return run_command(parser(), argv, bench)


def bench(arguments: argparse.Namespace) -> None:
    from importlib import import_module

    result = import_module(f"rayctsl.bench.{arguments.bench}").measure(arguments)
    if not arguments.json:
        for name, value in result.items():
            print(f"{name}: {value}", file=sys.stderr)
    print(json.dumps(result))


if __name__ == "__main__":
    raise SystemExit(main())
