"""Whatever is killed, the run ends with the phi of an undisturbed one, bit for bit, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import time

import pytest
import ray
from ray._private.state import actors
from ray.exceptions import ActorUnavailableError, GetTimeoutError, OutOfMemoryError, RayActorError, RayTaskError
from ray.util.placement_group import placement_group_table

from rayctsl.cluster.engine import RayEngine
from rayctsl.cluster.exchange import PeerLost
from rayctsl.cluster.faults import Silent, cause_of, describe, is_preemption
from rayctsl.learning.engine import EngineFault
from rayctsl.learning.group import NonFiniteLoss
from rayctsl.learning.run import Hooks, Run, run_local, train_with
from tests.processes import is_alive

pytestmark = pytest.mark.ray


def placement_groups() -> list[str]:
    """Those that still exist."""
    return [group["placement_group_id"] for group in placement_group_table().values() if group["state"] != "REMOVED"]


def processes(engine: RayEngine) -> set[int]:
    return {place.pid for place in ray.get([actor.place.remote() for actor in [*engine.learners, engine.meta]])}


class Saboteur:
    """Kills the meta-learner between two chunks when a run has come so far, and notes every process on the way."""

    def __init__(self, at: int):
        self.at, self.killed, self.seen = at, 0, set[int]()

    def __call__(self, run: Run) -> None:
        assert isinstance(run.engine, RayEngine)
        self.seen |= processes(run.engine)
        if run.step >= self.at and not self.killed:
            self.killed = ray.get(run.engine.meta.place.remote()).pid
            os.kill(self.killed, signal.SIGKILL)

    def left(self) -> set[int]:
        """Processes that still run, after the moment that a killed one needs to go."""
        deadline = time.monotonic() + 30
        while (alive := {pid for pid in self.seen if is_alive(pid)}) and time.monotonic() < deadline:
            time.sleep(0.05)
        return alive


def died(text: str) -> RayActorError:
    return RayActorError(error_msg=text)


NODE_DIED = """The actor died unexpectedly before finishing this task.
	class_name: TaskLearner
The actor died because its node has died. Node Id: 0a1b"""

LOW_ON_MEMORY = "1 worker(s) were killed due to the node running low on memory. Memory on the node (IP: 10.0.0.7) was …"
NOT_CREATED = """The actor died because of an error raised in its creation task, ray::TaskLearner.__init__()
  File "actors.py", line 1
RuntimeError: no such device"""


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (
            PeerLost("the collective failed: Connection closed by peer\nmore"),
            "the collective failed: Connection closed",
        ),
        (Silent("has been silent for 11 s"), "the learner of svhn has been silent for 11 s"),
        (ActorUnavailableError("x", None), "the learner of svhn cannot be reached"),
        (died(NODE_DIED), "the learner of svhn was lost with its node"),
        (died("Worker exit detail: killed by signal 11"), "the learner of svhn was killed by SIGSEGV"),
        (died("It was killed by `ray.kill`"), "the learner of svhn was ended"),
        (OutOfMemoryError(LOW_ON_MEMORY), "the learner of svhn was ended by Ray because its node ran out of memory"),
        (died(NOT_CREATED), "the learner of svhn could not start: RuntimeError: no such device"),
        (GetTimeoutError("Get timed out"), "the learner of svhn did not answer in time"),
        (OSError("a broken disk\nat length"), "the learner of svhn failed: a broken disk"),
    ],
)
def test_a_fault_is_told_in_one_sentence(error, sentence):
    told = describe(error, "the learner of svhn")
    assert told.startswith(sentence)
    assert "\n" not in told


def test_what_the_cluster_takes_away_on_purpose_is_no_fault():
    drained = died("The actor died because its node was drained: preemption")
    assert is_preemption(drained)
    assert not is_preemption(died(NODE_DIED))
    assert not is_preemption(PeerLost("drained"))
    assert is_preemption(RayActorError(error_msg=NODE_DIED, preempted=True))


@pytest.mark.parametrize(
    "error",
    [
        ValueError("task x has no images"),
        OSError(28, "No space left on device"),
        RuntimeError("CUDA error: an illegal memory access was encountered"),
    ],
)
def test_what_a_user_can_mend_is_told_as_it_was_raised(error):
    assert cause_of(RayTaskError("f", "a long story", error)) is error


def test_a_mistake_in_the_program_keeps_its_story():
    wrapped = RayTaskError("f", "a long story", TypeError("x"))
    assert cause_of(wrapped) is wrapped


@pytest.mark.parametrize("transport", ["collective", pytest.param("objects", marks=pytest.mark.long)])
def test_kills_do_not_change_phi(ray_cluster, tiny_problem, new_folder, tmp_path, transport, capfd):
    """A learner dies in the middle of a chunk, the meta-learner between two."""
    keys = {"inner_steps": 30, "snapshot_every": 7, "topology": {"workers": 2, "transport": transport}}
    problem, calm = tiny_problem(2, dies=(tmp_path / "died", 17), **keys), tiny_problem(2, **keys)
    undisturbed = run_local(calm.config, new_folder(calm), calm)
    saboteur = Saboteur(at=35)
    disturbed = train_with(RayEngine(problem), problem, new_folder(problem), hooks=Hooks(after_chunk=saboteur))
    assert (tmp_path / "died").exists()
    assert saboteur.killed
    said = capfd.readouterr().err
    assert "fault 2" in said
    assert said.count("recovered in") == 2
    assert disturbed.card.sha256 == undisturbed.card.sha256
    assert disturbed.card.spent == undisturbed.card.spent
    assert placement_groups() == []
    assert saboteur.left() == set()


def test_too_many_failures_end_the_run(kept_actors, tiny_problem, new_folder, tmp_path):
    topology = {"workers": 2, "max_failures": 0, "transport": "objects"}
    problem = tiny_problem(2, dies=(tmp_path / "died", 2), topology=topology)
    with pytest.raises(EngineFault, match="died"):
        train_with(RayEngine(problem), problem, new_folder(problem))
    assert placement_groups() == []


def test_a_learner_that_dies_just_before_a_snapshot_is_a_fault_like_any_other(ray_cluster, tiny_problem, tmp_path):
    engine = RayEngine(tiny_problem(1))
    engine.start(None)
    try:
        os.kill(ray.get(engine.learners[0].place.remote()).pid, signal.SIGKILL)
        with pytest.raises(EngineFault, match="the learner of task-0 died"):
            engine.capture(0, str(tmp_path)).result()
    finally:
        engine.close()
    assert list(tmp_path.iterdir()) == []


def test_a_diverging_task_is_named_and_nothing_is_left(kept_actors, tiny_problem, new_folder):
    problem = tiny_problem(2, inner={"alpha": 1e30}, topology={"workers": 2})
    with pytest.raises(NonFiniteLoss, match=r"task 'task-\d' diverged .* on_non_finite=drop"):
        train_with(RayEngine(problem), problem, new_folder(problem))
    assert placement_groups() == []


def test_actors_have_the_names_that_users_see(kept_actors, tiny_problem):
    engine = RayEngine(tiny_problem(2, topology={"workers": 2}))
    engine.start(None)
    try:
        ids = [actor._actor_id.hex() for actor in [*engine.learners, engine.meta]]
        # The cluster's own table: the state API asks whichever cluster was started last on this machine.
        names = [actors(actor)["ActorClassName"] for actor in ids]
    finally:
        engine.close()
    assert names == ["TaskLearner", "TaskLearner", "MetaLearner"]
