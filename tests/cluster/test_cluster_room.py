"""Whether a cluster has room for what must lie on one node each."""

from __future__ import annotations

import pytest

from rayctsl.cluster import room


@pytest.mark.parametrize(
    ("bundles", "nodes", "missing"),
    [
        ([{"CPU": 1.0}] * 2, [{"CPU": 2.0}], {}),
        ([{"CPU": 1.0}] * 3, [{"CPU": 2.0}], {"CPU": 1.0}),
        ([{"CPU": 2.0}] * 2, [{"CPU": 3.0}, {"CPU": 1.0}], {"CPU": 2.0}),  # enough in all, but not in one place
        ([{"CPU": 1.0}, {"CPU": 2.0}], [{"CPU": 2.0}, {"CPU": 1.0}], {}),  # the large one first, or it finds no place
        ([{"GPU": 0.5}, {"CPU": 1.0, "GPU": 0.5}], [{"CPU": 4.0, "GPU": 1.0}], {}),
        ([{"CPU": 1.0, "GPU": 1.0}], [{"CPU": 4.0}], {"CPU": 1.0, "GPU": 1.0}),
    ],
)
def test_what_is_missing_to_place_every_bundle_on_one_node(bundles, nodes, missing):
    assert room.shortfall(bundles, nodes) == missing


def test_nodes_that_have_died_are_no_room(monkeypatch):
    nodes = [{"Alive": True, "Resources": {"CPU": 1.0}}, {"Alive": False, "Resources": {"CPU": 8.0}}]
    monkeypatch.setattr(room.ray, "nodes", lambda: nodes)
    monkeypatch.setattr(room.ray, "cluster_resources", lambda: {"CPU": 1.0})
    room.check_room([{"CPU": 1.0}], "one trial")
    with pytest.raises(ValueError, match="too small for one trial: 2 CPU asked for, 1 in the cluster, 2 missing"):
        room.check_room([{"CPU": 2.0}], "one trial")
