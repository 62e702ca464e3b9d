"""`rayctsl predict`: class names and probabilities of images, one line an image."""

from __future__ import annotations

import argparse
import csv
import os
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TextIO

from rayctsl.command import OneLineParser, check_files, program, run_command

if TYPE_CHECKING:
    from rayctsl.jobs.classify import Prediction


MODEL_HELP = "a folder that finetune --save made, its model.safetensors, or hf-hub:OWNER/NAME"


def parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog=program("rayctsl.predict"),
        description="Classify images with a fine-tuned model: a line an image, its classes and their probabilities, "
        "likeliest first. Exit code 1 when some image could not be read.",
    )
    parser.add_argument("model", metavar="MODEL", help=MODEL_HELP)
    parser.add_argument("images", nargs="*", metavar="IMAGE", help="files and folders; - or none: a list on stdin")
    parser.add_argument("--out", metavar="FILE.csv", help="write every class's probability here, a column a class")
    parser.add_argument("--top", type=int, default=3, metavar="N", help="classes shown on a line (3)")
    return parser


def main(argv: list[str] | None = None) -> int:
    return run_command(parser(), argv, predict)


def predict(arguments: argparse.Namespace) -> int:
    if arguments.top < 1:
        raise ValueError("--top must be at least 1")
    check_files(arguments.out)
    _check_sources(arguments.images)
    from rayctsl.jobs.model_card import check_model

    check_model(arguments.model)
    from rayctsl.jobs.classify import classify, find_images
    from rayctsl.jobs.saved_model import open_model

    model = open_model(arguments.model).finetuned
    rows = classify(model, find_images(_sources(arguments.images)))
    if not arguments.out:
        return _show(rows, arguments.top, sys.stdout)
    with open(arguments.out, "w", newline="") as file:
        return _show(_written(rows, model.facts.class_names, file), arguments.top, sys.stdout)


def _check_sources(images: list[str]) -> None:
    if not images and sys.stdin.isatty():
        raise ValueError("name images or folders, or give a list of them on stdin")
    for image in images:
        if image != "-" and not os.path.exists(image):
            raise ValueError(f"there is no file {image}")


def _sources(images: list[str]) -> Iterator[str]:
    """The arguments, `-` standing for the lines of stdin."""
    for image in images or ["-"]:
        if image == "-":
            yield from (line for line in (raw.rstrip("\r\n") for raw in sys.stdin) if line)
        else:
            yield image


def _show(rows: Iterable[Prediction], top: int, out: TextIO) -> int:
    failed = 0
    for row in rows:
        if row.error:
            failed += 1
            print(f"predict: {row.path} cannot be read: {row.error}", file=sys.stderr)
        else:
            classes = "  ".join(f"{name} {100 * share:.1f} %" for name, share in row.classes[:top])
            print(f"{row.path}: {classes}", file=out)
    return 1 if failed else 0


def _written(rows: Iterable[Prediction], class_names: tuple[str, ...], file: TextIO) -> Iterator[Prediction]:
    """Write each row to a CSV file on its way."""
    table = csv.writer(file)
    table.writerow(["path", "class", "probability", *class_names, "error"])
    for row in rows:
        if row.error:
            table.writerow([row.path, "", "", *("" for _ in class_names), row.error])
        else:
            shares = dict(row.classes)
            best, share = row.classes[0]
            table.writerow([row.path, best, f"{share:.6f}", *(f"{shares[name]:.6f}" for name in class_names), ""])
        yield row
