"""The command `python -m rayctsl.experiments`: the paper's figures and tables, one subcommand each.

An experiment is a module with HELP and `add_arguments(parser)`, which sets the parser's default `run`, a function of
the parsed options. It imports what is heavy inside that function, so that --help is instant.
"""

from __future__ import annotations

import argparse

from rayctsl.command import OneLineParser, program, run_command
from rayctsl.commands.experiments import ablation, error, image, imagenet, lengths, synthetic

EXPERIMENTS = {
    "synthetic": synthetic,
    "error": error,
    "image": image,
    "lengths": lengths,
    "ablation": ablation,
    "imagenet": imagenet,
}


def parser() -> argparse.ArgumentParser:
    parser = OneLineParser(prog=program("rayctsl.experiments"), description="The paper's figures and tables.")
    commands = parser.add_subparsers(required=True, metavar="EXPERIMENT")
    for name, experiment in EXPERIMENTS.items():
        experiment.add_arguments(commands.add_parser(name, help=experiment.HELP, description=experiment.HELP))
    return parser


def main(argv: list[str] | None = None) -> int:
    stopped = "stopped; the same command goes on with what is missing"
    return run_command(parser(), argv, lambda options: options.run(options), stopped)
