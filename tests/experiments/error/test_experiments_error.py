"""The approximation error: zero where it must be, exact on a quadratic, growing where the paper says so."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor, nn

from rayctsl.commands.experiments import main
from rayctsl.config import ModelConfig
from rayctsl.experiments.error.measure import approximation_errors, build_learner, meta_update
from rayctsl.experiments.error.records import ErrorSweep
from rayctsl.experiments.error.report import fit_bound, slope
from rayctsl.learning.task_learner import InnerLearner

COMMON = {"dataset": "made", "data_root": None, "model": "resnet8", "width": 2, "batch_size": 8, "device": "cpu"}


class Noise:
    """Classify noise with a tiny residual network in training mode."""

    name = "made"

    def __init__(self, activation: str):
        self.activation = activation

    def build_module(self) -> nn.Module:
        from rayctsl.models import build_model

        return build_model(ModelConfig(name="resnet8", width=2, activation=self.activation), 3, seed=0)

    def head_name(self, module: nn.Module) -> str | None:
        return "head"

    def loss(self, module: nn.Module, index: int, *, held_out: bool = False) -> Tensor:
        generator = torch.Generator().manual_seed(index)
        images = torch.randn(8, 3, 8, 8, generator=generator)
        return nn.functional.cross_entropy(module(images), torch.arange(8) % 3)


class Bowl:
    """loss = curvature / 2 |theta|^2: the error can be written down."""

    name = "made"

    def build_module(self) -> nn.Module:
        module = nn.Linear(3, 1, bias=False).double()
        nn.init.ones_(module.weight)
        return module

    def head_name(self, module: nn.Module) -> str | None:
        return None

    def loss(self, module: nn.Module, index: int, *, held_out: bool = False) -> Tensor:
        assert isinstance(module.weight, Tensor)
        return module.weight.square().sum()  # curvature 2


def learner_of(task: Any, alpha: float = 0.05) -> InnerLearner:
    return build_learner({**COMMON, "activation": "relu", "alpha": alpha, "draw": 0}, task)


def test_error_on_a_bowl_is_what_the_formula_says() -> None:
    alpha, beta, seed = 0.05, 0.3, 4
    learner = learner_of(Bowl(), alpha)
    shrink = 1 - 2 * alpha  # one step multiplies theta by this
    deltas = [meta_update(learner.theta, beta, seed, k) for k in range(1, 6)]
    errors = approximation_errors(learner, beta, [2, 6], seed=seed)
    for k, error in errors.items():
        # D_i goes through k steps when the trajectory starts at the moved phi, through k - i when it is shifted.
        missed = sum(((shrink**k - shrink ** (k - i)) * deltas[i - 1] for i in range(1, k)), torch.zeros(3).double())
        assert error == pytest.approx(missed.norm().item(), rel=1e-10)


@pytest.mark.parametrize("activation", ["relu", "softplus"])
def test_no_error_without_meta_updates(activation: str) -> None:
    assert set(approximation_errors(learner_of(Noise(activation)), 0.0, [2, 5]).values()) == {0.0}


def test_no_error_after_the_first_step() -> None:
    assert approximation_errors(learner_of(Noise("relu")), 0.5, [1])[1] == 0.0


def test_error_grows_with_beta_alpha_and_k_and_is_smooth_with_softplus() -> None:
    task = Noise("softplus")
    by_beta = [approximation_errors(learner_of(task), beta, [6])[6] for beta in (0.01, 0.1)]
    by_alpha = [approximation_errors(learner_of(task, alpha), 0.1, [6])[6] for alpha in (0.01, 0.1)]
    by_k = approximation_errors(learner_of(task), 0.1, [2, 6, 12])
    assert by_beta[1] == pytest.approx(10 * by_beta[0], rel=0.2)  # first order in beta where everything is smooth
    assert by_alpha[1] > 5 * by_alpha[0]
    assert by_k[2] < by_k[6] < by_k[12]
    assert approximation_errors(learner_of(Noise("relu")), 0.1, [6])[6] > by_k[6]


def test_one_direction_adds_up() -> None:
    learner = learner_of(Bowl())
    random = approximation_errors(learner, 0.1, [30])[30]
    assert approximation_errors(learner, 0.1, [30], one_direction=True)[30] > 2 * random


def test_the_learner_is_left_as_it_was() -> None:
    learner = learner_of(Noise("relu"))
    before, head = learner.theta.clone(), learner.flat.head.clone()
    first = approximation_errors(learner, 0.1, [3])
    assert torch.equal(learner.theta, before)
    assert torch.equal(learner.flat.head, head)
    assert approximation_errors(learner, 0.1, [3]) == first


def test_meta_updates_have_length_beta_and_depend_on_seed_and_number() -> None:
    like = torch.zeros(500)
    first = meta_update(like, 0.25, 1, 1)
    assert first.norm().item() == pytest.approx(0.25, rel=1e-5)
    assert first.dtype == like.dtype
    assert torch.equal(first, meta_update(like, 0.25, 1, 1))
    for other in (meta_update(like, 0.25, 1, 2), meta_update(like, 0.25, 2, 1)):
        assert abs(torch.cosine_similarity(first, other, dim=0)) < 0.2


def _rows(power: float, draws: int = 3) -> list[list[dict[str, Any]]]:
    return [
        [{"k": k, "alpha": 0.01, "beta": 0.1, "draw": d, "error": (1 + d) * k**power} for d in range(draws)]
        for k in (2, 8, 32)
    ]


def test_fits_recover_what_was_put_in() -> None:
    exponent, half = slope(_rows(1.5), "k")
    assert exponent == pytest.approx(1.5)
    assert half == pytest.approx(0, abs=1e-9)
    exact = [
        [{**row, "error": 7 * 1e-3 * k**2 + 3 * 1e-2 * k} for row in rows] for rows in _rows(1) for k in [rows[0]["k"]]
    ]
    fitted = fit_bound(exact)
    assert fitted["a"] == pytest.approx(7)
    assert fitted["b"] == pytest.approx(3)
    assert fitted["largest_log10_misfit"] == pytest.approx(0, abs=1e-9)


def test_divergence_is_said_in_one_sentence() -> None:
    with pytest.raises(ValueError, match="diverged"):
        approximation_errors(learner_of(Bowl(), alpha=1e200), 0.1, [9])


@pytest.mark.parametrize("change", [{"lengths": (1, 5)}, {"alphas": (0.0,)}, {"betas": (math.nan,)}, {"draws": 0}])
def test_bad_sweeps_are_refused(change: dict[str, Any]) -> None:
    good = {"alphas": (0.1,), "betas": (0.1,), "lengths": (2,), "alpha": 0.1, "beta": 0.1, "length": 2}
    with pytest.raises(ValueError, match=r"lengths|positive|--draws"):
        ErrorSweep(**{**good, "activations": ("relu",), "draws": 1, **change})


def command(out: Path, *more: str) -> list[str]:
    small = ["--model", "resnet8", "--width", "2", "--batch-size", "4", "--draws", "2", "--lengths", "2", "4"]
    sweep = ["--length", "2", "--alphas", "0.01", "0.1", "--betas", "0.01", "--dataset", "dominoes"]
    return ["error", "--out", str(out), *small, *sweep, *more]


def test_command_keeps_finished_cells(tmp_path: Path, data_root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command(tmp_path, "--address", "none")) == 0
    assert "relu: k: exponent" in capsys.readouterr().out
    assert (tmp_path / "error.png").stat().st_size > 10_000
    summary = json.loads((tmp_path / "error.json").read_text())
    assert {"relu: k", "softplus: k", "relu: alpha", "softplus, one direction: k"} <= set(summary["exponents"])
    table = pq.read_table(tmp_path / "error.parquet")
    assert table.num_rows == 2 * 2 * (2 + 2 + 1)  # draws, activations, both kinds of direction and the other alpha
    assert np.all(np.array(table["error"]) > 0)

    cells = sorted((tmp_path / "cells").iterdir())
    written = {cell: cell.stat().st_mtime_ns for cell in cells}
    lost = cells[0]
    record = json.loads(lost.read_text())
    lost.unlink()
    assert main(command(tmp_path, "--address", "none")) == 0
    assert json.loads(lost.read_text())["result"] == record["result"]
    assert all(cell.stat().st_mtime_ns == written[cell] for cell in cells[1:])
    assert main(command(tmp_path, "--address", "none", "--only", "relu-draw9")) == 2


def test_printed_command_computes_a_cell_again(
    tmp_path: Path, data_root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "softplus-alpha0.1-beta0.01-draw1"
    assert main(command(tmp_path, "--address", "none", "--only", name)) == 0
    assert [cell.stem for cell in (tmp_path / "cells").iterdir()] == [name]
    file = tmp_path / "cells" / f"{name}.json"
    record = json.loads(file.read_text())
    file.unlink()
    words = record["command"].split()
    assert words[:3] == ["python", "-m", "rayctsl.experiments"]
    assert main(words[3:]) == 0
    assert json.loads(file.read_text())["result"] == record["result"]


@pytest.mark.ray
def test_cells_on_ray_give_the_same_numbers(tmp_path: Path, two_cpus: str, data_root: Path) -> None:
    few = ["--draws", "1", "--activations", "relu"]
    assert main(command(tmp_path / "ray", *few)) == 0
    assert main(command(tmp_path / "here", *few, "--address", "none")) == 0
    for cell in (tmp_path / "here" / "cells").iterdir():
        other = json.loads((tmp_path / "ray" / "cells" / cell.name).read_text())
        assert other["result"] == pytest.approx(json.loads(cell.read_text())["result"], rel=1e-4)


@pytest.mark.parametrize("flags", [["--dataset", "tiny_imagnet_1"], ["--model", "resnet7"], ["--lengths", "1"]])
def test_bad_input_is_refused_in_one_line(
    flags: list[str], tmp_path: Path, data_root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(tmp_path, *flags)) == 2
    assert capsys.readouterr().err.count("\n") == 1
