"""`rayctsl compare`: several initializations on one dataset, with paired intervals and overlaid curves."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from rayctsl.command import OneLineParser, program, run_command


def parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog=program("rayctsl.compare"),
        description="Fine-tune several starts on one dataset with the same recipe, seeds and batches, and rank them: "
        "mean accuracy with its 95 % interval, and how far each is behind the best, seed by seed (* beyond chance).",
    )
    parser.add_argument("--dataset", required=True, metavar="NAME", help="the target dataset")
    parser.add_argument(
        "--init", required=True, metavar="a,b,none", help="folders, ids, zoo/…, hf-hub:…, timm/…, imagenet, none"
    )
    parser.add_argument("--steps", type=int, metavar="K", help="training steps (1000)")
    parser.add_argument("--train-size", type=int, metavar="N", help="use N training images (all)")
    parser.add_argument("--seeds", type=int, metavar="N", help="independent runs of each (5)")
    parser.add_argument("--alpha", type=float, metavar="A", help="starting learning rate (0.1)")
    parser.add_argument("--batch-size", type=int, metavar="B", help="images per step (128)")
    parser.add_argument("--config", metavar="F.yaml", help="take the model and the finetune section of this config")
    parser.add_argument("--data-root", metavar="DIR", help="where prepared datasets are, a path or URI")
    parser.add_argument("--storage", metavar="DIR", help="where initializations are found by id")
    parser.add_argument("--jobs", type=int, metavar="N", help="seeds trained side by side (as GPUs or cores allow)")
    parser.add_argument("--out", metavar="FILE.json", help="write the ranking and all curves to this file")
    parser.add_argument("--plot", metavar="FILE.png", help="draw the curves")
    return parser


def main(argv: list[str] | None = None) -> int:
    return run_command(parser(), argv, compare)


def compare(arguments: argparse.Namespace) -> None:
    from rayctsl.config import load_config

    flags = {name: getattr(arguments, name) for name in ("steps", "train_size", "seeds", "alpha", "batch_size")}
    config = load_config(arguments.config, {f"finetune.{name}": v for name, v in flags.items() if v is not None})
    names = list(dict.fromkeys(name.strip() for name in arguments.init.split(",") if name.strip()))
    if len(names) < 2:
        raise ValueError("--init needs two or more starts to compare, separated by commas")
    for path in (arguments.out, arguments.plot):
        if path and not Path(path).resolve().parent.is_dir():
            raise ValueError(f"the folder of {path} does not exist")

    from rayctsl.data.library import open_dataset
    from rayctsl.jobs import comparison
    from rayctsl.jobs.standings import format_standings, rank
    from rayctsl.learning.finetune import CurvePoint
    from rayctsl.learning.start import find_start
    from rayctsl.progress import Progress

    starts = [find_start(name, config.model, arguments.storage) for name in names]
    dataset = open_dataset(arguments.dataset, arguments.data_root or config.data.root)
    progress = Progress(len(starts) * config.finetune.steps * config.finetune.seeds, f"compare on {arguments.dataset}")
    reached: dict[tuple[str, int], int] = {}

    def show(name: str, seed: int, point: CurvePoint) -> None:
        before = reached.get((name, seed), 0)
        progress.advance(point.step - before, f"{name}, seed {seed}: {100 * point.accuracy:.1f} %")
        reached[name, seed] = point.step

    results = comparison.compare(starts, dataset, config.finetune, workers=arguments.jobs, on_point=show)
    progress.close()
    standings = rank({name: result.accuracies for name, result in results.items()})
    if arguments.out:
        document = {
            "dataset": dataset.name,
            "standings": [asdict(standing) for standing in standings],
            "results": {name: result.to_json() for name, result in results.items()},
        }
        Path(arguments.out).write_text(json.dumps(document, indent=1))
    if arguments.plot:
        from rayctsl.plots import plot_curves

        plot_curves({standing.name: results[standing.name] for standing in standings}, arguments.plot)
    print(format_standings(standings))
