"""What is said of a chunk of steps: rows of metrics, the progress line, and at the end the card's loss curve."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rayctsl.learning.engine import Chunk
from rayctsl.learning.metrics import Metrics
from rayctsl.learning.problem import Problem

CURVE_POINTS = 200


def record(metrics: Metrics, chunk: Chunk, first: int, problem: Problem) -> None:
    config = problem.config
    for offset, (losses, norm) in enumerate(zip(chunk.losses, chunk.delta_norms, strict=True)):
        step = first + offset + 1
        if step % config.log_every and step != config.total_steps:
            continue
        row: dict[str, Any] = {
            "step": step,
            "trajectory": (step - 1) // config.inner_steps + 1,
            "k": (step - 1) % config.inner_steps + 1,
            "inner_steps_total": int(chunk.inner_steps[offset]),
            "loss": float(np.nanmean(losses)) if not np.isnan(losses).all() else float("nan"),
            "delta_norm": float(norm),
            "disagreement": float(chunk.disagreements[offset]),
            "steps_per_second": len(chunk.losses) / max(chunk.seconds, 1e-9),
            **{name: float(value) for name, value in chunk.facts.items()},
        }
        metrics.add(row, {name: float(loss) for name, loss in zip(problem.task_names, losses, strict=True)})


def note(chunk: Chunk) -> str:
    last = chunk.losses[-1]
    return f"loss {np.nanmean(last):.3f}" if not np.isnan(last).all() else "no task left"


def details(chunk: Chunk, kept: int = 0) -> str:
    """How the time is spent and what would not be lost. Example: "learners busy 97 %, snapshot at step 1,200"

    Args:
        kept: the step of the newest snapshot that was written whole.
    """
    facts, words = chunk.facts, []
    if "utilisation" in facts:
        words.append(f"learners busy {facts['utilisation']:.0%}".replace("%", " %"))
    if facts.get("bytes_per_step"):
        words.append(f"{facts['bytes_per_step'] / 1e6:.2g} MB a step")
    if kept:
        words.append(f"snapshot at step {kept:,}")
    return ", ".join(words)


def loss_summary(metrics: Metrics) -> dict[str, Any]:
    """The loss curve in at most CURVE_POINTS points and its end: what the card shows."""
    rows = [row for row in metrics.rows if row["loss"] == row["loss"]]
    if not rows:
        return {}
    stride = math.ceil(len(rows) / CURVE_POINTS)
    curve = [
        [rows[i]["inner_steps_total"], round(float(np.mean([r["loss"] for r in rows[i : i + stride]])), 5)]
        for i in range(0, len(rows), stride)
    ]
    return {"loss_curve": curve, "final_loss": curve[-1][1]}
