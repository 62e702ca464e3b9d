"""Several seeds of a fine-tuning, each with a file from which it goes on."""

from __future__ import annotations

import itertools
import math
import os
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file
from torch import nn

from rayctsl.config import FinetuneConfig, ModelConfig
from rayctsl.data.library import Dataset
from rayctsl.learning import seeds
from rayctsl.learning.finetune import CurvePoint, Diverged
from rayctsl.learning.seeds import SeedWork, run_seed, run_seeds
from rayctsl.learning.start import Start
from rayctsl.models.own import UserModel

RANDOM = Start("none", ModelConfig(name="resnet8", width=4))
RECIPE = FinetuneConfig(steps=3, seeds=1, batch_size=4, evaluate_every=1)


def test_a_seed_that_is_taken_up_again_tells_where_it_stands(shifted: Dataset, tmp_path: Path) -> None:
    work = SeedWork(RANDOM, shifted, RECIPE, str(tmp_path))
    for told in ([1, 2, 3], [3]):
        steps: list[int] = []
        run_seeds(work, lambda seed, point, steps=steps: steps.append(point.step))
        assert steps == told


def test_a_seed_is_saved_every_few_seconds_on_its_way(
    shifted: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill, which nothing can be done about when it comes, takes no more than that."""
    hours = itertools.count(step=3600.0)
    monkeypatch.setattr(seeds.time, "monotonic", lambda: next(hours))
    kept: list[int] = []

    def look(seed: int, point: CurvePoint) -> None:
        if point.step > 1:  # the steps before this one are in the file
            kept.append(int(load_file(tmp_path / "seed-0.safetensors")["step"]))

    run_seed(SeedWork(RANDOM, shifted, RECIPE, str(tmp_path)), 0, look)
    assert kept == [1, 2]


def test_a_seed_that_is_stopped_keeps_its_last_step(shifted: Dataset, tmp_path: Path) -> None:
    done: list[int] = []
    work = SeedWork(RANDOM, shifted, RECIPE, str(tmp_path))
    run_seed(work, 0, lambda seed, point: done.append(point.step), stopped=lambda: len(done) == 2)
    assert (done, work.tuner(0).step) == ([1, 2], 2)


@pytest.mark.parametrize("evaluate_every", [1, 3])  # it is noticed on the way, and at the end
def test_a_seed_that_diverged_says_so_every_time(shifted: Dataset, tmp_path: Path, evaluate_every: int) -> None:
    """Its file has the point that is no number, and a call that finds it there must not take it for a result."""
    recipe = RECIPE.model_copy(update={"alpha": 1e25, "evaluate_every": evaluate_every})
    work, said, told = SeedWork(RANDOM, shifted, recipe, str(tmp_path)), [], list[CurvePoint]()
    for _ in range(3):
        with pytest.raises(Diverged) as refusal:
            run_seed(work, 0, lambda seed, point: told.append(point))
        said.append(str(refusal.value))
    assert said == 3 * said[:1]
    assert all(math.isfinite(point.loss) for point in told)


def test_an_own_model_is_trained_here_however_many_processes_are_asked_for(shifted: Dataset, tmp_path: Path) -> None:
    """It may be of a notebook or a function, which another process cannot import."""

    class Network(nn.Sequential):
        def __init__(self, num_classes: int):
            built.append(os.getpid())
            super().__init__()
            self.add_module("flat", nn.Flatten())
            self.add_module("head", nn.Linear(3 * 12 * 12, num_classes))

    built: list[int] = []
    work = SeedWork(
        Start("none", ModelConfig(), own=UserModel(Network)),
        shifted,
        RECIPE.model_copy(update={"seeds": 2}),
        str(tmp_path),
    )
    run_seeds(work, workers=2)
    assert set(built) == {os.getpid()}
    assert sorted(os.listdir(tmp_path)) == ["seed-0.safetensors", "seed-1.safetensors"]


@pytest.mark.slow
def test_processes_that_train_seeds_do_not_run_the_callers_script_again(
    shifted: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "script.py"
    script.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(script), raising=False)
    work = SeedWork(RANDOM, shifted, RECIPE.model_copy(update={"seeds": 2}), str(tmp_path), threads=1)
    run_seeds(work, workers=2)
    assert sorted(os.listdir(tmp_path)) == ["script.py", "seed-0.safetensors", "seed-1.safetensors"]
    assert sys.modules["__main__"].__spec__ is None  # as it was found
