"""Actors that live on from engine to engine: an actor's process imports torch for seconds, which a test need not wait.

Engines get these in place of new ones, made anew inside (`__init__` is run again), and give them back in place of
killing them. Placement groups are reserved and released as ever. Tests of faults and of whole commands do without.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


class Pool:
    """Idle actors by class; every actor that an engine asks for comes from here."""

    def __init__(self, num_gpus: float = 0) -> None:
        """
        Args:
            num_gpus: of every learner; a sliver is enough for it to compute on an accelerator.
        """
        import ray

        self.num_gpus = num_gpus
        self.idle: dict[str, list[Any]] = {}
        self.lent: dict[Any, str] = {}
        self.kill = ray.kill

    def lend(self, kind: Any, name: str, *arguments: Any, **options: Any) -> Any:
        if self.idle.get(name):
            actor = self.idle[name].pop()
            actor.__ray_call__.remote(_begin_again, arguments, options)
        else:
            num_gpus = self.num_gpus if name == "TaskLearner" else 0
            actor = kind.options(num_cpus=0, num_gpus=num_gpus).remote(*arguments, **options)
        self.lent[actor._actor_id] = name
        return actor

    def take_back(self, actor: Any) -> None:
        name = self.lent.pop(actor._actor_id, None)
        if name is None:
            self.kill(actor)
        else:
            actor.__ray_call__.remote(_leave)
            self.idle.setdefault(name, []).append(actor)

    def close(self) -> None:
        for actors in self.idle.values():
            for actor in actors:
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
    monkeypatch.setattr(ray, "kill", pool.take_back)


@pytest.fixture
def kept_actors(actor_pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines of this test use actors that outlive it."""
    keep_actors(actor_pool, monkeypatch)
