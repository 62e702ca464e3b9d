"""`python -m rayctsl.finetune`: meta-test an initialization on a target dataset."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rayctsl.command import OneLineParser, program, run_command

RECIPE_FLAGS = ("steps", "train_size", "seeds", "alpha", "batch_size", "freeze_backbone", "head_steps")

if TYPE_CHECKING:
    from rayctsl.learning.finetune import CurvePoint, FinetuneResult
    from rayctsl.progress import Progress


def parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog=program("rayctsl.finetune"),
        description="Fine-tune an initialization on a dataset with the paper's meta-test recipe: accuracy per seed, "
        "mean and 95 % interval.",
    )
    parser.add_argument(
        "--init",
        required=True,
        metavar="PATH|ID|none",
        help="a folder, an id, zoo/…, hf-hub:…, timm/…, imagenet, or none: random weights",
    )
    parser.add_argument("--dataset", required=True, metavar="NAME", help="the target dataset")
    parser.add_argument("--steps", type=int, metavar="K", help="training steps (as the initialization says, or 1000)")
    parser.add_argument("--train-size", type=int, metavar="N", help="use N training images (all)")
    parser.add_argument("--seeds", type=int, metavar="N", help="independent runs (5)")
    parser.add_argument("--alpha", type=float, metavar="A", help="starting learning rate (0.1)")
    parser.add_argument("--batch-size", type=int, metavar="B", help="images per step (128)")
    parser.add_argument(
        "--config",
        metavar="F.yaml",
        help="take the model and the recipe (`finetune`) of this config, not the initialization's",
    )
    parser.add_argument("--data-root", metavar="DIR", help="where prepared datasets are, a path or URI")
    parser.add_argument("--storage", metavar="DIR", help="where initializations are found by id")
    parser.add_argument("--out", metavar="FILE.json", help="write the result, with the accuracy curves, to this file")
    parser.add_argument("--plot", metavar="FILE.png", help="draw the accuracy curves")
    parser.add_argument(
        "--save", metavar="DIR", help="keep the best seed's model here; run again to go on after an end"
    )
    parser.add_argument("--each", action="store_true", help="with --save: keep every seed's model, DIR/seed-0, …")
    parser.add_argument(
        "--preset", choices=("quick", "good", "best"), help="choose learning rate and steps on held-out training images"
    )
    parser.add_argument("--time-limit", type=float, metavar="S", help="seconds for all of it, about")
    parser.add_argument("--freeze-backbone", action="store_true", default=None, help="train the head only")
    parser.add_argument("--head-steps", type=int, metavar="N", help="train the head alone for the first N steps")
    parser.add_argument("--jobs", type=int, metavar="N", help="seeds trained side by side (as GPUs or cores allow)")
    parser.add_argument("--threads", type=int, metavar="N", help="threads of each; equal numbers give equal results")
    return parser


def main(argv: list[str] | None = None) -> int:
    return run_command(parser(), argv, finetune, stopped="stopped; with --save, the same command goes on")


def finetune(arguments: argparse.Namespace) -> None:
    from rayctsl.config import FinetuneConfig, load_config

    flags = flags_given({name: getattr(arguments, name) for name in RECIPE_FLAGS})
    config = load_config(arguments.config, {f"finetune.{name}": value for name, value in flags.items()})
    check_outputs(arguments)
    from rayctsl.data.library import check_name

    root = arguments.data_root or config.data.root
    check_name(arguments.dataset, root)
    from rayctsl import api
    from rayctsl.data.library import open_dataset
    from rayctsl.device import choose_device, describe_device
    from rayctsl.jobs.training import check_train_size
    from rayctsl.learning.start import find_start
    from rayctsl.progress import Progress

    start = find_start(arguments.init, config.model, arguments.storage)
    recipe = config.finetune
    if start.recipe is not None and arguments.config is None:
        recipe = FinetuneConfig.model_validate({**start.recipe.model_dump(), **flags})
    dataset = open_dataset(arguments.dataset, root)
    check_train_size(dataset, recipe)
    with Progress(recipe.steps * recipe.seeds, f"finetune {arguments.dataset}") as progress:
        progress.say(f"fine-tuning on {describe_device(choose_device())}")
        result = api.finetune(
            start,
            dataset,
            config=recipe,
            on_point=shown_on(progress),
            save=arguments.save,
            each=arguments.each,
            preset=arguments.preset,
            time_limit=arguments.time_limit,
            workers=arguments.jobs,
            threads=arguments.threads,
        )
    report(result, arguments)


def check_outputs(arguments: argparse.Namespace) -> None:
    """Find out before the work where its result cannot go."""
    if arguments.each and not arguments.save:
        raise ValueError("--each needs --save DIR")
    for path in (arguments.out, arguments.plot):
        if path and Path(path).is_dir():
            raise ValueError(f"{path} is a folder; name a file in it")
        if path and not Path(path).resolve().parent.is_dir():
            raise ValueError(f"the folder of {path} does not exist")


def shown_on(progress: Progress) -> Callable[[int, CurvePoint], None]:
    reached: dict[int, int] = {}

    def show(seed: int, point: CurvePoint) -> None:
        progress.advance(point.step - reached.get(seed, 0), f"seed {seed}: {100 * point.accuracy:.1f} %")
        reached[seed] = point.step

    return show


def report(result: FinetuneResult, arguments: argparse.Namespace) -> None:
    """Write and print what came out."""
    if arguments.out:
        Path(arguments.out).write_text(json.dumps(result.to_json(), indent=1, allow_nan=False))
    if arguments.plot:
        from rayctsl.plots import plot_finetune

        plot_finetune(result, arguments.plot)
    for seed, accuracy in enumerate(result.accuracies):
        print(f"seed {seed}: {accuracy:.2f} %")
    interval = f" ± {result.interval:.2f}" if len(result.accuracies) > 1 else ""
    used = result.recipe
    how = f"{used.steps} steps of {used.batch_size} images, alpha {used.alpha:g}"
    print(f"{result.dataset} from {result.initialization}, {how}: {result.mean:.2f}{interval} %")
    if arguments.save:
        print(f"model: {arguments.save}")


def flags_given(flags: Mapping[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in flags.items() if value is not None}
