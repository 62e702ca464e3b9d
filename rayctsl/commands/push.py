"""`rayctsl push`: an initialization or a fine-tuned model to a model hub."""

from __future__ import annotations

import argparse
import os
import re

from rayctsl.card import LICENCE_PATTERN
from rayctsl.command import OneLineParser, program, run_command


def parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog=program("rayctsl.push"),
        description="Upload an initialization or a fine-tuned model with its card. HF_TOKEN gives the right to write, "
        "HF_ENDPOINT names another hub.",
    )
    parser.add_argument("what", metavar="PATH|ID", help="a model's folder, or an initialization by folder, id or zoo/…")
    parser.add_argument("repository", metavar="OWNER/NAME", help="made when it is missing")
    parser.add_argument(
        "--licence",
        type=_licence,
        metavar="L",
        help="of the weights, as hubs name it (apache-2.0, cc-by-4.0, …); else the card's",
    )
    parser.add_argument("--private", action="store_true", help="a new repository is for its owner alone")
    parser.add_argument("--storage", metavar="DIR", help="where initializations are found by id")
    return parser


def _licence(text: str) -> str:
    if not re.fullmatch(LICENCE_PATTERN, text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a licence as hubs name them: apache-2.0, cc-by-4.0, other, …"
        )
    return text


def main(argv: list[str] | None = None) -> int:
    return run_command(parser(), argv, push)


def push(arguments: argparse.Namespace) -> None:
    import tempfile

    from rayctsl import hub
    from rayctsl.jobs.model_card import CARD
    from rayctsl.jobs.saved_model import read_model, write_model
    from rayctsl.registry import open_initialization, rewrite
    from rayctsl.storage import Storage

    changes = {"licence": arguments.licence} if arguments.licence else {}
    with tempfile.TemporaryDirectory(prefix="rayctsl-") as folder:  # verified copies, the card as it was asked for
        if os.path.isdir(arguments.what) and Storage(arguments.what).exists(CARD):
            card, data = read_model(Storage(arguments.what))
            write_model(Storage(folder), card.changed(**changes), data)
            name = card.id
        else:
            initialization = open_initialization(arguments.what, arguments.storage)
            rewrite(initialization, Storage(folder), initialization.card.changed(**changes))
            name = initialization.id
        message = f"Upload {name}"
        print(hub.upload(folder, arguments.repository, private=arguments.private, message=message))
