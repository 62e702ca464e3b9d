"""`python -m rayctsl.experiments ablation`: shifting against no shift, and against a shift in a random direction.

The same suites, stages and cells as `image`: in one folder, each takes over what the other has finished.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from rayctsl.commands.experiments.image import add_suite_arguments, run_suite

if TYPE_CHECKING:
    from rayctsl.experiments.image.records import NumberedRow, Stages
    from rayctsl.experiments.image.suite import Suite
    from rayctsl.experiments.output import Output

HELP = "shifting without its shift, and with a random one: Figure 8"
METHODS = ("shifting", "no_shifting", "random_shifting")
REFERENCES = ("reptile", "scratch")  # what the ablations fall back to, and where all begin


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "The image experiment with shifting, no_shifting and random_shifting, beside reptile and scratch. "
        "Give it the --out of an image experiment and it takes over the cells that are there."
    )
    add_suite_arguments(parser, "short")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    from rayctsl.experiments.image.suite import LengthsConfig, load_suite

    def report(suite: Suite, stages: Stages, rows: list[NumberedRow], out: Output) -> str:
        from rayctsl.experiments.image.report import write_report

        return write_report(suite, stages, rows, out, prefix="ablation")

    suite = load_suite(options.suite, options.seeds)
    if missing := [method for method in METHODS if method not in suite.methods]:
        raise ValueError(f"suite {options.suite!r} has no {missing[0]!r} to compare; add it to its methods")
    suite = suite.only((*METHODS, *REFERENCES)).model_copy(update={"lengths": LengthsConfig()})
    run_suite(options, "ablation", suite, report)
