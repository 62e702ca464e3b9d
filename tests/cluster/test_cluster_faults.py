"""Whatever is killed, the run ends with the phi of an undisturbed one, bit for bit, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest
import ray
from ray.exceptions import RayError
from ray.util.placement_group import placement_group_table
from ray.util.state import list_actors

from rayctsl.cluster.engine import RayEngine
from rayctsl.learning.engine import EngineFault
from rayctsl.learning.group import NonFiniteLoss
from rayctsl.learning.run import run_local, train_with

pytestmark = pytest.mark.ray


def leftovers() -> list[str]:
    """Placement groups that still exist and processes of our actors that still run."""
    groups = [g["placement_group_id"] for g in placement_group_table().values() if g["state"] != "REMOVED"]
    return groups + [str(pid) for pid in OUR_PIDS if os.path.exists(f"/proc/{pid}")]


OUR_PIDS: set[int] = set()


class Saboteur(threading.Thread):
    """Kills actors of an engine while it runs: those named, with a pause after each."""

    def __init__(self, engine: RayEngine, victims: list[str], pause: float = 1.0):
        super().__init__(daemon=True)
        self.engine, self.victims, self.pause, self.killed = engine, victims, pause, 0

    def run(self) -> None:
        for victim in self.victims:
            while not self._kill(victim):
                time.sleep(0.1)
            self.killed += 1
            time.sleep(self.pause)

    def _kill(self, victim: str) -> bool:
        """False when it does not live yet, or no more: the engine may just be building its group again."""
        actors = [self.engine.meta] if victim == "meta" else self.engine.learners
        try:
            place = ray.get(actors[-1].place.options(concurrency_group="control").remote(), timeout=5)
            OUR_PIDS.add(place.pid)
            time.sleep(0.2)
            os.kill(place.pid, signal.SIGKILL)
        except (RayError, AttributeError, ProcessLookupError, IndexError):
            return False
        return True


@pytest.mark.parametrize("transport", ["collective", "objects"])
def test_kills_do_not_change_phi(ray_cluster, tiny_problem, new_folder, transport, capfd):
    keys = {"inner_steps": 30, "trajectories": 4, "snapshot_every": 7}
    problem = tiny_problem(2, slow_seconds=0.02, topology={"workers": 2, "transport": transport}, **keys)
    quick = tiny_problem(2, topology={"workers": 2}, **keys)
    undisturbed = run_local(quick.config, new_folder(quick), quick)
    engine = RayEngine(problem)
    saboteur = Saboteur(engine, ["learner", "meta"])
    saboteur.start()
    disturbed = train_with(engine, problem, new_folder(problem))
    saboteur.join()
    assert saboteur.killed == 2
    said = capfd.readouterr().err
    assert "fault 1" in said
    assert "recovered in" in said
    assert disturbed.card.sha256 == undisturbed.card.sha256
    assert disturbed.card.spent == undisturbed.card.spent
    assert leftovers() == []


def test_too_many_failures_end_the_run(ray_cluster, tiny_problem, new_folder):
    problem = tiny_problem(2, slow_seconds=0.05, inner_steps=100, topology={"workers": 2, "max_failures": 0})
    engine = RayEngine(problem)
    Saboteur(engine, ["learner"]).start()
    with pytest.raises(EngineFault, match="died"):
        train_with(engine, problem, new_folder(problem))
    assert leftovers() == []


def test_a_diverging_task_is_named_and_nothing_is_left(ray_cluster, tiny_problem, new_folder):
    problem = tiny_problem(2, inner={"alpha": 1e30}, topology={"workers": 2})
    with pytest.raises(NonFiniteLoss, match=r"task 'task-\d' diverged .* on_non_finite=drop"):
        train_with(RayEngine(problem), problem, new_folder(problem))
    assert leftovers() == []


def test_actor_names_in_the_state_api(ray_cluster, tiny_problem):
    engine = RayEngine(tiny_problem(2, topology={"workers": 2}))
    engine.start(None)
    names = sorted(actor.class_name for actor in list_actors(filters=[("state", "=", "ALIVE")]))
    engine.close()
    assert names == ["MetaLearner", "TaskLearner", "TaskLearner"]
