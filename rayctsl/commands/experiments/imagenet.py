"""`python -m rayctsl.experiments imagenet`: what meta-training adds to ImageNet's weights on small targets."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from rayctsl.commands.experiments.image import add_suite_arguments, run_suite

if TYPE_CHECKING:
    from rayctsl.experiments.image.records import NumberedRow, Stages
    from rayctsl.experiments.image.suite import Suite
    from rayctsl.experiments.output import Output

HELP = "improving on ImageNet's weights: Table 1 and Figure 9"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "ResNet-18 from ImageNet's weights, meta-trained on ImageNet's eight WordNet splits with MTL, Reptile and "
        "shifting, fine-tuned on nine targets of 1,000 images: Table 1, and the accuracy gained over fine-tuning "
        "ImageNet's weights against the number of images. Stages, cells and resuming as in `image`."
    )
    add_suite_arguments(parser, "imagenet")
    parser.add_argument(
        "--weights", metavar="FILE", help="ImageNet weights of the model, a local file (default: torchvision's)"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    from rayctsl.config import apply_overrides
    from rayctsl.experiments.image.suite import load_suite

    def report(suite: Suite, stages: Stages, rows: list[NumberedRow], out: Output) -> str:
        from rayctsl.experiments.imagenet.report import write_report

        return write_report(suite, stages, rows, out)

    suite = load_suite(options.suite, options.seeds)
    if "scratch" not in suite.methods:
        raise ValueError("an imagenet suite needs the method 'scratch': the weights that the others improve on")
    if options.weights is not None:
        path = Path(options.weights).expanduser().absolute()
        if not path.is_file():
            raise ValueError(f"there is no weights file {path}")
        base = apply_overrides(suite.base, {"model.weights": str(path)})
        suite = suite.model_copy(update={"base": base})
    run_suite(options, "imagenet", suite, report)
