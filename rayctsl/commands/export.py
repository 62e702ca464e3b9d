"""`rayctsl export`: a fine-tuned model as a program for torch or ONNX, checked against the model."""

from __future__ import annotations

import argparse
from pathlib import Path

from rayctsl.command import OneLineParser, check_files, program, run_command
from rayctsl.commands.predict import MODEL_HELP


def parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog=program("rayctsl.export"),
        description="Write a fine-tuned model as a program that needs no rayctsl. It takes float images [batch, "
        "channels, height, width] in 0..1 and returns logits; it is compared with the model on random images.",
    )
    parser.add_argument("model", metavar="MODEL", help=MODEL_HELP)
    parser.add_argument("--to", choices=("torch", "onnx"), required=True, help="torch.export's .pt2, or ONNX")
    parser.add_argument("--out", metavar="FILE", help="default: model.pt2 or model.onnx beside the weights")
    return parser


def main(argv: list[str] | None = None) -> int:
    return run_command(parser(), argv, export)


def export(arguments: argparse.Namespace) -> None:
    from rayctsl.jobs.model_card import check_model

    check_model(arguments.model)
    from rayctsl.jobs.export import SUFFIX, export_model
    from rayctsl.jobs.saved_model import open_model

    saved = open_model(arguments.model)
    beside = Path(saved.path) if Path(saved.path).is_dir() else Path(saved.path).parent
    target = Path(arguments.out) if arguments.out else beside / f"model{SUFFIX[arguments.to]}"
    check_files(str(target))
    difference = export_model(saved.finetuned, arguments.to, target)
    print(f"{target}: {target.stat().st_size:,} bytes, largest difference to the model {difference:.1e}")
