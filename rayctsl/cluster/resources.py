"""Connecting to Ray, and reserving what a run needs in one placement group, or saying at once what is missing."""

from __future__ import annotations

import logging
import os
import socket
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import ray
from ray._private import services
from ray._private.authentication.authentication_token_setup import maybe_enable_token_auth_if_token_available
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group

from rayctsl.config import TopologyConfig
from rayctsl.progress import say
from rayctsl.signals import stop_if_asked, term_as_interrupt

PLACEMENT_SECONDS = 20.0  # Ray takes a moment to place even what fits


@contextmanager
def connected(address: str | None) -> Iterator[None]:
    """Join a running cluster (`auto`, `ray://…`, `host:port`) or start one here (None, `local`) for a while."""
    if ray.is_initialized():
        yield
        return
    # Ray lowers its workers' priority by default; here they do the main work of the machine.
    os.environ.setdefault("RAY_worker_niceness", "0")
    # The actors' methods run in threads, whose memory the C library keeps apart in stretches of 64 MB: one big tensor
    # each, all at the same offset, and a step is some 4 % slower. With one arena it lies as in a plain program.
    os.environ.setdefault("MALLOC_ARENA_MAX", "1")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # After a fault nobody asks for the survivors' results; what went wrong is said once, by us.
    os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")
    # That it has made a token for its own cluster is nothing that a user has to know.
    logging.getLogger("ray._private.authentication.authentication_token_setup").setLevel(logging.ERROR)
    options: dict[str, Any] = {"logging_level": logging.WARNING, "log_to_driver": True}
    try:
        if address in (None, "local"):
            say("starting Ray on this machine")
            with _own_process_groups():
                ray.init(address="local", include_dashboard=False, **options)
        else:
            assert address is not None
            say(f"joining the Ray cluster at {address}" if address != "auto" else "joining the running Ray cluster")
            _find_token()
            _check_listening(address)
            ray.init(address=address, **options)
    except (ConnectionError, OSError) as error:
        if "InvalidAuthToken" in f"{error} {error.__cause__}":
            where = "RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH or ~/.ray/auth_token"
            raise ValueError(
                f"the Ray cluster at {address!r} wants its token: set RAY_AUTH_MODE=token ({where})"
            ) from None
        hint = "start one with 'ray start --head', or leave out --address"
        raise ValueError(f"no Ray cluster answers at {address!r} ({_first_line(error)}); {hint}") from None
    try:
        stop_if_asked()
        with term_as_interrupt():  # in place of Ray's handler, which ends the process where it is, with a stack
            yield
    finally:
        ray.shutdown()


@contextmanager
def _own_process_groups() -> Iterator[None]:
    """Inside, Ray's processes are born into process groups of their own.

    A signal to the command's group, as batch systems and `timeout` send it, is then for the command alone, which stops
    its cluster cleanly. Ray ties the cluster's life to this process by other means.
    """
    usual = services.ConsolePopen
    services.ConsolePopen = partial(usual, process_group=0)
    try:
        yield
    finally:
        services.ConsolePopen = usual


def _find_token() -> None:
    """A cluster of this user wants the token that Ray keeps in the home folder; one without tokens ignores it.

    RAY_AUTH_MODE in the environment would not do: Ray reads its settings once, and may have read them already.
    """
    maybe_enable_token_auth_if_token_available(warn_if_disabled=False)


def _check_listening(address: str) -> None:
    """Find out in seconds that nobody listens there; Ray itself keeps trying for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host, int(port)), timeout=5).close()


def choose_num_learners(topology: TopologyConfig, num_tasks: int) -> int:
    """The config's number, or as many learners as the cluster's nodes can run at once."""
    if topology.workers is not None:
        if topology.workers > num_tasks:
            raise ValueError(f"{topology.workers} workers for {num_tasks} tasks: at least one would be idle")
        # Where GPUs are handed out by themselves, `workers` is a maximum: who gets none hosts no tasks.
        chooses = topology.gpus_per_learner == "auto" and gpus_of(topology) > 0
        return max(1, min(topology.workers, count_room(topology))) if chooses else topology.workers
    return max(1, min(num_tasks, count_room(topology)))


def count_room(topology: TopologyConfig) -> int:
    """How many learners the living nodes can hold, were nothing else on them."""
    learner = bundles_of(topology, 1)[0]
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return sum(min(how_many(name, node.get(name, 0), each) for name, each in learner.items()) for node in nodes)


def how_many(name: str, total: float, each: float) -> int:
    """How often a share fits into a node's total; one GPU has to hold the whole of a fraction."""
    if name == "GPU" and each < 1:
        return int(total) * int(1 / each + 1e-6)
    return int(total / each + 1e-6)


def gpus_of(topology: TopologyConfig) -> float:
    """GPUs of each learner: the config's number, or one where the cluster has any."""
    if topology.gpus_per_learner == "auto":
        return float(ray.cluster_resources().get("GPU", 0) >= 1)
    return topology.gpus_per_learner


def bundles_of(topology: TopologyConfig, num_learners: int) -> list[dict[str, float]]:
    """What a run reserves: a bundle per learner, and one for the meta-learner if it asks for anything of its own."""
    wanted = {"CPU": topology.cpus_per_learner, "GPU": gpus_of(topology)}
    learner = {name: amount for name, amount in wanted.items() if amount > 0} or {"CPU": 0.001}
    return [learner] * num_learners + [dict(topology.meta_resources)] * bool(topology.meta_resources)


def sum_bundles(bundles: Iterable[Mapping[str, float]]) -> dict[str, float]:
    total: Counter[str] = Counter()
    for bundle in bundles:
        total.update(bundle)
    return dict(total)


def reserve(topology: TopologyConfig, most: int, least: int) -> tuple[PlacementGroup, int]:
    """Bundles for `most` learners, or after `wait_seconds` for as many as there is room for; and for how many.

    On as few nodes as possible. A cluster that has no room for `least` is refused.
    """
    if group := _place(topology, most, topology.wait_seconds):
        return group, most
    for count in range(min(most - 1, count_room(topology)), least - 1, -1):
        if group := _place(topology, count):
            return group, count
    asked, total, free = sum_bundles(bundles_of(topology, least)), ray.cluster_resources(), ray.available_resources()
    shortfall = ", ".join(
        f"{amount:g} {name} asked for, {free.get(name, 0):g} free of {total.get(name, 0):g}"
        for name, amount in asked.items()
    )
    raise ValueError(f"the cluster is too small for {least} learners: {shortfall}")


def _place(topology: TopologyConfig, count: int, wait_seconds: float = 0.0) -> PlacementGroup | None:
    bundles, total = bundles_of(topology, count), ray.cluster_resources()
    fits = all(total.get(name, 0) + 1e-6 >= amount for name, amount in sum_bundles(bundles).items())
    if not fits and not wait_seconds:
        return None
    group = placement_group(bundles, strategy="PACK")
    if group.wait(timeout_seconds=max(wait_seconds, PLACEMENT_SECONDS)):
        return group
    remove_placement_group(group)
    return None


def wish_for(topology: TopologyConfig, count: int) -> PlacementGroup:
    """Room for more learners, whenever there is some; an autoscaler sees it too."""
    return placement_group(bundles_of(topology.model_copy(update={"meta_resources": {}}), count), strategy="PACK")


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
