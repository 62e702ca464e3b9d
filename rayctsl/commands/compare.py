"""`rayctsl compare`: several initializations on one dataset, with paired intervals and overlaid curves."""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path

from rayctsl.command import OneLineParser, check_files, positive, program, run_command
from rayctsl.config import FinetuneConfig, load_config
from rayctsl.jobs.flags import add_recipe_flags, given_recipe


def parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog=program("rayctsl.compare"),
        description="Fine-tune several starts on one dataset with the same recipe, seeds and batches, and rank them: "
        "mean accuracy with its 95 % interval, and how far each is behind the best and ahead of none, seed by seed "
        "(* beyond chance).",
    )
    parser.add_argument(
        "--dataset", required=True, metavar="NAME|PATH", help="a dataset, or your pictures: ./FOLDER or an .npz"
    )
    parser.add_argument(
        "--init", required=True, metavar="a,b,none", help="folders, ids, zoo/…, hf-hub:…, timm/…, imagenet, none"
    )
    parser.add_argument(
        "--jobs", type=positive, metavar="N", help="seeds trained side by side (as GPUs or cores allow)"
    )
    parser.add_argument(
        "--threads", type=positive, metavar="N", help="threads of each; equal numbers give equal results"
    )
    parser.add_argument("--config", metavar="F.yaml", help="take the model of none and the recipe of this config")
    parser.add_argument("--data-root", metavar="DIR", help="where prepared datasets are, a path or URI")
    parser.add_argument("--storage", metavar="DIR", help="where initializations are found by id")
    parser.add_argument("--out", metavar="FILE.json", help="write the ranking and all curves to this file")
    parser.add_argument("--plot", metavar="FILE.png", help="draw the curves")
    recipe = parser.add_argument_group("the recipe of all, else the paper's")
    add_recipe_flags(recipe, FinetuneConfig)
    return parser


def main(argv: list[str] | None = None) -> int:
    return run_command(parser(), argv, compare)


def compare(arguments: argparse.Namespace) -> None:
    flags = given_recipe(arguments, FinetuneConfig)
    config = load_config(arguments.config, {f"finetune.{name}": value for name, value in flags.items()})
    names = list(dict.fromkeys(name.strip() for name in arguments.init.split(",") if name.strip()))
    if len(names) < 2:
        raise ValueError("--init needs two or more starts to compare, separated by commas")
    check_files(arguments.out, arguments.plot)
    from rayctsl.data.names import check_dataset

    root, recipe = arguments.data_root or config.data.root, config.finetune
    check_dataset(arguments.dataset, root)
    from rayctsl.registry import check_start

    for name in names:
        check_start(name, arguments.storage)
    from rayctsl.commands.finetune import shown_on
    from rayctsl.data.library import make_missing
    from rayctsl.data.pictures import find_dataset
    from rayctsl.jobs import comparison
    from rayctsl.jobs.standings import format_standings, rank
    from rayctsl.jobs.training import check_train_size
    from rayctsl.learning.start import find_start
    from rayctsl.progress import Progress

    starts = {name: find_start(name, config.model, arguments.storage) for name in names}
    make_missing([arguments.dataset], root)
    dataset = find_dataset(arguments.dataset, root)
    check_train_size(dataset, recipe)
    with Progress(len(starts) * recipe.steps * recipe.seeds, f"compare on {dataset.name}") as progress:
        processes = {"workers": arguments.jobs, "threads": arguments.threads}
        results = comparison.compare(starts, dataset, recipe, watch=partial(shown_on, progress), **processes)
    standings = rank({name: result.accuracies for name, result in results.items()})
    if arguments.out:
        document = {
            "dataset": dataset.name,
            "standings": [standing.to_json() for standing in standings],
            "results": {name: result.to_json() for name, result in results.items()},
        }
        Path(arguments.out).write_text(json.dumps(document, indent=1, allow_nan=False))
    if arguments.plot:
        from rayctsl.plots import plot_curves

        plot_curves({standing.name: results[standing.name] for standing in standings}, arguments.plot)
    print(format_standings(standings))
