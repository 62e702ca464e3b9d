"""Snapshots of before weights lay channels last are continued with the same bits."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
import torch

from rayctsl.config import build_config
from rayctsl.data.store import SplitInfo, write_split
from rayctsl.learning.engine import LocalEngine
from rayctsl.learning.meta_learner import OuterLearner
from rayctsl.learning.old_snapshots import _reorder
from rayctsl.learning.problem import Problem
from rayctsl.learning.run import train_with
from rayctsl.learning.run_folder import RunFolder
from rayctsl.learning.snapshot import RunState, write_snapshot
from rayctsl.methods import build_method


@pytest.mark.parametrize("method", [{"name": "leap"}, {"name": "accurate"}, {"name": "shifting", "shift_delay": 1}])
def test_an_old_snapshot_is_continued(tmp_path, method):
    for part in ("train", "test"):
        images = np.random.default_rng(0).integers(0, 256, (24, 8, 8, 3), dtype=np.uint8)
        info = SplitInfo("small", part, (8, 8, 3), tuple("ab"))
        write_split(tmp_path / "data" / "small" / f"{part}.arrow", images, np.arange(24) % 2, info)
    data = {"tasks": ["small"], "root": str(tmp_path / "data"), "batch_size": 8}
    model = {"name": "resnet8", "width": 4}
    raw = {"inner_steps": 3, "trajectories": 2, "model": model, "data": data, "method": {"beta": 0.1, **method}}
    problem = Problem.of(build_config(raw))
    whole = LocalEngine(problem)
    whole.run(0, 5)
    state = whole.capture(5).result()
    whole.run(5, 6)

    folder = RunFolder.open(str(tmp_path / "run"), problem.config)
    storage = folder.storage.inside("checkpoints")
    name = write_snapshot(storage, contiguous(state, whole))
    manifest = json.loads(storage.read(f"{name}/manifest.json"))
    storage.write(f"{name}/manifest.json", json.dumps({**manifest, "version": 1}).encode())
    log = io.StringIO()
    train_with(LocalEngine(problem), problem, folder, log=log, stop_on_signals=False)
    resumed = folder.restore()
    assert resumed is not None
    assert torch.equal(resumed.meta["phi"], whole.meta.phi)
    assert "begun on another machine" in log.getvalue(), "its processor was another one"


def test_a_shift_that_was_on_its_way_before_totals_were_exact_counts_all_its_tasks():
    """Such a snapshot has the sum itself, and the number of tasks behind it."""
    config = build_config({"data": {"tasks": ["a", "b", "c"]}, "method": {"name": "shifting", "shift_delay": 1}})
    outer = OuterLearner(config, build_method(config.method), torch.zeros(2))
    outer.load_state({"phi": torch.ones(2), "pending": torch.tensor([3.0, -1.5, 3.0])})
    assert outer.pending is not None
    assert torch.equal(outer.phi, torch.ones(2))
    assert torch.equal(outer.grid.mean(outer.pending, outer.phi), torch.tensor([1.0, -0.5]))
    assert "pending" not in outer.state()


def contiguous(state: RunState, engine: LocalEngine) -> RunState:
    """The state as the program wrote it before: every backbone with its parameters as torch has them."""
    flat = engine.first.flat

    def old(vector: torch.Tensor) -> torch.Tensor:
        return torch.cat([value.reshape(-1) for value in flat.name_backbone(vector.float()).values()]).to(vector.dtype)

    def change(name: str, value: torch.Tensor) -> torch.Tensor:
        if value.ndim == 1 and len(value) >= flat.size and "buffer" not in name:
            return torch.cat([old(value[: flat.size]), value[flat.size :]])
        return value

    tasks = {task: {name: change(name, value) for name, value in parts.items()} for task, parts in state.tasks.items()}
    meta = {name: change(name, value) for name, value in state.meta.items()}
    return RunState(state.step, meta, tasks, {"computed_on": "another machine"})


def test_a_waiting_total_is_put_in_order_with_what_rounding_left_of_it():
    order = torch.tensor([1, 2, 0])
    ends = [7.0, 2.0]  # squared lengths, and the number of tasks
    once, twice = torch.tensor([0.0, 1, 2, *ends]), torch.tensor([0.0, 1, 2, 10, 11, 12, *ends])
    assert _reorder({"pending_multiples": once}, order)["pending_multiples"].tolist() == [1, 2, 0, *ends]
    assert _reorder({"pending_multiples": twice}, order)["pending_multiples"].tolist() == [1, 2, 0, 11, 12, 10, *ends]
