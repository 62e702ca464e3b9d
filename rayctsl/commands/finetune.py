"""`rayctsl finetune`: meta-test an initialization on a target dataset, and keep the model if asked to."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from rayctsl.command import OneLineParser, check_files, positive, program, run_command
from rayctsl.config import FinetuneConfig, load_config
from rayctsl.jobs.flags import add_recipe_flags, given_recipe

if TYPE_CHECKING:
    from rayctsl.data.library import Dataset
    from rayctsl.learning.finetune import CurvePoint, FinetuneResult
    from rayctsl.learning.start import Start
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
    parser.add_argument(
        "--dataset", required=True, metavar="NAME|PATH", help="a dataset, or your pictures: ./FOLDER or an .npz"
    )
    parser.add_argument(
        "--save", metavar="DIR", help="a new folder for the best seed's model; the same command goes on there"
    )
    parser.add_argument("--each", action="store_true", help="with --save: keep every seed's model, DIR/seed-0, …")
    parser.add_argument(
        "--preset", choices=("quick", "good", "best"), help="choose learning rate and steps on held-out training images"
    )
    parser.add_argument("--time-limit", type=float, metavar="S", help="seconds for all of it, about")
    parser.add_argument(
        "--jobs", type=positive, metavar="N", help="seeds trained side by side (as GPUs or cores allow)"
    )
    parser.add_argument(
        "--threads", type=positive, metavar="N", help="threads of each; equal numbers give equal results"
    )
    parser.add_argument(
        "--config",
        metavar="F.yaml",
        help="take the model and the recipe (`finetune`) of this config, not the initialization's",
    )
    parser.add_argument("--data-root", metavar="DIR", help="where prepared datasets are, a path or URI")
    parser.add_argument("--storage", metavar="DIR", help="where initializations are found by id")
    parser.add_argument("--out", metavar="FILE.json", help="write the result, with the accuracy curves, to this file")
    parser.add_argument("--plot", metavar="FILE.png", help="draw the accuracy curves")
    recipe = parser.add_argument_group("the recipe, else the initialization's own")
    add_recipe_flags(recipe, FinetuneConfig)
    return parser


def main(argv: list[str] | None = None) -> int:
    return run_command(parser(), argv, finetune, stopped="stopped; with --save, the same command goes on")


def finetune(arguments: argparse.Namespace) -> None:
    flags = given_recipe(arguments, FinetuneConfig)
    config = load_config(arguments.config, {f"finetune.{name}": value for name, value in flags.items()})
    if arguments.each and not arguments.save:
        raise ValueError("--each needs --save DIR")
    check_files(arguments.out, arguments.plot)
    from rayctsl.data.names import check_dataset

    root = arguments.data_root or config.data.root
    check_dataset(arguments.dataset, root)
    from rayctsl.registry import check_start

    check_start(arguments.init, arguments.storage)
    from rayctsl.data.library import make_missing
    from rayctsl.data.pictures import find_dataset
    from rayctsl.jobs.training import check_train_size
    from rayctsl.learning.start import find_start
    from rayctsl.learning.suggestion import check_choice

    check_choice(arguments.preset, arguments.time_limit)
    start = find_start(arguments.init, config.model, arguments.storage)
    recipe = config.finetune
    if start.recipe is not None and arguments.config is None:
        recipe = FinetuneConfig.model_validate({**start.recipe.model_dump(), **flags})
    make_missing([arguments.dataset], root)
    dataset = find_dataset(arguments.dataset, root)
    check_train_size(dataset, recipe)
    report(train(start, dataset, recipe, arguments), arguments)


def train(start: Start, dataset: Dataset, recipe: FinetuneConfig, arguments: argparse.Namespace) -> FinetuneResult:
    """Choose what is left to choose, then fine-tune, and show how far it is."""
    import torch

    from rayctsl.device import choose_device, describe_device
    from rayctsl.jobs.training import Asked, finetune_seeds, suggested_recipe
    from rayctsl.progress import Progress

    torch.set_num_threads(arguments.threads or torch.get_num_threads())
    with Progress(None, f"finetune {dataset.name}") as progress:
        if (device := choose_device()) != "cpu":  # of processors it is said how many seeds share them
            progress.say(f"fine-tuning on {describe_device(device)}")
        asked = Asked(recipe, arguments.preset, arguments.time_limit)
        recipe = suggested_recipe(
            start, dataset, asked, save=arguments.save, on_trial=lambda *trial: progress.say(trial_line(*trial))
        )
        progress.jump(0, recipe.steps * recipe.seeds)
        return finetune_seeds(
            start,
            dataset,
            recipe,
            asked=asked,
            save=arguments.save,
            each=arguments.each,
            workers=arguments.jobs,
            threads=arguments.threads,
            on_point=shown_on(progress),
        )


def trial_line(rate: float, steps: int, accuracy: float) -> str:
    return f"tried alpha {rate:g} for {steps} steps: {100 * accuracy:.1f} % of held-out training images"


def shown_on(progress: Progress, start: str = "") -> Callable[[int, CurvePoint], None]:
    """Counts the steps of several seeds together.

    Args:
        start: of a comparison, whose it is.
    """
    reached: dict[int, int] = {}

    def show(seed: int, point: CurvePoint) -> None:
        note = f"{start}, seed {seed}" if start else f"seed {seed}"
        progress.advance(point.step - reached.get(seed, 0), f"{note}: {100 * point.accuracy:.1f} %")
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
