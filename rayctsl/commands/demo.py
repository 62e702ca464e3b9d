"""`make demo`: meta-train on the embedded datasets, then fine-tune on targets it has never seen, and compare."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rayctsl.command import (
    OneLineParser,
    add_address_argument,
    add_set_argument,
    program,
    run_command,
    set_overrides,
)

if TYPE_CHECKING:
    from rayctsl.config import Config

CONFIG = "configs/demo.yaml"


def parser() -> argparse.ArgumentParser:
    parser = OneLineParser(prog=program("rayctsl.demo"), description=__doc__)
    parser.add_argument("--config", default=CONFIG, metavar="F.yaml", help="the demo's config")
    parser.add_argument("--run-dir", metavar="DIR", help="a new folder for the run; default runs/demo-<time>")
    parser.add_argument("--seeds", type=int, metavar="N", help="fine-tunings per target and initialization")
    add_set_argument(parser)
    add_address_argument(parser)
    return parser


def main(argv: list[str] | None = None) -> int:
    return run_command(parser(), argv, demo)


def demo(arguments: argparse.Namespace) -> None:
    from rayctsl.config import load_config

    seeds = {"finetune.seeds": arguments.seeds} if arguments.seeds is not None else {}
    config = load_config(arguments.config, {**set_overrides(arguments.set), **seeds})
    from rayctsl.cluster.engine import run_on_ray
    from rayctsl.cluster.resources import connected
    from rayctsl.data.embedded import TARGETS
    from rayctsl.learning.run_folder import RunFolder
    from rayctsl.plots import plot_comparison

    run_dir = arguments.run_dir or f"runs/demo-{time.strftime('%Y%m%d-%H%M%S')}"
    folder = RunFolder.open(run_dir, config)
    with folder.deleted_unless_begun(), connected(arguments.address):
        prepare([*config.data.tasks, *TARGETS], config.data.root)
        print(f"meta-training {config.model.name} on {len(config.data.tasks)} datasets with {config.method.name}")
        initialization = run_on_ray(config, folder)
        print(f"fine-tuning on {len(TARGETS)} targets, {config.finetune.steps} steps, {config.finetune.seeds} seeds")
        accuracies = compare(config, str(initialization.storage), TARGETS)
    table = {name: summarise(by_target) for name, by_target in accuracies.items()}
    print(format_table(table))
    picture = Path(run_dir) / "plots" / "comparison.png"
    title = (
        f"test accuracy after {config.finetune.steps} steps, mean and 95 % interval of {config.finetune.seeds} seeds"
    )
    plot_comparison(table, str(picture), title)
    print(f"picture: {picture}")
    print(f"initialization: {initialization.storage}")


def prepare(names: list[str], root: str | None) -> None:
    """Make the embedded datasets, side by side."""
    from rayctsl.cluster.cells import run_cells
    from rayctsl.progress import Progress, say

    say("making the embedded datasets, where they are not there yet")
    progress = Progress(len(names), "datasets", unit="dataset")
    for name, _ in run_cells(_open, {name: (name, root) for name in names}):
        progress.advance(1, name)
    progress.close()


def _open(name: str, root: str | None) -> None:
    from rayctsl.data.library import open_dataset

    open_dataset(name, root)


def compare(config: Config, initialization: str, targets: tuple[str, ...]) -> dict[str, dict[str, list[float]]]:
    """Accuracies in percent, by start, target and seed."""
    from rayctsl.cluster.cells import run_cells
    from rayctsl.progress import Progress

    starts = {"from scratch": None, "from the initialization": initialization}
    seeds = range(config.finetune.seeds)
    cells = {
        f"{target} {name}, seed {seed}": (config, start, target, seed)
        for target in targets
        for name, start in starts.items()
        for seed in seeds
    }
    progress, done = Progress(len(cells), "fine-tuning", unit="run"), dict[str, float]()
    for cell, accuracy in run_cells(_accuracy, cells):
        done[cell] = accuracy
        progress.advance(1, f"{cell}: {accuracy:.1f} %")
    progress.close()
    return {name: {t: [done[f"{t} {name}, seed {seed}"] for seed in seeds] for t in targets} for name in starts}


def summarise(by_target: dict[str, list[float]]) -> dict[str, tuple[float, float]]:
    """Mean and 95 % interval over seeds, for every target and for the mean over targets."""
    import numpy as np

    from rayctsl.statistics import mean_and_interval

    over_targets = np.mean(list(by_target.values()), axis=0).tolist()
    return {name: mean_and_interval(values) for name, values in {**by_target, "mean": over_targets}.items()}


def _accuracy(config: Config, initialization: str | None, target: str, seed: int) -> float:
    """One fine-tuning with one seed, in percent."""
    import torch

    from rayctsl.data.library import open_dataset
    from rayctsl.learning.finetune import Finetuner
    from rayctsl.models import build_model
    from rayctsl.registry import open_initialization

    torch.set_num_threads(1)
    dataset = open_dataset(target, config.data.root)
    module = build_model(config.model, dataset.num_classes, seed)
    phi = open_initialization(initialization).phi() if initialization else None
    tuner = Finetuner(module, dataset, config.finetune, seed=seed, phi=phi)
    tuner.run()
    return 100 * tuner.curve[-1].accuracy


def format_table(table: dict[str, dict[str, tuple[float, float]]]) -> str:
    """The comparison as text, a line per target."""
    lines = [f"{'target':<14}" + "".join(f"{name:>28}" for name in table)]
    for target in next(iter(table.values())):
        cells = [f"{row[target][0]:.1f} ± {row[target][1]:.1f}" for row in table.values()]
        lines.append(f"{target:<14}" + "".join(f"{cell:>28}" for cell in cells))
    return "\n".join(lines)
