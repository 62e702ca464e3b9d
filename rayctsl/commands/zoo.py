"""`rayctsl zoo`: the initializations that come with the package; `rayctsl zoo build` makes them again."""

from __future__ import annotations

import argparse
from pathlib import Path

from rayctsl.command import OneLineParser, program, run_command
from rayctsl.config import Config, load_config


def parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog=program("rayctsl.zoo"), description="List the initializations of the package, or make them again."
    )
    parser.add_argument("action", nargs="?", choices=("list", "build"), default="list")
    parser.add_argument("names", nargs="*", metavar="NAME", help="which (all)")
    parser.add_argument("--out", metavar="DIR", help="with build: put them here (the package's own folder)")
    parser.add_argument("--runs", metavar="DIR", default="runs", help="with build: its run folders (runs)")
    return parser


def main(argv: list[str] | None = None) -> int:
    return run_command(parser(), argv, lambda arguments: {"list": show, "build": build}[arguments.action](arguments))


def show(arguments: argparse.Namespace) -> None:
    from rayctsl.registry import open_initialization
    from rayctsl.zoo import PREFIX, ZOO

    for name in chosen(arguments):
        card = open_initialization(f"{PREFIX}{name}").card
        print(f"{PREFIX}{name:10} {card.model.name:9} {card.num_parameters:>7,} parameters  {ZOO[name]}")


def build(arguments: argparse.Namespace) -> None:
    """Train each in this process with one thread, so that the same processor makes the same bytes."""
    import torch

    from rayctsl.learning.run import run_local
    from rayctsl.learning.run_folder import RunFolder
    from rayctsl.registry import rewrite
    from rayctsl.storage import Storage
    from rayctsl.zoo import zoo_folder

    torch.set_num_threads(1)
    for name in chosen(arguments):
        run = RunFolder.open(f"{arguments.runs}/zoo-{name}", config_of(name), resume="if_exists")
        made = run_local(run.config, run)
        metrics = {**made.card.metrics, "command": f"rayctsl train --config {config_name(name)}"}
        card = made.card.changed(metrics=metrics, licence="apache-2.0")
        target = Path(arguments.out) / name if arguments.out else zoo_folder(name)
        print(rewrite(made, Storage(target), card).path, flush=True)


def chosen(arguments: argparse.Namespace) -> list[str]:
    """The names asked for, without their prefix; ValueError for one that the zoo does not have."""
    from rayctsl.zoo import ZOO, zoo_folder

    return [zoo_folder(name).name for name in arguments.names or ZOO]


def config_name(name: str) -> str:
    return f"configs/zoo/{name}.yaml"


def config_of(name: str) -> Config:
    return load_config(config_name(name))
