"""Actors that live on from engine to engine: an actor's process imports torch for seconds, which a test need not wait.

Engines get these in place of new ones, made anew inside (`__init__` is run again), and give them back in place of
killing them when they are done. Placement groups are reserved and released as ever. Whom an engine kills on the way is
really killed, and a dead actor is never lent again: tests of faults pay for what they lose. Whole commands do without.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

ANSWER_SECONDS = 20.0  # for an actor to leave its last group


class Pool:
    """Idle actors by class; every actor that an engine asks for comes from here."""

    def __init__(self, num_gpus: float = 0) -> None:
        """
        Args:
            num_gpus: of every learner; a sliver is enough for it to compute on an accelerator.
        """
        import ray

        self.num_gpus = num_gpus
        self.idle: dict[str, list[tuple[Any, Any]]] = {}  # actors, each with its answers to having been called back
        self.lent: dict[Any, tuple[str, Any]] = {}  # class and actor by its id
        self.kill = ray.kill

    def lend(self, kind: Any, name: str, *arguments: Any, **options: Any) -> Any:
        actor = self._idle_actor(name)
        if actor is not None:
            actor.__ray_call__.remote(_begin_again, arguments, options)
        else:
            num_gpus = self.num_gpus if name == "TaskLearner" else 0
            actor = kind.options(num_cpus=0, num_gpus=num_gpus).remote(*arguments, **options)
        self.lent[actor._actor_id] = name, actor
        return actor

    def _idle_actor(self, name: str) -> Any:
        """One that has left its last group, or None."""
        import ray
        from ray.exceptions import RayError

        while self.idle.get(name):
            actor, left = self.idle[name].pop()
            try:
                # Asked anew too: meanwhile it may have gone with its node.
                ray.get([*left, actor.__ray_call__.remote(_leave)], timeout=ANSWER_SECONDS)
            except RayError:  # it died, or does not answer
                self.kill(actor)
            else:
                return actor
        return None

    def take_back(self, actor: Any) -> None:
        name, _ = self.lent.pop(actor._actor_id, (None, None))
        if name is None:
            self.kill(actor)
        else:
            woken = actor.abort.remote()  # it may wait for a peer that is gone
            self.idle.setdefault(name, []).append((actor, [woken, actor.__ray_call__.remote(_leave)]))

    def take_all_back(self) -> None:
        for _, actor in list(self.lent.values()):
            self.take_back(actor)

    def close(self) -> None:
        for actors in self.idle.values():
            for actor, _ in actors:
                self.kill(actor)


class Kind:
    """Stands where an actor class stood."""

    def __init__(self, pool: Pool, kind: Any, name: str):
        self.pool, self.kind, self.name = pool, kind, name

    def options(self, **placement: Any) -> Kind:
        return self

    def remote(self, *arguments: Any, **options: Any) -> Any:
        return self.pool.lend(self.kind, self.name, *arguments, **options)


def _begin_again(worker: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
    worker.__init__(*arguments, **options)


def _leave(worker: Any) -> None:
    worker.leave()


@pytest.fixture(scope="session")
def actor_pool(ray_cluster: str) -> Iterator[Pool]:
    pool = Pool()
    yield pool
    pool.close()


def keep_actors(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let engines take their actors from a pool."""
    import ray

    from rayctsl.cluster import team

    for name in ("TaskLearner", "MetaLearner"):
        monkeypatch.setattr(team, name, Kind(pool, getattr(team, name), name))
    release = team.Team.release

    def release_to_pool(self: team.Team) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(ray, "kill", pool.take_back)
            release(self)

    monkeypatch.setattr(team.Team, "release", release_to_pool)


@pytest.fixture
def kept_actors(actor_pool: Pool, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Engines of this test use actors that outlive it."""
    keep_actors(actor_pool, monkeypatch)
    yield
    actor_pool.take_all_back()
