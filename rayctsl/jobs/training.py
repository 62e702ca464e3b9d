"""Fine-tuning on this machine, from a start to a saved model: seeds side by side, resumable, the best kept.

While it runs, the seeds' states are in `DIR/unfinished/`; the same call goes on from them, another one is refused.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from safetensors.torch import load

from rayctsl.config import FinetuneConfig
from rayctsl.contract import JsonObject
from rayctsl.data.library import Dataset
from rayctsl.jobs.model_card import CARD, SeedSummary
from rayctsl.jobs.saved_model import save_model
from rayctsl.learning.finetune import CurvePoint, FinetuneResult, FinetuneRun, summarise
from rayctsl.learning.seeds import OnPoint, SeedWork, run_seeds, seed_file
from rayctsl.learning.start import Start
from rayctsl.learning.suggestion import OnTrial, choose_recipe
from rayctsl.storage import Storage, check_free

UNFINISHED, RECIPE = "unfinished", "recipe.json"


@dataclass(frozen=True)
class Asked:
    """What a call asks for: a recipe, and how to choose its rate and steps if they are to be chosen."""

    config: FinetuneConfig
    preset: str | None = None
    time_limit: float | None = None

    def to_json(self) -> JsonObject:
        return {**asdict(self), "config": self.config.model_dump(mode="json")}


def finetune_seeds(
    start: Start,
    dataset: Dataset,
    config: FinetuneConfig,
    *,
    asked: Asked | None = None,
    save: str | None = None,
    each: bool = False,
    workers: int | None = 1,
    threads: int | None = None,
    on_point: OnPoint | None = None,
) -> FinetuneResult:
    """Fine-tune `config.seeds` times, summarise, and save the best seed's model, or each one's.

    Args:
        asked: what `config` was suggested for; without it, `config` is what was asked for.
        save: a new folder for the model; with `each` it holds one folder a seed.
        workers: processes, see `run_seeds`.
    """
    check_train_size(dataset, config)
    with _working_folder(save, start, dataset, config, asked or Asked(config)) as folder:
        work = SeedWork(start, dataset, config, folder, threads)
        run_seeds(work, on_point, workers)
        runs = [_read_run(folder, seed) for seed in range(config.seeds)]
        train_size = min(config.train_size or len(dataset.train), len(dataset.train))
        result = summarise(dataset, runs, config, start.name, train_size)
        if save is not None:
            best = max(runs, key=lambda run: run.accuracy)
            for run in runs if each else [best]:
                target = Storage(save).inside(f"seed-{run.seed}") if each else Storage(save)
                save_model(target, work.tuner(run.seed), start, run.seed, _summary(result))
    return result


def check_train_size(dataset: Dataset, config: FinetuneConfig) -> None:
    """Refuse to draw more training images than there are."""
    if config.train_size is not None and config.train_size > len(dataset.train):
        has = f"{dataset.name} has {len(dataset.train):,} training images"
        raise ValueError(f"train_size {config.train_size:,} is too large: {has}")


def suggested_recipe(
    start: Start,
    dataset: Dataset,
    asked: Asked,
    *,
    save: str | None = None,
    on_trial: OnTrial | None = None,
) -> FinetuneConfig:
    """The config, with what `choose_recipe` finds in place of its rate and steps if that is asked for.

    Args:
        save: an unfinished fine-tuning there keeps its recipe: measured again, it might be another.
    """
    if asked.preset is None and asked.time_limit is None:
        return asked.config
    if save is not None and (begun := _begun(Storage(save))):
        _check_same(begun, {"asked": asked.to_json()}, save)
        return FinetuneConfig.model_validate(begun["config"])
    return choose_recipe(start, dataset, asked.config, asked.preset, asked.time_limit, on_trial).config


def _summary(result: FinetuneResult) -> SeedSummary:
    several = len(result.runs) > 1
    interval = min(1.0, result.interval / 100) if several else None
    return SeedSummary(count=len(result.runs), mean=result.mean / 100, interval=interval)


def _read_run(folder: str, seed: int) -> FinetuneRun:
    curve = load(Storage(folder).read(seed_file(seed)))["curve"].tolist()
    points = [CurvePoint(int(step), loss, accuracy) for step, loss, accuracy in curve]
    return FinetuneRun(seed, points[-1].accuracy, points)


@contextmanager
def _working_folder(
    save: str | None, start: Start, dataset: Dataset, config: FinetuneConfig, asked: Asked
) -> Iterator[str]:
    """Where the seeds' states are kept; taken away at a good end, left for the next call after any other."""
    if save is None:
        with tempfile.TemporaryDirectory(prefix="rayctsl-") as folder:
            yield folder
        return
    storage = Storage(save)
    recipe = {
        "start": [start.name, start.sha256, start.model.model_dump(mode="json")],
        "dataset": [dataset.name, dataset.train.info.checksum, dataset.test.info.checksum],
        "config": config.model_dump(mode="json"),
        "asked": asked.to_json(),
    }
    if begun := _begun(storage):
        _check_same(begun, json.loads(json.dumps(recipe)), save)
    else:
        storage.write(f"{UNFINISHED}/{RECIPE}", json.dumps(recipe, indent=1).encode())
    yield str(storage.inside(UNFINISHED))
    storage.delete_folder(UNFINISHED)


def _check_same(begun: JsonObject, wanted: JsonObject, save: str) -> None:
    """Refuse to go on with other settings; an earlier version has not kept what was asked for."""
    if any(begun[key] != value for key, value in wanted.items() if key in begun):
        raise ValueError(f"{save} holds an unfinished fine-tuning with other settings; choose another folder")


def _begun(storage: Storage) -> JsonObject | None:
    """What an unfinished fine-tuning in a folder was begun with; ValueError where other files would suffer."""
    name = f"{UNFINISHED}/{RECIPE}"
    if storage.exists(name):
        return dict(json.loads(storage.read(name)))
    if any(storage.exists(card) for card in (CARD, f"seed-0/{CARD}")):
        raise ValueError(f"{storage} holds a model already; choose another folder")
    check_free(storage, UNFINISHED)
    return None
