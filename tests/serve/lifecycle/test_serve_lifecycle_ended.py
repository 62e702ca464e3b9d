"""What a job that has ended shows: results, its log and events, what has come of it under other names."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from sqlalchemy import update

from rayctsl.jobs.files import SPEC, attempt_folder, job_folder
from rayctsl.jobs.job import run_job
from rayctsl.jobs.log import LOG
from serve.bench.instance import make_initialization
from serve.comparisons import new_comparison
from serve.datasets import stored_name
from serve.jobs.tables import JOBS, open_database
from serve.keys import Caller
from serve.problems import HttpProblem
from serve.service import Service
from tests.serve.lifecycle.ended_jobs import Ask, finished


def test_a_job_that_has_ended_is_not_predicted_any_more(inside: Service, ask: Ask) -> None:
    ended = finished(inside, ask)
    inside.forecast._looked = float("-inf")
    waiting = ask("POST", "/finetune", json={"dataset": "stripes", "steps": 2}).json()["id"]
    assert ask("GET", f"/finetune/{waiting}").json()["predicted_seconds"] > 0
    assert ask("GET", f"/finetune/{ended.id}").json()["predicted_seconds"] is None


def test_v1_answers_with_v1_paths(inside: Service, ask: Ask, tmp_path: Path) -> None:
    make_initialization(tmp_path / "storage", 1, "reptile")
    names = [card["id"] for card in ask("GET", "/initializations").json()["data"]]
    asked = {"dataset": "stripes", "initializations": names, "seeds": 1, "steps": 2}
    job = finished(inside, ask)
    piece = {"content-range": "bytes 0-0/9"}
    made = [
        ask("POST", "/v1/comparisons", json=asked),
        ask("POST", f"/v1/finetune/{job.id}/publish", json={"name": "bands"}),
        ask("POST", "/v1/datasets?name=new", content=b"x", headers=piece),
    ]
    places = [answer.headers["location"] for answer in made]
    assert places == [f"/v1/comparisons/{made[0].json()['id']}", "/v1/models/bands", "/v1/datasets/new"]
    compared = new_comparison(None, "stripes", ("a",), 1, {"a": (job.id,)})
    inside.comparisons.save(compared)
    (shown,) = ask("GET", f"/v1/comparisons/{compared.id}").json()["jobs"]["a"]
    assert shown["result"]["weights"]["url"] == f"/v1/finetune/{job.id}/weights"


def test_latest_and_best(inside: Service, ask: Ask) -> None:
    assert ask("GET", "/finetune/latest").status_code == 404
    jobs = [finished(inside, ask, seed=seed) for seed in (0, 1)]
    with open_database(inside.settings.database_url).begin() as connection:
        for job, accuracy in zip(jobs, (0.9, 0.4), strict=True):
            assert job.result
            changed = {**job.result.model_dump(mode="json"), "accuracy": accuracy}
            connection.execute(update(JOBS).where(JOBS.c.id == job.id).values(result=changed))
    first, last = (job.id for job in jobs)
    assert ask("GET", "/finetune/latest").json()["id"] == last
    assert ask("GET", "/finetune/latest@stripes").json()["id"] == last
    assert ask("GET", "/finetune/best@stripes").json()["id"] == first
    assert ask("GET", "/finetune/best@digits").status_code == 404
    assert ask("GET", "/finetune/best").status_code == 422
    assert ask("GET", "/finetune/best@stripes/weights").headers["etag"] == f'"{jobs[0].result.weights.sha256}"'  # type: ignore[union-attr]
    ask("DELETE", f"/finetune/{first}/weights")
    assert ask("GET", "/finetune/best@stripes").json()["id"] == last
    newest = ask("GET", "/initializations/latest").json()["id"]
    for name in ("latest", "best"):
        made = ask("POST", "/finetune", json={"dataset": "stripes", "steps": 2, "initialization": name}).json()
        assert made["initialization"]["id"] == newest


def test_latest_is_nobody_elses_private_job(inside: Service, ask: Ask) -> None:
    job = finished(inside, ask)
    with open_database(inside.settings.database_url).begin() as connection:
        spec = job.spec.changed(dataset=stored_name("flowers", "mine")).to_json()
        connection.execute(update(JOBS).where(JOBS.c.id == job.id).values(spec=spec, owner="mine"))
    mine, yours = (inside.keys.add(Caller(name, ("read",))) for name in ("mine", "yours"))
    assert ask("GET", "/finetune/latest", mine).json()["id"] == job.id
    assert ask("GET", "/finetune/latest", yours).status_code == 404


def test_of_many_images_the_one_that_is_too_large_says_so(
    inside: Service, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = finished(inside, ask)

    async def classify(root: Path, name: str, sha256: str, content: bytes) -> list[tuple[str, float]]:
        if content == b"fine":
            return [("top", 1.0)]
        raise HttpProblem(int(content), "refused")

    monkeypatch.setattr(inside.predictor, "classify", classify)

    def send(*contents: bytes) -> httpx.Response:
        files = [("image", (f"{number}.png", content)) for number, content in enumerate(contents)]
        return ask("POST", f"/finetune/{job.id}/predictions", files=files)

    rows = send(b"413", b"fine", b"422").json()["data"]
    assert [(row["name"], row["error"], len(row["classes"])) for row in rows] == [
        ("0.png", "refused", 0),
        ("1.png", None, 1),
        ("2.png", "refused", 0),
    ]
    assert send(b"fine", b"503").status_code == 503, "what holds for all of them is told at once"


def test_the_log_and_the_events_as_json(inside: Service, ask: Ask) -> None:
    job = finished(inside, ask)
    log = ask("GET", f"/finetune/{job.id}/log")
    assert log.headers["content-type"].startswith("text/plain")
    assert "attempt 1 begins on cpu" in log.text
    assert "step 2: loss" in log.text
    assert log.text.rstrip().endswith("it has succeeded")
    events = ask("GET", f"/finetune/{job.id}/events", headers={"accept": "application/json"}).json()["data"]
    assert [event["type"] for event in events] == ["started", "point"]


def test_the_log_is_that_of_all_attempts(inside: Service, ask: Ask) -> None:
    job = finished(inside, ask)
    folder = inside.storage.inside(job_folder(job.id))
    for number in (1, 2):
        folder.write(f"{attempt_folder(number)}/{LOG}", f"attempt {number}\n".encode())
    with open_database(inside.settings.database_url).begin() as connection:
        connection.execute(update(JOBS).where(JOBS.c.id == job.id).values(attempt=2))
    assert ask("GET", f"/finetune/{job.id}/log").text == "attempt 1\nattempt 2\n"


def test_who_has_seen_all_but_the_end_is_told_of_the_end(inside: Service, ask: Ask) -> None:
    job = finished(inside, ask)
    points = len(ask("GET", f"/finetune/{job.id}/events", headers={"accept": "application/json"}).json()["data"])
    rest = ask("GET", f"/finetune/{job.id}/events", headers={"last-event-id": str(points)})
    assert (rest.status_code, "event: end" in rest.text, "event: point" in rest.text) == (200, True, False)
    seen = ask("GET", f"/finetune/{job.id}/events", headers={"last-event-id": str(points + 1)})
    assert seen.status_code == 204


def test_the_log_of_a_failure_has_the_reason_but_no_paths(inside: Service, ask: Ask, tmp_path: Path) -> None:
    answer = ask("POST", "/finetune", json={"dataset": "stripes", "steps": 2})
    job = inside.store.get(answer.json()["id"])
    assert job is not None
    folder = inside.storage.inside(job_folder(job.id))
    missing = job.spec.changed(dataset="nothing")
    folder.write(SPEC, missing.to_bytes())
    assert run_job(folder, 1).status == "failed"
    inside.store.change(job, status="failed", attempt=1)
    log = ask("GET", f"/finetune/{job.id}/log").text
    assert "Traceback" in log
    assert "it has failed: " in log
    assert str(tmp_path) not in log
