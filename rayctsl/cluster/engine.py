"""`run_on_ray`: the same run as `run_local`, with its tasks spread over actors.

`RayEngine` builds the group of actors, runs chunks of steps on it, and after a fault builds it again: survivors are
kept, the dead are replaced, all of them restart from the snapshot that `train_with` hands over.
"""

from __future__ import annotations

import re
import time
import uuid
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError, RayTaskError
from ray.util.placement_group import PlacementGroup, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
from torch import Tensor

from rayctsl.cluster.actors import MetaLearner, Part, TaskLearner
from rayctsl.cluster.exchange import PeerLost
from rayctsl.cluster.live import LiveView
from rayctsl.cluster.membership import Membership, Place, alone, by_collective, by_ray_calls, by_shared_memory
from rayctsl.cluster.packing import Packing, pack, utilisation
from rayctsl.cluster.resources import choose_num_learners, connected, reserve
from rayctsl.config import Config
from rayctsl.contract import read_contract
from rayctsl.learning.engine import Chunk, EngineFault
from rayctsl.learning.group import NonFiniteLoss
from rayctsl.learning.problem import Problem
from rayctsl.learning.run import train_with
from rayctsl.learning.run_folder import RunFolder
from rayctsl.learning.snapshot import RunState
from rayctsl.registry import Initialization

START_SECONDS = 300.0  # for an actor to start and open its tasks' data
REPLACEMENT_SECONDS = 600.0  # for a lost node's place to be filled
GRACE_SECONDS = 5.0  # for survivors of a fault to notice it; who does not is replaced too


def run_on_ray(
    config: Config, folder: RunFolder, problem: Problem | None = None, address: str | None = None
) -> Initialization:
    """Train on a Ray cluster, joined or started here."""
    problem = problem or Problem.of(config)
    with connected(address):
        return train_with(RayEngine(problem), problem, folder)


