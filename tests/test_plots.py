"""One palette: a method has one colour and one name in every figure, and figures say what they show."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from matplotlib import colors
from matplotlib.axes import Axes

from rayctsl import plots
from rayctsl.config import Config, FinetuneConfig
from rayctsl.learning.finetune import CurvePoint, FinetuneResult, FinetuneRun
from rayctsl.methods import METHODS
from rayctsl.plots import NAMES, OTHER_COLOURS, STYLES, label, legend_columns, plt, style
from rayctsl.sweeps.plots import plot_betas

ROOT = Path(__file__).parents[1]


def test_every_method_has_a_look_of_its_own() -> None:
    assert set(STYLES) == set(METHODS)
    looks = [style(method) for method in METHODS]
    assert len(set(looks)) == len(looks)
    assert len({colour for colour, _ in looks}) == len(looks)
    assert not {colour for colour, _ in looks} & set(OTHER_COLOURS)
    assert {label(method) for method in METHODS} >= set(NAMES.values())


def test_colours_are_chosen_in_one_place() -> None:
    """The drawings of embedded datasets aside, which are no figures."""
    for path in (ROOT / "rayctsl").rglob("*.py"):
        if path.name != "plots.py" or path.parent.name != "rayctsl":
            assert not re.findall(r'"#[0-9a-f]{6}"|tab10|tab20|"C\d"', path.read_text()), path


def test_a_sweeps_figure_has_the_methods_colours_and_names() -> None:
    row = {"status": "finished", "inner_steps": 10, "trial": "a", "validation_accuracy": 20.0}
    methods = ("fomaml", "reptile", "shifting")
    rows = [{**row, "method.name": name, "method.beta": beta} for name in methods for beta in (0.1, 1.0)]
    figure = plot_betas(rows)
    lines = {line.get_label(): line for line in figure.axes[0].containers}
    assert set(lines) == {"FOMAML", "Reptile", "shifting"}
    for method in methods:
        drawn = lines[label(method)].lines[0].get_color()
        assert np.allclose(colors.to_rgb(drawn), colors.to_rgb(style(method)[0]))
    plt.close(figure)


def test_no_row_of_a_legend_is_nearly_empty() -> None:
    assert [legend_columns(count) for count in (0, 1, 6, 7, 8, 12, 13)] == [1, 1, 6, 4, 4, 6, 5]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Axes]]:
    """The axes of every figure that would have been written."""
    found = list[Axes]()
    monkeypatch.setattr(plots, "_finish", lambda figure, axes, target: found.append(axes))
    yield found
    plt.close("all")


def result(name: str, *steps: int) -> FinetuneResult:
    """Two seeds, both measured at these steps."""
    runs = [FinetuneRun(seed, 0.5, [CurvePoint(step, 1.0, 0.5) for step in steps]) for seed in range(2)]
    return FinetuneResult("digits", name, 10, 9, [50.0, 50.0], 50.0, 0.0, runs, FinetuneConfig())


def test_curves_of_one_point_are_seen_and_random_weights_are_grey(drawn: list[Axes]) -> None:
    plots.plot_curves({name: result(name, 10) for name in ("zoo/glyphs", "none", "mine")}, "curves.png")
    lines = {line.get_label(): line for line in drawn[0].lines}
    assert [line.get_marker() for line in lines.values()] == ["o"] * 3
    assert lines["none"].get_color() == style("scratch")[0]
    assert len({line.get_color() for line in lines.values()}) == 3


def test_curves_stand_over_the_steps_at_which_they_were_measured(drawn: list[Axes]) -> None:
    plots.plot_curves({"mine": result("mine", 10, 20, 50)}, "curves.png")
    plots.plot_finetune(result("mine", 10, 20, 50), "finetune.png")
    assert [list(line.get_xdata()) for axes in drawn for line in axes.lines] == [[10, 20, 50]] * 4


def test_a_finetuning_is_drawn_by_the_mean_of_its_seeds_and_its_interval(drawn: list[Axes]) -> None:
    two = result("mine", 10, 20)
    for run, accuracy in zip(two.runs, (0.4, 0.6), strict=True):
        run.curve = [CurvePoint(point.step, 1.0, accuracy) for point in run.curve]
    plots.plot_finetune(two, "finetune.png")
    plots.plot_curves({"mine": two}, "curves.png")
    lines = {line.get_label(): line for axes in drawn for line in axes.lines}
    for name in ("mean of 2 seeds", "mine"):
        assert list(lines[name].get_ydata()) == pytest.approx([50, 50])
    (band,) = drawn[1].collections
    heights = band.get_paths()[0].vertices[:, 1]
    half = 12.7062 * 10  # Student's t for two values, their standard error
    assert (heights.min(), heights.max()) == pytest.approx((50 - half, 50 + half), rel=1e-5)


def test_a_runs_thick_line_is_the_mean_of_its_tasks_over_the_steps_of_all(drawn: list[Axes]) -> None:
    rows = [{"inner_steps_total": 2 * step, "loss": 2.0 * step} for step in (1, 2, 3)]
    plots.plot_losses(rows, {"a": [1.0, 2.0, 3.0], "b": [3.0, 6.0, 9.0]}, Config(), "loss.png")
    lines = {line.get_label(): list(zip(line.get_xdata(), line.get_ydata(), strict=True)) for line in drawn[0].lines}
    assert lines == {
        "a": [(2, 1), (4, 2), (6, 3)],
        "b": [(2, 3), (4, 6), (6, 9)],
        "task average": [(2, 2), (4, 4), (6, 6)],
    }


def test_bars_stand_side_by_side_over_their_own_dataset(drawn: list[Axes]) -> None:
    """Of more initializations than datasets too."""
    cells = {"digits": (50.0, 1.0), "glyphs": (60.0, 1.0)}
    plots.plot_comparison(dict.fromkeys("abc", cells), "bars.png")
    bars = sorted((bar.get_x(), bar.get_x() + bar.get_width(), bar.get_height()) for bar in drawn[0].patches)
    assert all(right <= left for (_, right, _), (left, _, _) in pairwise(bars))
    assert [height for _, _, height in bars] == [50.0] * 3 + [60.0] * 3
    assert max(right for _, right, _ in bars[:3]) < 0.5 < min(left for left, _, _ in bars[3:])
