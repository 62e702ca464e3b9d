"""The actors of a run, as Ray's state API shows them: one `MetaLearner` and W `TaskLearner`s.

Both run the same loop (`learning.loop.run_steps`), a chunk of inner steps per call: a task learner with the tasks it
hosts, the meta-learner with none. Contributions are exchanged inside the chunk, without the driver.
"""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import ray
import torch
from torch import Tensor

from rayctsl.cluster.exchange import Connection, SharedMemoryPlan, connect
from rayctsl.cluster.exchange.collective import StoreAddress
from rayctsl.cluster.exchange.ray_calls import Collector, Contributor, Message
from rayctsl.cluster.exchange.shared_memory import remove_segment
from rayctsl.cluster.membership import Membership, Place
from rayctsl.cluster.note import Note, note_name, read_note
from rayctsl.cluster.parts import Part
from rayctsl.cluster.preflight import differences
from rayctsl.config import Config
from rayctsl.device import choose_device, synchronize
from rayctsl.learning.group import TaskGroup
from rayctsl.learning.loop import keep_here, run_steps
from rayctsl.learning.memory import room_for
from rayctsl.learning.meta_learner import OuterLearner
from rayctsl.learning.problem import Problem
from rayctsl.learning.snapshot import TaskState, write_task_files
from rayctsl.learning.task_learner import InnerLearner
from rayctsl.methods import Method, build_method
from rayctsl.storage import Storage

PROBE = "probe"  # a file by which learners find out whether they see the driver's files

MEASURED_ROUNDS, MEASURED_SECONDS = 2, 0.1  # before tasks are packed: at least so many steps of each, so long


class Worker:
    """What both kinds of actor do."""

    problem: Problem
    config: Config
    method: Method

    def __init__(self) -> None:
        self.group: TaskGroup | None = None
        self.meta: OuterLearner | None = None
        self.connection: Connection | None = None
        self.membership: Membership | None = None
        self._note: Note | None = None
        self._held: dict[str, dict[str, TaskState]] = {}

    @property
    def device(self) -> str:
        # Asked outside of an actor, Ray would start a cluster to answer.
        return choose_device(granted=ray.is_initialized() and bool(ray.get_gpu_ids()))

    def place(self) -> Place:
        """Where this process is; answered between two chunks."""
        context = ray.get_runtime_context()
        return Place(context.get_node_id(), ray.util.get_node_ip_address(), os.getpid())

    @ray.method(concurrency_group="control")
    def beat(self) -> int:
        """Answered at once by a process that lives, whatever it computes: the gradients that it has begun so far."""
        return int(self.group.counts().sum()) if self.group is not None else 0

    @ray.method(concurrency_group="control")
    def read_note(self, name: str) -> tuple[int, str] | None:
        """What a process of this node that is gone was at."""
        return read_note(name)

    def preflight(
        self, expected: dict[str, str], names: list[str], root: str | None, checksums: dict[str, str]
    ) -> list[str]:
        """How this node differs from what the driver expects of it; fetches the datasets."""
        return differences(expected, names, root, checksums)

    def host(self, problem: Problem, names: tuple[str, ...], run_id: str) -> list[str]:
        """Build the learners of these tasks anew, so that nothing of an earlier life remains; returns notices."""
        self.leave()
        self.problem, self.config = problem, problem.config
        torch.set_num_threads(self.config.topology.threads)
        self.method = build_method(self.config.method, self.config.seed)
        if self._note is None:
            self._note = Note(note_name(run_id, os.getpid()))
            atexit.register(self._note.remove)
        self._note.watch(self.method)
        tasks = [self.problem.build_task(name, self.device) for name in names]
        self.group = TaskGroup(tasks, self.config, self.method)
        return self.group.notices

    def reaches(self, address: str, token: str) -> bool:
        """Whether this process sees the files that the driver sees."""
        try:
            return Storage(address).read(PROBE).decode() == token
        except (OSError, ValueError):
            return False

    def begin(self, meta_state: dict[str, Tensor], states: Mapping[str, TaskState] | None) -> int:
        """Start from phi_0 (no task states) or from a snapshot; returns the size of the vectors to exchange."""
        assert self.group is not None
        self.meta = OuterLearner(self.config, self.method, meta_state["phi"].to(self.device))
        if states is not None:
            self.meta.load_state(meta_state)
            self.group.load_states(states)
        return len(self.meta.grid.no_tasks(self.meta.phi))

    def join(self, membership: Membership) -> None:
        """Connect with the other processes of this generation."""
        membership.check()
        self.membership = membership
        if membership.plan is not None:
            timeout, in_background = self.config.topology.timeout_seconds, self.method.shift_delay > 0
            self.connection = connect(membership.plan, timeout, in_background)

    def leave(self) -> None:
        """Give up the connections of the last generation."""
        if self.connection is not None:
            self.connection.close()
        self.connection = None
        self.forget_segment()

    def forget_segment(self) -> None:
        """Remove the shared memory's file; everyone has it mapped by now, or nobody ever will."""
        plan = self.membership.plan if self.membership else None
        if isinstance(plan, SharedMemoryPlan):
            remove_segment(plan.segment)

    @ray.method(concurrency_group="control")
    def abort(self) -> None:
        """Wake this process if it waits for peers that will not come."""
        if self.connection is not None:
            self.connection.abort()

    def run(self, start: int, stop: int) -> Part:
        """Inner steps start .. stop - 1."""
        assert self.group is not None
        assert self.meta is not None
        if self.connection is not None:
            self.connection.check()  # the chunk before this one, in the queue, may have been called off
        waited, sent = self._traffic()
        exchange = self.connection or keep_here
        try:
            records = run_steps(start, stop, self.config.inner_steps, self.method, self.group, self.meta, exchange)
        finally:
            if self.connection is not None:
                self.connection.check()  # before anyone is told what a garbled total has led to
        assert self._note is not None
        self._note.clear()  # what dies later does not die of a task
        return Part(
            losses=np.stack([record.losses for record in records]),
            delta_norms=np.array([record.delta_norm for record in records]),
            disagreements=np.array([record.disagreement for record in records]),
            inner_steps=np.array([record.inner_steps for record in records]),
            counts=self.group.counts(),
            busy_seconds=self.group.take_seconds(),
            stall_seconds=self._traffic()[0] - waited,
            bytes_sent=self._traffic()[1] - sent,
            rss_bytes=resident_bytes(),
        )

    def _traffic(self) -> tuple[float, int]:
        """Seconds waited for others and bytes sent so far."""
        return (self.connection.wait_seconds, self.connection.bytes_sent) if self.connection else (0.0, 0)

    def capture_meta(self) -> dict[str, Tensor]:
        assert self.meta is not None
        return {name: value.detach().cpu().clone() for name, value in self.meta.state().items()}


