"""`python -m rayctsl.train`: meta-train an initialization."""

from __future__ import annotations

import argparse
from datetime import datetime
from typing import TYPE_CHECKING

from rayctsl.command import OneLineParser, add_config_arguments, overrides_of, program, run_command

if TYPE_CHECKING:
    from rayctsl.config import Config


def parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog=program("rayctsl.train"),
        description="Meta-train an initialization on Ray. The last line printed is its path.",
    )
    add_config_arguments(parser)
    parser.add_argument(
        "--run-dir", metavar="DIR", help="a new folder (or URI) for the run; default runs/<method>-<time>"
    )
    parser.add_argument(
        "--resume", metavar="DIR", help="continue the run in DIR from its newest snapshot, on --workers W if need be"
    )
    parser.add_argument(
        "--resume-if-exists", action="store_true", help="continue the run in --run-dir if it was begun, else begin it"
    )
    return parser


def main(argv: list[str] | None = None) -> int:
    return run_command(parser(), argv, train)


def train(arguments: argparse.Namespace) -> None:
    from rayctsl.config import load_config
    from rayctsl.learning.run_folder import RunFolder

    overrides = overrides_of(arguments)
    if arguments.resume and (arguments.config or arguments.run_dir):
        raise ValueError("--resume continues a run with its own config and folder: leave out --config and --run-dir")
    if arguments.resume_if_exists and not arguments.run_dir:
        raise ValueError("--resume-if-exists needs --run-dir")
    if arguments.resume:
        folder = RunFolder.open(arguments.resume, resume="must", changes=overrides)
        check_tasks(folder.config)
    else:
        config = load_config(arguments.config, overrides)
        check_tasks(config)
        base = arguments.run_dir or f"runs/{config.method.name}-{datetime.now():%Y%m%d-%H%M%S}"
        folder = RunFolder.open(base, config, resume="if_exists" if arguments.resume_if_exists else "never")
    from rayctsl.cluster.engine import run_on_ray

    initialization = run_on_ray(folder.config, folder, address=arguments.address)
    print(f"initialization: {initialization.storage}")


def check_tasks(config: Config) -> None:
    """Refuse a run whose datasets or model cannot be had, before anything is written or started."""
    from rayctsl.data.library import open_dataset
    from rayctsl.models import build_model

    for name in config.data.tasks:
        open_dataset(name, config.data.root)
    build_model(config.model.model_copy(update={"weights": None}), 2, config.seed)
