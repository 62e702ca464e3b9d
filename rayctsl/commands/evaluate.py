"""`rayctsl evaluate`: a fine-tuned model's accuracy on a dataset, class by class."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from rayctsl.command import OneLineParser, check_files, program, run_command
from rayctsl.commands.predict import MODEL_HELP


def parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog=program("rayctsl.evaluate"),
        description="Accuracy of a fine-tuned model on a dataset with the same classes: in all, with its 95 % "
        "interval, and class by class.",
    )
    parser.add_argument("model", metavar="MODEL", help=MODEL_HELP)
    parser.add_argument(
        "--dataset", required=True, metavar="NAME|PATH", help="a dataset, or your pictures: ./FOLDER or an .npz"
    )
    parser.add_argument("--split", choices=("test", "train"), default="test")
    parser.add_argument("--data-root", metavar="DIR", help="where prepared datasets are, a path or URI")
    parser.add_argument("--out", metavar="FILE.json", help="write the accuracy and the confusion matrix here")
    return parser


def main(argv: list[str] | None = None) -> int:
    return run_command(parser(), argv, evaluate)


def evaluate(arguments: argparse.Namespace) -> None:
    check_files(arguments.out)
    from rayctsl.data.names import check_dataset
    from rayctsl.jobs.model_card import check_model

    check_dataset(arguments.dataset, arguments.data_root)
    check_model(arguments.model)
    import numpy as np

    from rayctsl.data.pictures import find_dataset
    from rayctsl.jobs.saved_model import open_model
    from rayctsl.learning.evaluation import accuracy_interval, confusion_matrix

    model = open_model(arguments.model).finetuned
    dataset = find_dataset(arguments.dataset, arguments.data_root)
    split = dataset.test if arguments.split == "test" else dataset.train
    names, facts = model.facts.class_names, model.facts
    if split.info.class_names != tuple(names):
        raise ValueError(f"{arguments.dataset} has other classes than the model, which was made for {facts.dataset}")
    if split.info.shape != tuple(facts.shape):
        raise ValueError(f"{arguments.dataset} has images of {split.info.shape}, the model takes {tuple(facts.shape)}")
    counts = confusion_matrix(model.module, split, model.normalize, len(names))
    correct, total = int(np.trace(counts)), int(counts.sum())
    low, high = accuracy_interval(correct, total)
    for name, row, hits in zip(names, counts, np.diag(counts), strict=True):
        share = f"{100 * hits / row.sum():6.2f} %" if row.sum() else "no images"
        print(f"{name:24} {share:>9} of {row.sum()}")
    print(f"accuracy: {100 * correct / total:.2f} % ({100 * low:.2f} to {100 * high:.2f}) of {total} images")
    if arguments.out:
        result = {"accuracy": correct / total, "interval": [low, high], "total": total}
        Path(arguments.out).write_text(json.dumps({**result, "classes": names, "confusion": counts.tolist()}, indent=1))
