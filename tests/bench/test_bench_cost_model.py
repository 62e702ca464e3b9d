"""The planner's arithmetic against numbers worked out by hand."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace

import pytest

from rayctsl.bench.cost_model import Cluster, PlannedWork, exchange_seconds, predict, ring_seconds, tree_seconds
from rayctsl.bench.plan import cluster_of

JOB = PlannedWork({"a": 0.4, "b": 0.3, "c": 0.2, "d": 0.1}, floats=999_999, inner_steps=100, trajectories=36)
SIZE = 8e6  # bytes of JOB's vector and its count


def test_a_ring_sends_a_share_to_the_neighbour_twice_around():
    assert ring_seconds(SIZE, 1, 1e6, 1.0) == 0
    assert ring_seconds(SIZE, 4, 1e6, 0.5) == pytest.approx(6 * (0.5 + 2.0))


def test_a_tree_has_fewer_messages_but_longer_ones():
    assert tree_seconds(SIZE, 1000, 1e6, 0.5) == pytest.approx(2 * 10 * 0.5 + 16)
    assert ring_seconds(SIZE, 1000, 1e6, 0.5) > tree_seconds(SIZE, 1000, 1e6, 0.5)
    assert ring_seconds(SIZE, 1000, 1e6, 0.0) < tree_seconds(SIZE, 1000, 1e6, 0.0)


def test_one_learner_exchanges_nothing():
    seen = predict(JOB, Cluster(1, 1, 1e6, 1.0))
    assert seen.exchange_s == 0
    assert seen.steps_per_s == pytest.approx(1.0)
    assert seen.hours == pytest.approx(1.0)
    assert seen.utilisation == pytest.approx(1.0)
    assert seen.bytes_between_nodes == 0


def test_learners_of_one_node_use_its_memory_and_no_link():
    cluster = Cluster(2, 2, bandwidth=1.0, latency=100.0, memory_bandwidth=1e9, meet_seconds=0.01)
    assert exchange_seconds(JOB.floats, cluster) == pytest.approx(0.01 + 8 * SIZE / 1e9)
    seen = predict(JOB, cluster)
    assert seen.compute_s == pytest.approx(0.5)
    assert seen.bytes_per_step == 0
    roomy = replace(cluster, workers_per_node=8)
    assert exchange_seconds(JOB.floats, roomy) == exchange_seconds(JOB.floats, cluster), "an empty seat writes nothing"


def test_nodes_all_reduce_once_each_whatever_they_host():
    cluster = Cluster(4, 2, bandwidth=1e8, latency=0.001, memory_bandwidth=float("inf"))
    assert cluster.nodes == 2
    seen = predict(JOB, cluster)
    assert seen.exchange_s == pytest.approx(2 * (0.001 + SIZE / 2 / 1e8))
    assert seen.steps_per_s == pytest.approx(1 / (0.4 + 0.082))
    assert seen.bytes_per_step == pytest.approx(SIZE)
    assert seen.bytes_between_nodes == pytest.approx(2 * SIZE * 3600)


def test_gpus_use_the_slowest_link_there_is():
    inside = Cluster(4, 4, 1e6, 0.0, direct=True, inner_bandwidth=1e9)
    across = Cluster(4, 2, 1e6, 0.0, direct=True, inner_bandwidth=1e9)
    assert exchange_seconds(JOB.floats, inside) == pytest.approx(6 / 4 * SIZE / 1e9)
    assert exchange_seconds(JOB.floats, across) == pytest.approx(6 / 4 * SIZE / 1e6)
    assert predict(JOB, inside).bytes_between_nodes == 0
    assert predict(JOB, across).bytes_between_nodes == pytest.approx(2 * 6 / 4 * SIZE * 3600)  # two links


@pytest.mark.parametrize(("bandwidth", "step"), [(1e8, 0.4), (1e6, 8.0)])
def test_a_late_shift_hides_the_shorter_of_work_and_exchange(bandwidth: float, step: float):
    late = PlannedWork(JOB.costs, JOB.floats, 100, 36, shift_delay=1)
    cluster = Cluster(4, 2, bandwidth, 0.0, memory_bandwidth=float("inf"))
    assert predict(late, cluster).steps_per_s == pytest.approx(1 / step)


def test_rare_updates_share_their_cost_among_the_steps():
    rare = PlannedWork(JOB.costs, JOB.floats, 100, 36, steps_per_update=10)
    cluster = Cluster(4, 2, 1e8, 0.0, memory_bandwidth=float("inf"), touch_seconds=1e-8)
    assert predict(rare, cluster).steps_per_s == pytest.approx(1 / (0.4 + 0.001 + 0.008), rel=1e-4)


def test_every_hosted_task_is_touched_by_an_update():
    cluster = Cluster(2, 2, 1.0, 0.0, touch_seconds=0.1 / JOB.floats)
    assert predict(JOB, cluster, [["a"], ["b", "c", "d"]]).compute_s == pytest.approx(0.6 + 3 * 0.1)


def test_memory_counts_every_hosted_task_and_the_largest_activations():
    job = PlannedWork(JOB.costs, JOB.floats, 100, 36, task_bytes={"a": 1e9, "b": 5e8, "c": 1e8, "d": 1e8})
    seen = predict(job, Cluster(2, 2, 1.0, 0.0, base_bytes=1e8), [["a", "d"], ["b", "c"]])
    assert seen.learner_bytes == pytest.approx(1e8 + (3 * 2 + 4) * 4 * 999_999 + 1e9)


def test_links_are_asked_for_in_bits_and_reckoned_in_bytes():
    asked = Namespace(gpus=8, latency_us=20.0, node_gigabytes=300.0)
    cluster = cluster_of(64, 100.0, JOB.floats, asked)
    assert (cluster.bandwidth, cluster.inner_bandwidth, cluster.latency) == pytest.approx((12.5e9, 3e11, 2e-5))
    assert cluster.nodes == 8


def test_more_learners_than_tasks_are_refused():
    with pytest.raises(ValueError, match="5 learners for 4 tasks"):
        predict(JOB, Cluster(5, 5, 1.0, 0.0))
