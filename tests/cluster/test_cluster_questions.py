"""Which nodes are asked what before learners are built; the nodes' answers are played."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rayctsl.cluster.membership import Place
from rayctsl.cluster.preflight import Preflight
from rayctsl.config import DataConfig

Asked = list[tuple[str, list[str]]]


def played(node: str, asked: Asked) -> Any:
    """An actor that notes what its node is asked."""

    def remote(expected: Any, names: list[str], *data: Any) -> object:
        asked.append((node, names))
        return object()

    return SimpleNamespace(preflight=SimpleNamespace(remote=remote))


def test_a_node_is_asked_once_for_all_its_actors_and_again_for_what_is_new_to_it():
    asked: Asked = []
    preflight = Preflight(
        DataConfig(tasks=("cub", "svhn", "dtd"), checksums=dict.fromkeys(("cub", "svhn", "dtd"), "x"))
    )

    def check(**hosted: list[tuple[str, ...]]) -> Asked:
        asked.clear()
        hostings = [(played(node, asked), Place(node, node, 1), names) for node in hosted for names in hosted[node]]
        preflight.check(hostings, lambda calls: [[] for _ in calls])
        return list(asked)

    assert check(a=[("svhn",), ("cub",)], b=[("dtd",)]) == [("a", ["cub", "svhn"]), ("b", ["dtd"])]
    assert check(a=[("svhn",), ("cub",)], b=[("dtd",)]) == []
    assert check(a=[("svhn",), ("dtd",)], b=[("cub",)], c=[()]) == [("a", ["dtd"]), ("b", ["cub"]), ("c", [])]
    assert check(a=[("cub", "svhn", "dtd")]) == [], "it goes on knowing what it has passed"


def test_every_node_that_differs_is_named():
    preflight = Preflight(DataConfig())
    hostings = [(played(node, []), Place(node, f"10.0.0.{node}", 1), ()) for node in "123"]
    with pytest.raises(
        ValueError, match=r"^node 10\.0\.0\.1 differs .*: x; y\. And node 10\.0\.0\.3 differs .*: z\. Ins"
    ):
        preflight.check(hostings, lambda calls: [["x", "y"], [], ["z"]])
