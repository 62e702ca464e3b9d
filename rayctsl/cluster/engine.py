"""`run_on_ray`: the same run as `run_local`, with its tasks spread over actors.

`RayEngine` runs chunks of steps on a `Team`, and spreads the tasks anew when learners are lost, come back or turn out
slow. Sums are exact, so none of this changes phi. After a fault all restart from the snapshot that `train_with` hands
over.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

import numpy as np
import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError
from ray.util.placement_group import PlacementGroup
from torch import Tensor

from rayctsl.cluster.balance import Balance
from rayctsl.cluster.calls import Actor, Calls, Watch
from rayctsl.cluster.captures import Captures
from rayctsl.cluster.faults import Silent, cause_of, describe
from rayctsl.cluster.live import LiveView
from rayctsl.cluster.membership import Membership, arrange
from rayctsl.cluster.packing import Packing
from rayctsl.cluster.parts import Begun, Part, join_parts
from rayctsl.cluster.preflight import Preflight
from rayctsl.cluster.resources import connected, gpus_of
from rayctsl.cluster.team import START_SECONDS, Team
from rayctsl.config import Config
from rayctsl.contract import read_contract
from rayctsl.learning.engine import Chunk, EngineFault
from rayctsl.learning.group import COMPUTED_ON
from rayctsl.learning.problem import Problem
from rayctsl.learning.run import train_with
from rayctsl.learning.run_folder import RunFolder
from rayctsl.learning.snapshot import RunState
from rayctsl.progress import say
from rayctsl.registry import Initialization

Result = TypeVar("Result")


def run_on_ray(
    config: Config, folder: RunFolder, problem: Problem | None = None, address: str | None = None
) -> Initialization:
    """Train on a Ray cluster, joined or started here."""
    problem = problem or Problem.of(config)
    with connected(address):
        return train_with(RayEngine(problem), problem, folder)


class RayEngine:
    """One MetaLearner and W TaskLearners."""

    def __init__(
        self,
        problem: Problem,
        placement: PlacementGroup | None = None,
        first_bundle: int = 0,
        measure_costs: bool = True,
        backend: str | None = None,
        team: Team | None = None,
    ):
        """
        Args:
            placement: a group to use, from bundle `first_bundle` on, in place of one of its own (a sweep's trial).
            measure_costs: False takes all tasks as equally costly at the start.
            backend: of torch.distributed, for one collective over all learners; NCCL when each has a GPU of its own.
            team: actors of an engine before this one, to go on with.
        """
        self.problem, self.config, self.topology = problem, problem.config, problem.config.topology
        self.measure_costs = measure_costs
        gpus = self.topology.transport == "collective" and gpus_of(self.topology) >= 1
        self.backend = backend or ("nccl" if gpus else None)
        self.run_id = uuid.uuid4().hex[:8]
        self.say: Callable[[str], None] = say
        self.team = team or Team(self.topology, len(problem.task_names), placement, first_bundle)
        self.packing: Packing | None = None
        self.balance = Balance(problem.task_names)
        self._notices: list[str] = []
        self._generation = 0
        self._faults = 0
        self._live = LiveView(problem.task_names)
        self._captures = Captures(self.team, self._collect)
        self._preflight = Preflight(self.config.data)
        self._begun: Begun | None = None  # the chunk after the one that is being collected
        self._better: Packing | None = None  # to be taken when nothing is under way
        self._collected = 0.0  # when the last chunk was

    @property
    def learners(self) -> list[Actor]:
        return [member.actor for member in self.team.learners]

    @property
    def meta(self) -> Actor:
        return self.team.meta.actor if self.team.meta else None

    # Building the group

    def start(self, state: RunState | None) -> None:
        """Assemble the team and set every process to `state`."""
        self._begun = self._better = None
        try:
            self.say("starting the learners" if self._generation == 0 else "gathering the learners again")
            self.team.assemble()
            if state is not None and self._generation == 0:
                self._remember(state)
            self._build(state)
        except (RayActorError, GetTimeoutError) as error:
            raise self._fault(error, "the group could not be built: a process") from error

    def _remember(self, state: RunState) -> None:
        """What an earlier session knew of the tasks' costs, and how it had packed them."""
        self.balance.costs = {name: float(state.facts.get("costs", {}).get(name, 0.0)) for name in self.balance.costs}
        if "packing" in state.facts:
            packing = read_contract(Packing, state.facts["packing"], "the snapshot's packing")
            self.packing = packing if len(packing.learners) == len(self.learners) else None

    def _build(self, state: RunState | None) -> None:
        """Spread the tasks over the team as it is, with the given state, and connect everyone."""
        self._generation += 1
        self._captures.forget_reach()
        if self.packing is None or len(self.packing.learners) != len(self.learners):
            if self.measure_costs and not self.balance.known and 1 < len(self.learners) < len(self.balance.costs):
                self._measure()
            self.packing = self.balance.pack(len(self.learners))
        self.balance.begin(self.packing)
        actors, shares = self.team.actors, [*self.packing.learners, ()]
        self._check_nodes(shares)
        stored = ray.put(self.problem)
        told = self._collect({a.host.remote(stored, n, self.run_id): a for a, n in zip(actors, shares, strict=True)})
        self._notices = list(dict.fromkeys(notice for notices in told for notice in notices))
        meta_state = ray.put(state.meta if state else {"phi": self._ask(actors[0], "first_phi")})
        parts = [self._captures.share(state, names) for names in shares]
        sizes = self._collect({a.begin.remote(meta_state, part): a for a, part in zip(actors, parts, strict=True)})
        memberships = self._memberships(sizes[-1])
        joining = {actor.join.remote(member): actor for actor, member in zip(actors, memberships, strict=True)}
        self._collect(joining, patience=START_SECONDS)
        self._collect({actor.forget_segment.remote(): actor for actor in actors})

    def _check_nodes(self, shares: Sequence[Sequence[str]]) -> None:
        """Every node has the driver's code and data, or is refused. However long it copies: there is no deadline."""
        self._preflight.check(list(zip(self.team.actors, self.team.places, shares, strict=True)), self._collect)

    def _measure(self) -> None:
        """Every task's cost with all learners busy, as they will be."""
        self.say("measuring what a step of each task costs")
        names, count = self.problem.task_names, len(self.learners)
        shares = [names[place::count] for place in range(count)]
        self._check_nodes([*shares, ()])
        stored = ray.put(self.problem)
        calls = {actor.measure.remote(stored, share): actor for actor, share in zip(self.learners, shares, strict=True)}
        for measured in self._collect(calls):
            self.balance.costs.update(measured)

    def _memberships(self, size: int) -> list[Membership]:
        exchange = "alone" if len(self.learners) == 1 else self.backend or self.topology.transport
        name, team, meta = f"{self.run_id}-{self._generation}", self.team, self.meta
        return arrange(exchange, name, team.actors, team.places, size, lambda: self._ask(meta, "open_store"))

    @property
    def _meta_follows(self) -> bool:
        """Whether the meta-learner is brought up to date after chunks, because it is no rank of the exchange."""
        return len(self.learners) == 1 or self.backend is not None

    # Running

    def run(self, start: int, stop: int, then: int | None = None) -> Chunk:
        """Inner steps start .. stop - 1; those up to `then` are begun as well, if nothing is to be decided before."""
        begun, self._begun = self._begun, None
        if begun is None:
            self._move_tasks(start)
            begun = self._begin_chunk(start, stop)
        assert (begun.start, begun.stop) == (start, stop), "what was begun has to be asked for"
        if then is not None and self._stays_as_it_is():
            self._begun = self._begin_chunk(stop, then)
        parts: list[Part] = self._collect(begun.calls, patience=self.topology.timeout_seconds)[:-1]
        assert self.packing is not None
        now = time.perf_counter()
        seconds, self._collected = now - max(begun.at, self._collected), now
        chunk = join_parts(parts, self.packing, self.problem.task_names, seconds)
        self.balance.note([part.busy_seconds for part in parts], stop - start)
        self._live.show(chunk, stop)
        return chunk

    @property
    def under_way(self) -> int | None:
        """Where the chunk ends that was begun ahead."""
        return self._begun.stop if self._begun else None

    def _begin_chunk(self, start: int, stop: int) -> Begun:
        """Queue a chunk's calls, the meta-learner's last; actors take their calls in order."""
        at = time.perf_counter()  # learners begin with their calls, however long this process takes to make the last
        calls = {actor.run.remote(start, stop): actor for actor in self.learners}
        if self._meta_follows:
            last = self.meta.follow.remote(self.learners[0].capture_meta.remote())
        else:
            last = self.meta.run.remote(start, stop)
        return Begun(start, stop, {**calls, last: self.meta}, at)

    def _stays_as_it_is(self) -> bool:
        """Whether no learner is about to come, and none is to be relieved."""
        self._better = self._better or self.balance.improve()
        return self._better is None and not self.team.look_for_room()

    def _move_tasks(self, step: int) -> None:
        """Take in learners that have come, or relieve slow ones; between two chunks, wherever they end."""
        better = None
        if not self.team.grow():
            better, self._better = self._better or self.balance.improve(), None
            if better is None:
                return
        state = self.capture(step).result()
        self.packing = better
        self._build(state)

    def _collect(self, running: Calls, patience: float | None = None) -> list[Any]:
        """The results of calls, given by reference and actor; the first fault wakes everyone and is raised."""
        watch = Watch(running, patience)
        try:
            return watch.results()
        except (RayError, Silent) as error:
            cause = cause_of(error) if isinstance(error, RayError) else error
            fault, who = watch.fault(cause), self._name(watch.actor)
            if watch.hopeless:
                self.team.part_from(watch.actor)
            self.team.call_off()
            if fault is None:
                raise cause from None
            raise self._fault(fault, who, actor=watch.actor) from error

    def _ask(self, actor: Actor, method: str, *arguments: Any) -> Any:
        """What one actor answers."""
        return self._collect({getattr(actor, method).remote(*arguments): actor})[0]

    def _fault(self, error: BaseException, who: str, actor: Actor = None) -> EngineFault:
        self._faults += 1
        self._live.count_faults(self._faults)
        return self.team.explain(error, describe(error, who), actor, self.run_id)

    def _name(self, actor: Actor) -> str:
        if self.meta is not None and actor is self.meta:
            return "the meta-learner"
        place = self.learners.index(actor) if actor in self.learners else len(self.learners)
        if self.packing is None or place >= len(self.packing.learners):
            return "a process"
        hosted = self.packing.learners[place]
        return f"the learner of {', '.join(hosted[:3])}{' …' if len(hosted) > 3 else ''}"

    def capture(self, step: int, into: str | None = None) -> Future[RunState]:
        """Copies taken now; they are fetched, or written by the learners themselves, while the run goes on."""
        assert self.packing is not None
        assert self._begun is None, "the learners are past this step"
        hosts = self.team.learners[: len(self.packing.learners)]  # who has just come, at the end, hosts nothing yet
        facts = {
            "packing": self.packing.to_json(),
            "costs": self.balance.costs if self.balance.known else {},
            "computed_on": self.computed_on,
        }
        return self._captures.take(step, hosts, facts, into)

    def busy_seconds(self) -> np.ndarray:
        """How long each learner has computed so far."""
        return self.balance.busy.copy()

    def name_phi(self, phi: Tensor) -> dict[str, Tensor]:
        return self._ask(self.learners[0], "name_phi", phi)

    @property
    def computed_on(self) -> str:
        """What the learners compute on, all kinds of it."""
        kinds = [notice.removeprefix(COMPUTED_ON) for notice in self._notices if notice.startswith(COMPUTED_ON)]
        return " and ".join(sorted(kinds))

    def on_learner(self, function: Callable[[str], Result]) -> Result:
        """Call a function with the first learner's device, there."""
        return self._ask(self.learners[0], "compute", function)

    def describe(self) -> str:
        """How the work is spread: expected at the start, as it was at the end of the run."""
        assert self.packing is not None
        if self.balance.busy.any():  # the end of the run
            return f"the work was spread evenly to {100 * self.balance.achieved:.0f} %"
        return "\n".join([self.packing.describe(), *self._notices])

    def close(self) -> None:
        self._captures.close()
        if ray.is_initialized():
            self.team.release()
