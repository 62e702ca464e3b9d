"""What has ended and goes: jobs, models, datasets, workers' folders; aliases, logs, published models."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import update

from rayctsl.jobs.contracts import Outcome
from rayctsl.jobs.files import SPEC, attempt_folder, job_folder
from rayctsl.jobs.job import run_job
from rayctsl.jobs.log import LOG
from rayctsl.storage import Storage
from serve.bench.instance import make_dataset, make_initialization
from serve.comparisons import new_comparison
from serve.datasets import stored_name
from serve.inbox import Upload
from serve.jobs.rows import JobRow
from serve.jobs.tables import JOBS, open_database
from serve.keys import Caller
from serve.problems import HttpProblem
from serve.retention import DAY
from serve.routes.hub import _hub_time
from serve.service import Service
from serve.settings import Settings
from tests.serve.applications import opened

SECRET = "a secret of 16 or more".replace(" ", "-")
Ask = Callable[..., httpx.Response]


@pytest.fixture
def application(tmp_path: Path) -> Iterator[FastAPI]:
    make_dataset(tmp_path / "data")
    make_initialization(tmp_path / "storage")
    with opened(
        Settings(
            storage=str(tmp_path / "storage"),
            data_root=str(tmp_path / "data"),
            address="http://127.0.0.1:1",
            webhooks="any",
            keep_jobs_days=30,
            keep_models_days=10,
            keep_datasets_days=20,
        )
    ) as made:
        yield made


def finished(inside: Service, ask: Ask, steps: int = 2, **body: object) -> JobRow:
    """A job that a worker has really run, as the dispatcher would have it written down."""
    answer = ask("POST", "/finetune", json={"dataset": "stripes", "steps": steps, "batch_size": 8, **body})
    job = inside.store.get(answer.json()["id"])
    assert job is not None, answer.text
    folder = inside.storage.inside(job_folder(job.id))
    folder.write(SPEC, job.spec.to_bytes())
    outcome: Outcome = run_job(folder, 1)
    assert inside.store.change(job, status="starting", attempt=1)
    job = inside.store.get(job.id)
    assert job is not None
    now = time.time()
    inside.store.change(job, status=outcome.status, result=outcome.result, started_at=now, finished_at=now)
    return inside.store.get(job.id) or job


def grown_old(inside: Service, job: JobRow, days: float) -> None:
    with open_database(inside.settings.database_url).begin() as connection:
        connection.execute(update(JOBS).where(JOBS.c.id == job.id).values(finished_at=time.time() - days * DAY))


def test_a_job_and_its_model_are_deleted(inside: Service, ask: Ask) -> None:
    job = finished(inside, ask)
    folder = Path(inside.storage.root) / job_folder(job.id)
    assert not list(folder.rglob("checkpoint*"))
    assert ask("GET", f"/finetune/{job.id}/weights").status_code == 200
    copy = Storage(inside.settings.folder / "cache" / job.id)  # as a service with a remote storage keeps it
    copy.write("model.safetensors", b"weights")
    assert ask("DELETE", f"/finetune/{job.id}/weights").status_code == 204
    assert not Path(copy.root).exists()
    assert ask("GET", f"/finetune/{job.id}/weights").json()["type"] == "model-deleted"
    shown = ask("GET", f"/finetune/{job.id}").json()
    assert shown["result"]["weights"]["url"] is None
    assert shown["metrics"]["initialization"]
    assert not list(folder.rglob("model.safetensors"))
    assert ask("DELETE", f"/finetune/{job.id}").status_code == 204
    assert ask("GET", f"/finetune/{job.id}").status_code == 404
    assert not folder.exists()
    assert ask("DELETE", f"/finetune/{job.id}").status_code == 404


def test_what_has_not_ended_stays_and_many_go_at_once(inside: Service, ask: Ask) -> None:
    waiting = ask("POST", "/finetune", json={"dataset": "stripes", "steps": 2}).json()["id"]
    assert ask("DELETE", f"/finetune/{waiting}").json()["type"] == "job-not-ended"
    gone = [ask("POST", "/finetune", json={"dataset": "stripes", "steps": 2}).json()["id"] for _ in range(3)]
    for job in gone:
        ask("POST", f"/finetune/{job}/cancel")
    assert ask("DELETE", "/finetune?status=cancelled&days=1").json()["deleted"] == []
    assert ask("DELETE", "/finetune?status=failed").json()["deleted"] == []
    assert ask("DELETE", "/finetune?status=cancelled").json() == {"deleted": gone, "has_more": False}
    assert [job["id"] for job in ask("GET", "/finetune").json()["data"]] == [waiting]
    assert ask("DELETE", "/finetune").status_code == 422


def test_a_comparison_that_has_not_ended_is_left_whole(inside: Service, ask: Ask) -> None:
    jobs = [ask("POST", "/finetune", json={"dataset": "stripes", "steps": 2}).json()["id"] for _ in range(2)]
    ask("POST", f"/finetune/{jobs[0]}/cancel")
    made = new_comparison(None, "stripes", ("a", "b"), 1, {"a": (jobs[0],), "b": (jobs[1],)})
    inside.comparisons.save(made)
    assert ask("DELETE", f"/comparisons/{made.id}").json()["type"] == "job-not-ended"
    assert [ask("GET", f"/finetune/{job}").status_code for job in jobs] == [200, 200]
    ask("POST", f"/finetune/{jobs[1]}/cancel")
    assert ask("DELETE", f"/comparisons/{made.id}").status_code == 204
    assert [ask("GET", f"/finetune/{job}").status_code for job in jobs] == [404, 404]


def test_only_so_many_days_after_their_end_jobs_go(inside: Service, ask: Ask) -> None:
    job = ask("POST", "/finetune", json={"dataset": "stripes", "steps": 2}).json()["id"]
    ask("POST", f"/finetune/{job}/cancel")
    for days, gone in ((1.9, []), (2.1, [job])):
        row = inside.store.get(job)
        assert row is not None
        grown_old(inside, row, days)
        assert ask("DELETE", "/finetune?status=cancelled&days=2").json()["deleted"] == gone


def test_a_comparison_goes_with_the_last_of_its_jobs(inside: Service, ask: Ask) -> None:
    jobs = [ask("POST", "/finetune", json={"dataset": "stripes", "steps": 2}).json()["id"] for _ in range(2)]
    made = new_comparison(None, "stripes", ("a", "b"), 1, {"a": (jobs[0],), "b": (jobs[1],)})
    inside.comparisons.save(made)
    for job, left in ((jobs[0], 200), (jobs[1], 404)):
        ask("POST", f"/finetune/{job}/cancel")
        assert ask("DELETE", f"/finetune/{job}").status_code == 204
        inside.retention.look()
        assert ask("GET", f"/comparisons/{made.id}").status_code == left


def test_retention_takes_models_then_jobs_and_what_workers_left(inside: Service, ask: Ask, tmp_path: Path) -> None:
    job = finished(inside, ask)
    inside.retention.look()
    assert ask("GET", f"/finetune/{job.id}/weights").status_code == 200
    grown_old(inside, job, 11)
    inside.retention.look()
    assert ask("GET", f"/finetune/{job.id}/weights").status_code == 410
    grown_old(inside, job, 31)
    inside.retention.look()
    assert inside.store.get(job.id) is None
    assert not (Path(inside.storage.root) / job_folder(job.id)).exists()

    inside.store.add_slots(1)
    (slot,) = inside.store.slots()
    inside.store.set_worker(slot, 5, None)
    kept, mark = {"others-0-1", "rayctsl-00000000-0-1"}, inside.settings.service_name
    for generation in range(1, 6):
        inside.storage.write(f"workers/rayctsl-{mark}-0-{generation}/job.json", b"{}")
        kept |= {f"rayctsl-{mark}-0-{generation}"} if generation > 2 else set()
    for others in ("others-0-1", "rayctsl-00000000-0-1"):  # no worker's, and another service's in the same storage
        inside.storage.write(f"workers/{others}/job.json", b"{}")
    inside.retention.look()
    assert set(inside.storage.names("workers")) == kept


def test_own_datasets_go_when_nobody_has_used_them_for_long(inside: Service, ask: Ask) -> None:
    inside.uploads.inbox.folder.mkdir(parents=True)
    old = Upload(name="stripes", stored="stripes", status="ready", changed_at=time.time() - 21 * DAY)
    (inside.uploads.inbox.folder / "stripes.json").write_bytes(old.to_bytes())
    job = ask("POST", "/finetune", json={"dataset": "stripes", "steps": 2}).json()["id"]
    inside.retention.look()
    assert inside.uploads.inbox.find("stripes")
    ask("POST", f"/finetune/{job}/cancel")
    ask("DELETE", "/finetune?status=cancelled")
    inside.retention.look()
    assert inside.uploads.inbox.find("stripes") is None
    assert not list(Path(inside.uploads.root).glob("stripes"))


@pytest.mark.parametrize(("status", "asked"), [("queued", 25), ("succeeded", 15)])
def test_a_dataset_that_is_needed_or_was_used_stays(inside: Service, ask: Ask, status: str, asked: float) -> None:
    """A job that has waited for longer than unused datasets are kept, and one that has ended since."""
    old = Upload(name="stripes", stored="stripes", status="ready", changed_at=time.time() - 30 * DAY)
    inside.uploads.inbox.folder.mkdir(parents=True)
    (inside.uploads.inbox.folder / "stripes.json").write_bytes(old.to_bytes())
    assert ask("POST", "/finetune", json={"dataset": "stripes", "steps": 2}).status_code == 202
    with open_database(inside.settings.database_url).begin() as connection:
        connection.execute(update(JOBS).values(status=status, created_at=time.time() - asked * DAY))
    inside.retention.look()
    assert inside.uploads.inbox.find("stripes")


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


def test_a_published_model_outlives_its_job_as_a_repository(inside: Service, ask: Ask) -> None:
    job = finished(inside, ask)
    made = ask("POST", f"/finetune/{job.id}/publish", json={"name": "bands-v1"})
    assert made.status_code == 201, made.text
    for taken in ("bands-v1", ask("GET", "/initializations/latest").json()["id"]):
        assert ask("POST", f"/finetune/{job.id}/publish", json={"name": taken}).json()["type"] == "name-taken"
    ask("DELETE", f"/finetune/{job.id}")
    (shown,) = ask("GET", "/models").json()["data"]
    assert shown["card"]["class_names"] == ["top", "middle", "bottom"]
    assert (shown["card"]["id"], shown["card"]["dataset"], shown["job"]) == ("bands-v1", "stripes", job.id)
    described = ask("GET", "/api/models/rayctsl/bands-v1").json()
    assert {file["rfilename"] for file in described["siblings"]} == {"model.json", "README.md", "model.safetensors"}
    for question, found in (("", True), ("?search=BANDS", True), ("?search=Stripes", True), ("?search=cats", False)):
        assert ("rayctsl/bands-v1" in [each["id"] for each in ask("GET", f"/api/models{question}").json()]) is found
    weights = ask("GET", "/rayctsl/bands-v1/resolve/main/model.safetensors")
    assert hashlib.sha256(weights.content).hexdigest() == shown["card"]["sha256"]
    assert "pipeline_tag: image-classification" in ask("GET", "/rayctsl/bands-v1/resolve/main/README.md").text
    assert ask("GET", "/rayctsl/bands-v1/resolve/main/published.json").status_code == 404
    assert ask("DELETE", "/models/bands-v1").status_code == 204
    assert ask("GET", "/models/bands-v1").status_code == 404
    assert not (Path(inside.storage.root) / "models" / "bands-v1").exists()


def test_the_hubs_search_finds_more_than_the_first_of_all(ask: Ask, tmp_path: Path) -> None:
    make_initialization(tmp_path / "storage", 1, "reptile")
    for method in ("shifting", "reptile"):
        (found,) = ask("GET", f"/api/models?search={method}&limit=1").json()
        assert method in found["id"]


def test_the_hubs_times_are_universal() -> None:
    assert _hub_time("2026-01-01T02:30:00+02:00") == "2026-01-01T00:30:00.000Z"
    assert _hub_time("long ago") == "1970-01-01T00:00:00.000Z"


def test_a_published_card_has_the_datasets_own_name(inside: Service, ask: Ask) -> None:
    job = finished(inside, ask)
    source = inside.storage.inside(job_folder(job.id)).inside(attempt_folder(1))
    made = inside.models.publish("bands-v1", "mine", job.id, source, "holiday")
    assert (made.card.id, made.card.dataset) == ("bands-v1", "holiday")
    assert inside.models.find("bands-v1") == made
    assert "`holiday`" in inside.storage.read("models/bands-v1/README.md").decode()


@pytest.mark.parametrize("path", ["/models", "/api/models", "/models/going", "/api/models/rayctsl/going"])
def test_a_model_that_is_deleted_while_it_is_read_is_left_out(
    path: str, inside: Service, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, read = finished(inside, ask), Storage.read
    for name in ("going", "staying"):
        assert ask("POST", f"/finetune/{job.id}/publish", json={"name": name}).status_code == 201

    def read_late(storage: Storage, name: str) -> bytes:
        content = read(storage, name)
        if name == "published.json" and storage.root.endswith("going"):
            inside.models.delete("going")
        return content

    monkeypatch.setattr(Storage, "read", read_late)
    answer = ask("GET", path)
    if path.endswith("going"):
        assert answer.status_code == 404
    else:
        assert answer.status_code == 200
        assert "staying" in answer.text
        assert "going" not in answer.text


def test_a_job_without_a_model_is_not_published(inside: Service, ask: Ask) -> None:
    waiting = ask("POST", "/finetune", json={"dataset": "stripes", "steps": 2}).json()["id"]
    assert ask("POST", f"/finetune/{waiting}/publish", json={"name": "x"}).json()["type"] == "no-weights"
    assert ask("POST", f"/finetune/{waiting}/publish", json={"name": "../x"}).status_code == 422
