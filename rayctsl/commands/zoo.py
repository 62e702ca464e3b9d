"""`rayctsl zoo`: the initializations that come with the package; `rayctsl zoo build` makes them again."""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

from rayctsl.command import OneLineParser, program, run_command

CONFIGS = Path(__file__).parent.parent.parent / "configs" / "zoo"


def parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog=program("rayctsl.zoo"), description="List the initializations of the package, or make them again."
    )
    parser.add_argument("action", nargs="?", choices=("list", "build"), default="list")
    parser.add_argument("names", nargs="*", metavar="NAME", help="with build: which (all)")
    parser.add_argument("--out", metavar="DIR", help="with build: put them here (the package's own folder)")
    return parser


def main(argv: list[str] | None = None) -> int:
    return run_command(parser(), argv, lambda arguments: {"list": show, "build": build}[arguments.action](arguments))


def show(arguments: argparse.Namespace) -> None:
    from rayctsl.registry import open_initialization
    from rayctsl.zoo import PREFIX, ZOO

    for name, what in ZOO.items():
        card = open_initialization(f"{PREFIX}{name}").card
        print(f"{PREFIX}{name:10} {card.model.name:9} {card.num_parameters:>7,} parameters  {what}")


def build(arguments: argparse.Namespace) -> None:
    """Train each in this process with one thread, so that the same processor makes the same bytes."""
    import torch

    from rayctsl.config import load_config
    from rayctsl.learning.run import run_local
    from rayctsl.learning.run_folder import RunFolder
    from rayctsl.registry import rewrite
    from rayctsl.storage import Storage
    from rayctsl.zoo import ZOO, zoo_folder

    torch.set_num_threads(1)
    for name in arguments.names or ZOO:
        target = Path(arguments.out) / name if arguments.out else zoo_folder(name)
        config = load_config(CONFIGS / f"{name}.yaml")
        with tempfile.TemporaryDirectory() as folder:
            made = run_local(config, RunFolder.open(f"{folder}/run", config))
            shutil.rmtree(target, ignore_errors=True)
            command = f"rayctsl train --config configs/zoo/{name}.yaml"
            metrics = {**made.card.metrics, "command": command}
            print(rewrite(made, Storage(str(target)), made.card.changed(metrics=metrics)).path)
