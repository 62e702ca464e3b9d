"""`python -m rayctsl.train`: meta-train an initialization."""

from __future__ import annotations

import argparse
from datetime import datetime
from typing import TYPE_CHECKING

from rayctsl.command import OneLineParser, add_config_arguments, overrides_of, program, run_command

if TYPE_CHECKING:
    from rayctsl.config import Config
    from rayctsl.learning.run_folder import RunFolder


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
    parser.add_argument(
        "--print-config",
        action="store_true",
        help="print the resolved config (with --resume: the run's) and do nothing",
    )
    parser.add_argument("--dry-run", action="store_true", help="check everything, estimate time and memory, do nothing")
    parser.add_argument("--restart", action="store_true", help="with --resume: begin the run in DIR anew")
    return parser


def main(argv: list[str] | None = None) -> int:
    return run_command(parser(), argv, train, stopped="stopped before the first step; nothing was kept")


def train(arguments: argparse.Namespace) -> None:
    from rayctsl.config import dump_config, load_config

    check_flags(arguments)
    begun = open_begun(arguments) if arguments.resume else None
    config = begun.config if begun else load_config(arguments.config, overrides_of(arguments))
    if arguments.print_config:
        print(dump_config(config), end="")
        return
    if arguments.dry_run:
        from rayctsl.commands.dry_run import describe

        print(describe(config))
        return
    check_tasks(config)
    folder = begun or open_folder(arguments, config)
    if arguments.restart:
        folder.restart()
    with folder.deleted_unless_begun():
        from rayctsl.cluster.engine import run_on_ray

        initialization = run_on_ray(folder.config, folder, address=arguments.address)
    print(f"initialization: {initialization.storage}")


def check_flags(arguments: argparse.Namespace) -> None:
    """Refuse flags that contradict each other."""
    if arguments.resume and (arguments.config or arguments.run_dir):
        raise ValueError("--resume continues a run with its own config and folder: leave out --config and --run-dir")
    if arguments.resume_if_exists and not arguments.run_dir:
        raise ValueError("--resume-if-exists needs --run-dir")
    if arguments.restart and not arguments.resume:
        raise ValueError("--restart needs --resume DIR")


def open_begun(arguments: argparse.Namespace) -> RunFolder:
    """The folder of a run to be continued, with what a resume may change; nothing is written to it."""
    from rayctsl.learning.run_folder import RunFolder

    return RunFolder.open(arguments.resume, resume="must", changes=overrides_of(arguments))


def open_folder(arguments: argparse.Namespace, config: Config) -> RunFolder:
    from rayctsl.learning.run_folder import RunFolder
    from rayctsl.learning.surroundings import settled

    base = arguments.run_dir or f"runs/{config.method.name}-{datetime.now():%Y%m%d-%H%M%S}"
    return RunFolder.open(base, settled(config), resume="if_exists" if arguments.resume_if_exists else "never")


def check_tasks(config: Config) -> None:
    """Refuse a run whose datasets or model cannot be had, before anything is written or started.

    What is misspelt is found first, for torch takes seconds to import, and embedded datasets some to be made.
    """
    from rayctsl.config import check_model_name
    from rayctsl.data.names import check_name

    if config.model.own is None:
        check_model_name(config.model.name)
    for name in config.data.tasks:
        check_name(name, config.data.root)
    from rayctsl.data.library import make_missing, open_dataset
    from rayctsl.models import build_model

    build_model(config.model.model_copy(update={"weights": None}), 2, config.seed)
    make_missing(config.data.tasks, config.data.root)
    for name in config.data.tasks:
        open_dataset(name, config.data.root)
