"""A chunk of steps as actors hand it over: each one's part, and all of them as one `Chunk`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rayctsl.cluster.calls import Calls
from rayctsl.cluster.packing import Packing
from rayctsl.learning.engine import Chunk


@dataclass
class Part:
    """One actor's share of a chunk."""

    losses: np.ndarray  # [steps, own tasks]
    delta_norms: np.ndarray
    disagreements: np.ndarray
    inner_steps: np.ndarray
    counts: np.ndarray
    busy_seconds: float
    stall_seconds: float
    bytes_sent: int
    rss_bytes: int


@dataclass(frozen=True)
class Begun:
    """A chunk under way: its calls by reference, each with its actor, the meta-learner's last."""

    start: int
    stop: int
    calls: Calls
    at: float  # the host's clock


def join_parts(parts: Sequence[Part], packing: Packing, task_names: Sequence[str], seconds: float) -> Chunk:
    """The learners' parts as one chunk, with its losses in the order of `task_names`."""
    by_task = {
        name: part.losses[:, place]
        for part, hosted in zip(parts, packing.learners, strict=True)
        for place, name in enumerate(hosted)
    }
    busy, waited = sum(part.busy_seconds for part in parts), sum(part.stall_seconds for part in parts)
    return Chunk(
        losses=np.stack([by_task[name] for name in task_names], axis=1),
        delta_norms=parts[0].delta_norms,
        disagreements=parts[0].disagreements,
        inner_steps=np.sum([part.inner_steps for part in parts], axis=0),
        counts=np.sum([part.counts for part in parts], axis=0),
        seconds=seconds,
        facts={
            "learners": float(len(parts)),
            "utilisation": busy / (len(parts) * seconds),
            "stall_share": waited / (len(parts) * seconds),
            "bytes_per_step": sum(part.bytes_sent for part in parts) / len(parts[0].losses),
            "learner_rss_bytes": float(max(part.rss_bytes for part in parts)),
        },
    )
