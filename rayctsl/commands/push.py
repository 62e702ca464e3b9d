"""`rayctsl push`: an initialization or a fine-tuned model to a model hub."""

from __future__ import annotations

import argparse

from rayctsl.command import OneLineParser, program, run_command


def parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog=program("rayctsl.push"),
        description="Upload an initialization or a fine-tuned model with its card. HF_TOKEN gives the right to write, "
        "HF_ENDPOINT names another hub.",
    )
    parser.add_argument("what", metavar="PATH|ID", help="a model's folder, or an initialization by folder, id or zoo/…")
    parser.add_argument("repository", metavar="OWNER/NAME", help="made when it is missing")
    parser.add_argument("--private", action="store_true", help="a new repository is for its owner alone")
    parser.add_argument("--storage", metavar="DIR", help="where initializations are found by id")
    return parser


def main(argv: list[str] | None = None) -> int:
    return run_command(parser(), argv, push)


def push(arguments: argparse.Namespace) -> None:
    from pathlib import Path

    from rayctsl import hub
    from rayctsl.jobs.model_card import CARD

    folder = arguments.what
    if not (Path(folder) / CARD).is_file():
        from rayctsl.registry import open_initialization

        initialization = open_initialization(folder, arguments.storage)
        initialization.phi_bytes()  # verified before anybody else gets it
        if not initialization.storage.local:
            raise ValueError(f"{initialization.path} is not on this machine: rayctsl pull it first, then push the copy")
        folder = initialization.path
    print(hub.upload(folder, arguments.repository, private=arguments.private))
