"""The command `python -m rayctsl.experiments`: the paper's figures and tables, one subcommand each.

An experiment is a module with HELP and `add_arguments(parser)`, which sets the parser's default `run`, a function of
the parsed options. It imports what is heavy inside that function, so that --help is instant.
"""

from __future__ import annotations

import argparse
import sys
from typing import NoReturn

from rayctsl.command import run_command
from rayctsl.experiments import error_command, synthetic_command

EXPERIMENTS = {"synthetic": synthetic_command, "error": error_command}


class OneLineParser(argparse.ArgumentParser):
    """Says what is wrong in one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see --help)\n")


def parser() -> argparse.ArgumentParser:
    parser = OneLineParser(prog="python -m rayctsl.experiments", description="The paper's figures and tables.")
    commands = parser.add_subparsers(required=True, metavar="EXPERIMENT")
    for name, experiment in EXPERIMENTS.items():
        experiment.add_arguments(commands.add_parser(name, help=experiment.HELP, description=experiment.HELP))
    return parser


def run(options: argparse.Namespace) -> None:
    try:
        options.run(options)
    except KeyboardInterrupt:
        print("stopped; the same command goes on with what is missing", file=sys.stderr)
        raise


def main(argv: list[str] | None = None) -> int:
    return run_command(parser(), argv, run)


if __name__ == "__main__":
    raise SystemExit(main())
