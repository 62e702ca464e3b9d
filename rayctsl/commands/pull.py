"""`rayctsl pull`: an initialization or a fine-tuned model from a model hub, verified."""

from __future__ import annotations

import argparse

from rayctsl.command import OneLineParser, program, run_command


def parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog=program("rayctsl.pull"),
        description="Download an initialization or a fine-tuned model and verify it. HF_ENDPOINT names another hub.",
    )
    parser.add_argument("repository", metavar="OWNER/NAME[@REVISION]")
    parser.add_argument(
        "--out",
        metavar="DIR",
        help="a new folder for the files, or that of an earlier pull; default: the repository's name",
    )
    return parser


def main(argv: list[str] | None = None) -> int:
    return run_command(parser(), argv, pull)


def pull(arguments: argparse.Namespace) -> None:
    from rayctsl import hub
    from rayctsl.jobs.model_card import CARD
    from rayctsl.jobs.saved_model import read_model
    from rayctsl.registry import open_initialization
    from rayctsl.storage import Storage, check_free

    repository, _ = hub.parse(arguments.repository)
    place = arguments.out or repository.partition("/")[2]
    if not Storage(place).exists(hub.NOTES):  # an earlier pull is brought up to date
        check_free(Storage(place))
    target = hub.download(arguments.repository, place)
    if (target / CARD).is_file():
        read_model(Storage(target))
    else:
        open_initialization(target).phi_bytes()
    print(target)