class RayEngine:
    """One MetaLearner and W TaskLearners in one placement group."""

    def __init__(
        self,
        problem: Problem,
        placement: PlacementGroup | None = None,
        first_bundle: int = 0,
        measure_costs: bool = True,
    ):
        """
        Args:
            placement: a group to use, from bundle `first_bundle` on, in place of one of its own (a sweep's trial).
            measure_costs: False takes all tasks as equally costly.
        """
        self.problem, self.config = problem, problem.config
        self.topology = self.config.topology
        self.placement, self.first_bundle, self._owns_placement = placement, first_bundle, placement is None
        self.measure_costs = measure_costs
        self.learners: list[Any] = []
        self.meta: Any = None
        self.packing: Packing | None = None
        self._notices: list[str] = []
        self._nodes: set[str] = set()
        self._generation = 0
        self._run_id = uuid.uuid4().hex[:8]
        self._live = LiveView(problem.task_names)
        self._loads = np.zeros(0)
        self._captures = ThreadPoolExecutor(1, "captures")

    # Building the group

    def start(self, state: RunState | None) -> None:
        """Build or rebuild the group and set every process to `state`."""
        try:
            self._spawn(state)
            self._connect(state)
        except (RayActorError, PeerLost, GetTimeoutError) as error:
            self._release()
            raise EngineFault(f"the group could not be built: {_reason(error)}") from error
        except RayTaskError as error:
            raise _cause(error) from None

    def _spawn(self, state: RunState | None) -> None:
        if self.packing is None and state is not None and "packing" in state.facts:
            self.packing = read_contract(Packing, state.facts["packing"], "the snapshot's packing")
        alive = [_answers(actor) for actor in [*self.learners, self.meta]]
        if self._lost_a_node():
            self._release()  # Ray moves a lost node's bundles in its own time; a new group is placed at once
        if self.placement is None:
            wanted = len(self.packing.learners) if self.packing else None
            wanted = wanted or choose_num_learners(self.topology, len(self.problem.task_names))
            # A lost node may take a while to be replaced; a first start that does not fit is refused at once.
            patience = max(self.topology.wait_seconds, REPLACEMENT_SECONDS if self._generation else 0.0)
            self.placement = reserve(self.topology, wanted, patience)
        num_learners = self.placement.bundle_count - self.first_bundle - bool(self.topology.meta_resources)
        if not self.learners:
            self.learners, alive = [None] * num_learners, [False] * (num_learners + 1)
        for number in range(num_learners):
            if not alive[number]:
                self.learners[number] = self._new_actor(TaskLearner, number, "learner")
        if not alive[-1]:
            self.meta = self._new_actor(MetaLearner, num_learners if self.topology.meta_resources else 0, "meta")
        if self.packing is None:
            self.packing = self._pack(num_learners)
        shares = [*self.packing.learners, ()]
        told = _get([a.host.remote(names) for a, names in zip([*self.learners, self.meta], shares, strict=True)])
        self._notices = list(dict.fromkeys(notice for notices in told for notice in notices))

    def _lost_a_node(self) -> bool:
        standing = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
        return self._owns_placement and not self._nodes <= standing

    def _new_actor(self, kind: Any, bundle: int, role: str) -> Any:
        assert self.placement is not None
        learner = role == "learner"
        strategy = PlacementGroupSchedulingStrategy(self.placement, self.first_bundle + bundle)
        return kind.options(
            num_cpus=self.topology.cpus_per_learner if learner else 0,
            num_gpus=self.topology.gpus_per_learner if learner else 0,
            resources=None if learner else dict(self.topology.meta_resources),
            scheduling_strategy=strategy,
        ).remote(self.problem)

    def _pack(self, num_learners: int) -> Packing:
        """Measure every task's cost with all learners busy, as they will be, and spread the tasks evenly."""
        names = self.problem.task_names
        if num_learners in (1, len(names)) or not self.measure_costs:
            return pack(dict.fromkeys(names, 1.0), num_learners)
        shares = [names[number::num_learners] for number in range(num_learners)]
        costs: dict[str, float] = {}
        for measured in _get([a.measure.remote(s) for a, s in zip(self.learners, shares, strict=True)]):
            costs.update(measured)
        return pack({name: costs[name] for name in names}, num_learners)

    def _connect(self, state: RunState | None) -> None:
        assert self.packing is not None
        self._generation += 1
        everyone = [*self.learners, self.meta]
        meta_state = ray.put(state.meta if state else {"phi": _get(self.learners[0].first_phi.remote())})
        shares = [*self.packing.learners, ()]
        parts = [{name: state.tasks[name] for name in names} if state else None for names in shares]
        sizes = _get([a.begin.remote(meta_state, part) for a, part in zip(everyone, parts, strict=True)])
        places = _get([actor.place.remote() for actor in everyone])
        self._nodes = {place.node for place in places}
        memberships = self._memberships(places, sizes[-1])
        _get([actor.join.remote(member) for actor, member in zip(everyone, memberships, strict=True)])
        _get([actor.forget_segment.remote() for actor in everyone])

    def _memberships(self, places: list[Place], size: int) -> list[Membership]:
        generation = f"{self._run_id}-{self._generation}"
        if len(self.learners) == 1:
            return alone(generation)
        if self.topology.transport == "objects":
            return by_ray_calls(generation, self.meta, len(self.learners))
        if self._uses_nccl:
            return by_collective(generation, "nccl", _get(self.meta.open_store.remote()), len(self.learners))
        several = len({place.node for place in places}) > 1
        store = _get(self.meta.open_store.remote()) if several else None
        return by_shared_memory(generation, places, size, store)

    @property
    def _uses_nccl(self) -> bool:
        return self.topology.transport == "collective" and self.topology.gpus_per_learner >= 1

    @property
    def _meta_follows(self) -> bool:
        """Whether the meta-learner is brought up to date after chunks, because it is no rank of the exchange."""
        return len(self.learners) == 1 or self._uses_nccl

    # Running

    def run(self, start: int, stop: int) -> Chunk:
        started = time.perf_counter()
        running = {actor.run.remote(start, stop): actor for actor in self.learners}
        if self._meta_follows:
            learner_parts = self._collect(running)
            self._collect({self.meta.follow.remote(self.learners[0].capture_meta.remote()): self.meta})
        else:
            running[self.meta.run.remote(start, stop)] = self.meta
            learner_parts = self._collect(running)[:-1]
        return self._chunk(learner_parts, time.perf_counter() - started)

    def _collect(self, running: dict[Any, Any]) -> list[Any]:
        """The results of calls, given by reference and actor; the first fault wakes everyone and is raised."""
        waiting = list(running)
        while waiting:
            done, waiting = ray.wait(waiting, num_returns=1, timeout=1.0)
            for reference in done:
                try:
                    ray.get(reference)
                except RayTaskError as error:
                    self._call_off()
                    cause = _cause(error)
                    if isinstance(cause, PeerLost):
                        raise EngineFault(_reason(cause)) from error
                    raise cause from None
                except RayError as error:
                    self._call_off()
                    raise EngineFault(f"{_role(running[reference], self.meta)} died: {_reason(error)}") from error
        return ray.get(list(running))

    def _call_off(self) -> None:
        """Wake everyone who waits for a lost peer; who does not answer within the grace period is killed."""
        actors = [actor for actor in [*self.learners, self.meta] if actor is not None]
        for actor in actors:
            actor.abort.remote()
        left = {actor.leave.remote(): actor for actor in actors}
        deadline = time.monotonic() + GRACE_SECONDS
        _, stuck = ray.wait(list(left), num_returns=len(left), timeout=max(0.0, deadline - time.monotonic()))
        for reference in stuck:
            ray.kill(left[reference])

    def _chunk(self, parts: list[Part], seconds: float) -> Chunk:
        assert self.packing is not None
        names = self.problem.task_names
        by_task = {
            name: part.losses[:, place]
            for part, hosted in zip(parts, self.packing.learners, strict=True)
            for place, name in enumerate(hosted)
        }
        busy = np.array([part.busy_seconds for part in parts])
        self._loads = busy if len(self._loads) != len(busy) else self._loads + busy
        steps = len(parts[0].losses)
        facts = {
            "utilisation": float(busy.sum() / (len(busy) * seconds)),
            "stall_share": float(np.mean([part.stall_seconds for part in parts]) / seconds),
            "bytes_per_step": float(sum(part.bytes_sent for part in parts) / steps),
            "learner_rss_bytes": float(max(part.rss_bytes for part in parts)),
        }
        chunk = Chunk(
            losses=np.stack([by_task[name] for name in names], axis=1),
            delta_norms=parts[0].delta_norms,
            disagreements=parts[0].disagreements,
            inner_steps=np.sum([part.inner_steps for part in parts], axis=0),
            counts=np.sum([part.counts for part in parts], axis=0),
            seconds=seconds,
            facts=facts,
        )
        self._live.show(chunk)
        return chunk

    def capture(self, step: int) -> Future[RunState]:
        """Copies taken now, in order with the running calls; they are fetched while the run goes on."""
        assert self.packing is not None
        meta = self.meta.capture_meta.remote()
        tasks = [actor.capture_tasks.remote() for actor in self.learners]
        facts = {"packing": self.packing.to_json()}

        def fetch() -> RunState:
            try:
                states = {name: value for part in ray.get(tasks) for name, value in part.items()}
                return RunState(step, ray.get(meta), states, facts)
            except RayError as error:
                raise EngineFault(f"a snapshot was lost: {_reason(error)}") from error

        return self._captures.submit(fetch)

    def busy_seconds(self) -> np.ndarray:
        """How long each learner has computed so far."""
        return self._loads.copy()

    def name_phi(self, phi: Tensor) -> dict[str, Tensor]:
        return self._collect({self.learners[0].name_phi.remote(phi): self.learners[0]})[0]

    def describe(self) -> str:
        """One line on how the work is spread, for the log and the end of the run."""
        assert self.packing is not None
        hosted = " | ".join(",".join(names) for names in self.packing.learners)
        text = f"{len(self.learners)} learners: {hosted}; expected utilisation {self.packing.expected_utilisation:.0%}"
        if len(self._loads):  # the end of the run
            return text + f", balance achieved {utilisation(list(self._loads)):.0%}"
        return "; ".join([text, *self._notices])

    def _release(self) -> None:
        """Stop the actors and give the resources back."""
        for actor in [*self.learners, self.meta]:
            if actor is not None:
                ray.kill(actor)
        self.learners, self.meta, self._nodes = [], None, set()
        if self.placement is not None and self._owns_placement:
            remove_placement_group(self.placement)
            self.placement = None

    def close(self) -> None:
        self._captures.shutdown(wait=False, cancel_futures=True)
        if ray.is_initialized():
            self._release()


def _get(references: Any) -> Any:
    """`ray.get` that does not wait for ever for a process that cannot start."""
    return ray.get(references, timeout=START_SECONDS)


def _answers(actor: Any) -> bool:
    """Whether an actor is alive and free."""
    if actor is None:
        return False
    try:
        ray.get(actor.place.remote(), timeout=GRACE_SECONDS)
    except GetTimeoutError:
        ray.kill(actor)
        return False
    except RayError:
        return False
    return True


def _cause(error: RayTaskError) -> Exception:
    """The exception that the remote code raised, as itself."""
    cause = error.cause
    for kind in (NonFiniteLoss, PeerLost):
        if isinstance(cause, kind):
            return kind(str(cause).strip().splitlines()[-1].removeprefix(f"{kind.__module__}.{kind.__name__}: "))
    return cause if isinstance(cause, ValueError) else error


def _role(actor: Any, meta: Any) -> str:
    return "the meta-learner" if actor is meta else "a task learner"


def _reason(error: BaseException) -> str:
    """What an error says, in one line; of Ray's long messages the sentences, without their fields (`pid: 12`)."""
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    if not isinstance(error, RayActorError):
        return lines[0]
    return " ".join(line for line in lines if not re.match(r"\w+: ", line))
