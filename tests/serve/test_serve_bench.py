"""The proofs judge themselves rightly: what is warming up is no leak, and what leaks is. The measures run."""

from __future__ import annotations

import json

import pytest

from serve.bench.__main__ import main
from serve.bench.fuzz import answers, growth
from serve.bench.uploads import check_refused
from serve.metrics import ServiceMetrics


def memory(seconds: int, leak: float) -> list[tuple[float, float]]:
    """Twice as much after the warm-up, then so many megabytes more a minute."""
    warm = min(300.0, seconds / 4)
    return [(float(at), 100 + 100 * min(1.0, at / warm) + leak * max(0.0, at - warm) / 60) for at in range(seconds)]


@pytest.mark.parametrize("minutes", [2, 20, 60])
def test_memory_counts_from_the_end_of_the_warm_up(minutes: int) -> None:
    assert growth(memory(60 * minutes, leak=0.0)) == pytest.approx(0.0, abs=0.01)
    assert growth(memory(60 * minutes, leak=40 / minutes)) > 0.1


def test_answers_to_all_methods_of_a_route_are_counted() -> None:
    metrics = ServiceMetrics()
    for method, code, times in (("GET", 200, 3), ("POST", 200, 2), ("POST", 500, 1), ("DELETE", 500, 4)):
        metrics.requests.labels("/finetune", method, code).inc(times)
    metrics.requests.labels("/livez", "GET", 200).inc()
    assert answers(metrics.render().decode()) == {("/finetune", 200): 5, ("/finetune", 500): 5, ("/livez", 200): 1}


@pytest.mark.parametrize(
    ("status", "error"),
    [("ready", None), ("failed", "something else"), ("failed", "it is damaged\nTraceback"), ("ready", "it is damaged")],
)
def test_a_hostile_archive_must_be_refused_with_its_sentence_in_one_line(status: str, error: str | None) -> None:
    assert check_refused("cut", {"status": "failed", "error": "it is damaged"}, "damaged") == "it is damaged"
    with pytest.raises(RuntimeError, match=f"cut: {status}"):
        check_refused("cut", {"status": status, "error": error}, "damaged")


@pytest.mark.long
@pytest.mark.parametrize(
    ("command", "keys"),
    [
        (["download", "--megabytes", "2", "--rounds", "2"], ["service_mb_per_s", "sendfile_mb_per_s", "median_ratio"]),
        (["list", "--initializations", "3", "--jobs", "3", "--clients", "2", "--requests", "20"], ["memory_before_mb"]),
    ],
    ids=["download", "list"],
)
def test_measures(capsys: pytest.CaptureFixture[str], command: list[str], keys: list[str]) -> None:
    assert main(command) == 0
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert all(figures[key] > 0 for key in keys)


@pytest.mark.long
@pytest.mark.ray
def test_start(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["start", "--rounds", "2", "--dataset", "stripes"]) == 0
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert 0 < figures["first_step_s"]["median"] <= figures["heard_s"]["median"]
