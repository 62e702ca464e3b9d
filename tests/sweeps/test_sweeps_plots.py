"""A sweep's pictures: what is drawn of trials that finished, were stopped early or failed."""

from __future__ import annotations

from typing import Any

from rayctsl.plots import plt
from rayctsl.sweeps.plots import plot_betas, plot_coordinates


def row(beta: float, accuracy: float | None, status: str = "finished") -> dict[str, Any]:
    measured = {"trial": "a", "status": status, "validation_accuracy": accuracy}
    return {**measured, "method.name": "reptile", "method.beta": beta, "inner_steps": 10}


def test_a_betas_mean_is_of_the_trials_that_finished():
    rows = [row(1.0, 30.0), row(1.0, 50.0), row(1.0, 10.0, "stopped"), row(2.0, None, "failed")]
    axes = plot_betas(rows).axes[0]
    assert axes.containers[0].lines[0].get_xydata().tolist() == [[1.0, 40.0]]
    hollow = [line for line in axes.lines if line.get_markerfacecolor() == "none"]
    assert [line.get_xydata().tolist() for line in hollow] == [[[1.0, 10.0]]]
    assert [list(line.get_xdata()) for line in axes.lines if line.get_marker() == "x"] == [[2.0]]
    plt.close("all")


def test_a_panel_shows_the_trials_of_its_own_inner_steps():
    axes = plot_betas([row(1.0, 30.0), {**row(1.0, 50.0), "inner_steps": 20}]).axes
    shown = {each.get_title(): each.containers[0].lines[0].get_xydata().tolist() for each in axes}
    assert shown == {"K = 10": [[1.0, 30.0]], "K = 20": [[1.0, 50.0]]}
    plt.close("all")


def test_a_trial_that_was_stopped_is_dashed():
    axes = plot_coordinates([row(1.0, 20.0), row(2.0, 10.0, "stopped")]).axes[0]
    drawn = [(line.get_linestyle(), list(line.get_ydata())) for line in axes.lines[:2]]  # beta, then the accuracy
    assert drawn == [("--", [1.0, 0.0]), ("-", [0.0, 1.0])]
    plt.close("all")


def test_a_trial_without_an_option_is_drawn_below_those_that_have_it():
    rows = [{**row(1.0, accuracy), "method.pull": pull} for pull, accuracy in ((0.2, 10.0), (None, 20.0), (0.8, 30.0))]
    axes = plot_coordinates(rows).axes[0]
    drawn = [list(line.get_ydata()) for line in axes.lines[:3]]  # pull, then the accuracy
    assert drawn == [[0.0, 0.0], [-0.1, 0.5], [1.0, 1.0]]
    assert "-" in [text.get_text() for text in axes.texts]
    plt.close("all")