@ray.remote(concurrency_groups={"control": 1, "calls": 1, "files": 1}, max_restarts=0)
class TaskLearner(Worker):
    """Hosts one or more tasks."""

    def measure(self, problem: Problem, names: tuple[str, ...]) -> dict[str, float]:
        """Seconds per inner step of each task, on learners that are thrown away.

        All tasks in turn, round after round, so that what slows the machine for a while slows none of them alone.
        """
        torch.set_num_threads(problem.config.topology.threads)
        learners = {name: InnerLearner(problem.build_task(name, self.device), problem.config) for name in names}
        seconds: dict[str, list[float]] = {name: [] for name in names}
        rounds, begun = 0, time.perf_counter()
        while rounds <= MEASURED_ROUNDS or time.perf_counter() - begun < MEASURED_SECONDS * len(names):
            for name, learner in learners.items():
                started = time.perf_counter()
                with room_for(f"task {name!r}", problem.config.data.batch_size, self.device, len(names) - 1):
                    learner.compute_gradient(rounds)
                    learner.apply_gradient()
                    synchronize(self.device)
                seconds[name].append(time.perf_counter() - started)
            rounds += 1
        # The first round fetches memory, and what disturbs a step only makes it longer.
        return {name: min(each[1:]) for name, each in seconds.items()}

    @ray.method(concurrency_group="calls")
    def receive(self, message: Message) -> None:
        """The total of an exchange by Ray calls."""
        if self.connection is not None and isinstance(self.connection.exchange, Contributor):
            self.connection.exchange.receive(message)

    def first_phi(self) -> Tensor:
        """The backbone that every learner starts from."""
        assert self.group is not None
        return next(iter(self.group.learners.values())).theta.detach().cpu().clone()

    def capture_tasks(self) -> dict[str, TaskState]:
        assert self.group is not None
        return self.group.states()

    def hold_tasks(self, address: str) -> str:
        """Copy the tasks' states as they are now, for `write_held`."""
        assert self.group is not None
        self._held[address] = self.group.states()
        return address

    @ray.method(concurrency_group="files")
    def write_held(self, address: str) -> dict[str, str]:
        """Write held states into a snapshot's folder, while the run goes on; returns their checksums."""
        return write_task_files(Storage(address), self._held.pop(address))

    def compute(self, function: Callable[[str], Any]) -> Any:
        """Call a function with this learner's device."""
        return function(self.device)

    def name_phi(self, phi: Tensor) -> dict[str, Tensor]:
        assert self.group is not None
        return next(iter(self.group.learners.values())).flat.name_backbone(phi.cpu())


@ray.remote(concurrency_groups={"control": 1, "calls": 4}, max_restarts=0)
class MetaLearner(Worker):
    """Holds the authoritative phi and the outer optimizer; a rank of the group that hosts no tasks."""

    def open_store(self) -> StoreAddress:
        """A rendezvous for torch.distributed that does not die with a learner."""
        from torch import distributed

        address = ray.util.get_node_ip_address()
        self._store = distributed.TCPStore(address, 0, is_master=True, wait_for_workers=False)
        return StoreAddress(address, self._store.port)

    @ray.method(concurrency_group="calls")
    def hand_in(self, message: Message) -> None:
        """A learner's sum in an exchange by Ray calls."""
        if self.connection is not None and isinstance(self.connection.exchange, Collector):
            self.connection.exchange.hand_in(message)

    def follow(self, meta_state: dict[str, Tensor]) -> None:
        """Take over the state of a learner's replica (where this process is no rank: one learner, or NCCL)."""
        assert self.meta is not None
        self.meta.load_state(meta_state)


def resident_bytes() -> int:
    """This process's resident memory."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
