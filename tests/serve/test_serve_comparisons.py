"""Comparisons over HTTP: the jobs that they make, all or none, and the leaderboard that grows from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import event

from rayctsl.storage import Storage
from serve.bench.instance import Instance
from serve.comparisons import leaderboard, new_comparison
from serve.keys import Caller
from serve.settings import Settings
from tests.serve.applications import opened


@pytest.fixture(scope="module")
def client(waiting_service: Instance):
    with httpx.Client(base_url=waiting_service.url, timeout=60.0, trust_env=False) as http:
        yield http


def row(accuracy: float | None, scratch: float | None = None) -> SimpleNamespace:
    result = None if accuracy is None else SimpleNamespace(accuracy=accuracy, scratch_accuracy=scratch)
    return SimpleNamespace(result=result)


def test_the_leaderboard_compares_seeds_that_all_have_finished():
    rows = {"late": [row(0.4), None, row(None)], "good": [row(0.8), row(0.9), row(0.7)], "none yet": [row(None)] * 3}
    first, second, third = leaderboard(rows)  # type: ignore[arg-type]
    assert (first.initialization, first.accuracy, first.finished) == ("good", 0.8, 3)
    assert (second.initialization, second.accuracy, second.behind, second.finished) == ("late", 0.4, 0.4, 1)
    assert second.interval is None
    assert (third.initialization, third.accuracy) == ("none yet", None)


def test_pairs_of_seeds_give_the_interval():
    first, second = leaderboard({"a": [row(0.5), row(0.8)], "b": [row(0.4), row(0.7)]})  # type: ignore[arg-type]
    assert (first.initialization, second.behind, second.behind_interval) == ("a", pytest.approx(0.1), pytest.approx(0))


def test_random_weights_have_a_place_of_their_own():
    first, second = leaderboard({"a": [row(0.5, 0.3), row(0.8, 0.5)]})  # type: ignore[arg-type]
    assert (first.initialization, second.initialization) == ("a", "from scratch")
    assert (second.accuracy, second.behind, second.finished) == (0.4, 0.25, 2)


def test_asked_for_looked_at_and_cancelled(client):
    ids = [card["id"] for card in client.get("/initializations").json()["data"]][:2]
    body = {"dataset": "stripes", "initializations": [*ids, ids[0]], "seeds": 2, "steps": 5, "alpha": 0.03}
    answer = client.post("/comparisons", json=body)
    assert answer.status_code == 202, answer.text
    made = client.get(answer.headers["location"]).json()
    assert made["status"] == "running"
    assert {name: [job["seed"] for job in jobs] for name, jobs in made["jobs"].items()} == {
        each: [0, 1] for each in ids
    }
    recipes = [(job["config"]["steps"], job["config"]["alpha"]) for jobs in made["jobs"].values() for job in jobs]
    assert recipes == [(5, 0.03)] * 4
    scratch = {name: [job["compare_with_scratch"] for job in jobs] for name, jobs in made["jobs"].items()}
    assert scratch == {ids[0]: [True, True], ids[1]: [False, False]}  # once a seed is enough
    assert [place["accuracy"] for place in made["leaderboard"]] == [None, None]
    assert made["id"] in [each["id"] for each in client.get("/comparisons").json()]
    ended = client.post(f"{answer.headers['location']}/cancel").json()
    assert ended["status"] == "ended"
    assert {job["status"] for jobs in ended["jobs"].values() for job in jobs} == {"cancelled"}


def test_all_jobs_or_none(client):
    ids = [card["id"] for card in client.get("/initializations").json()["data"]][:3]
    before = len(client.get("/finetune").json()["data"])
    full = client.post("/comparisons", json={"dataset": "stripes", "initializations": ids, "seeds": 2, "steps": 5})
    assert (full.status_code, full.json()["type"]) == (409, "too-many-jobs")  # six jobs, and five may wait
    assert len(client.get("/finetune").json()["data"]) == before
    most = {"dataset": "stripes", "initializations": ids, "seeds": 20}
    assert "5 jobs may wait here" in client.post("/comparisons", json=most).text  # it may have sixty
    more = {"dataset": "stripes", "initializations": [*ids, "nothing"], "seeds": 16}
    assert "A comparison may have 60 jobs" in client.post("/comparisons", json=more).text
    unknown = {"dataset": "stripes", "initializations": [ids[0], "nothing"], "seeds": 2}
    assert client.post("/comparisons", json=unknown).status_code == 404
    assert len(client.get("/finetune").json()["data"]) == before
    assert client.post("/comparisons", json={"dataset": "stripes", "initializations": ids[:1]}).status_code == 422
    assert client.get("/comparisons/cmp-0123456789abcdef").status_code == 404


@pytest.fixture
def application(tmp_path: Path) -> Iterator[FastAPI]:
    with opened(Settings(storage=str(tmp_path), address="http://127.0.0.1:1")) as made:
        yield made


def test_everyone_sees_their_own(application: FastAPI, ask: Callable[..., httpx.Response]) -> None:
    service = application.state.service
    keys = {name: service.keys.add(Caller(name, ("read",))) for name in ("mine", "yours")}
    made = {name: new_comparison(name, "stripes", ("a", "b"), 1, {"a": (), "b": ()}) for name in keys}
    for each in made.values():
        service.comparisons.save(each)
    for name, key in keys.items():
        assert [each["id"] for each in ask("GET", "/comparisons", key).json()] == [made[name].id]
        codes = {other: ask("GET", f"/comparisons/{made[other].id}", key).status_code for other in keys}
        assert codes == {other: 200 if other == name else 404 for other in keys}


def test_a_page_of_many_costs_one_question_and_reads_each_document_once(
    application: FastAPI, ask: Callable[..., httpx.Response], monkeypatch: pytest.MonkeyPatch
) -> None:
    service = application.state.service
    jobs = {name: tuple(f"ft-{number:016x}" for number in range(3)) for name in ("a", "b")}
    for number in range(130):
        made = new_comparison(None, "stripes", ("a", "b"), 3, jobs)
        service.comparisons.save(made.changed(created_at=float(number)))
    questions, reads, read = list[str](), list[str](), Storage.read
    event.listen(service.store._engine, "before_cursor_execute", lambda *call: questions.append(call[2]))
    monkeypatch.setattr(Storage, "read", lambda self, name: (reads.append(name), read(self, name))[1])

    assert len(ask("GET", "/comparisons").json()) == 20
    questions.clear()
    reads.clear()
    first = ask("GET", "/comparisons?limit=100").json()
    rest = ask("GET", f"/comparisons?limit=100&after={first[-1]['id']}").json()
    assert [each["created_at"] for each in first + rest] == [float(number) for number in reversed(range(130))]
    assert (len([each for each in questions if each.startswith("SELECT")]), reads) == (2, [])
    assert ask("GET", "/comparisons?limit=101").status_code == 422
    assert ask("GET", "/comparisons?after=cmp-0123456789abcdef").status_code == 404
    assert ask("DELETE", f"/comparisons/{first[0]['id']}").status_code == 204
    assert ask("GET", "/comparisons?limit=1").json()[0]["id"] == first[1]["id"]
