"""What has ended and goes: jobs, models, comparisons, datasets, workers' folders."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from sqlalchemy import update

from rayctsl.jobs.files import CHECKPOINT, attempt_folder, job_folder
from rayctsl.storage import Storage
from serve.comparisons import new_comparison
from serve.inbox import Upload
from serve.jobs.rows import JobRow
from serve.jobs.tables import JOBS, open_database
from serve.retention import DAY
from serve.routes import removal
from serve.service import Service
from tests.serve.lifecycle.ended_jobs import Ask, finished, grown_old


def test_a_job_and_its_model_are_deleted(inside: Service, ask: Ask) -> None:
    job = finished(inside, ask)
    folder = Path(inside.storage.root) / job_folder(job.id)
    assert not list(folder.rglob("checkpoint*"))
    assert ask("GET", f"/finetune/{job.id}/weights").status_code == 200
    copy = Storage(inside.settings.folder / "cache" / job.id)  # as a service with a remote storage keeps it
    copy.write("model.safetensors", b"weights")
    (folder / attempt_folder(1) / CHECKPOINT).write_bytes(b"weights too")  # of a worker that died
    assert ask("DELETE", f"/finetune/{job.id}/weights").status_code == 204
    assert not Path(copy.root).exists()
    assert ask("GET", f"/finetune/{job.id}/weights").json()["type"] == "model-deleted"
    shown = ask("GET", f"/finetune/{job.id}").json()
    assert shown["result"]["weights"]["url"] is None
    assert shown["metrics"]["initialization"]
    assert not list(folder.rglob("model.safetensors"))
    assert not list(folder.rglob("checkpoint*"))
    copy.write("model.safetensors", b"weights")
    assert ask("DELETE", f"/finetune/{job.id}").status_code == 204
    assert not Path(copy.root).exists()
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


def test_of_too_many_at_once_the_rest_stays_and_is_not_named(
    inside: Service, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removal, "MOST", 2)
    jobs = [ask("POST", "/finetune", json={"dataset": "stripes", "steps": 2}).json()["id"] for _ in range(3)]
    for job in jobs:
        ask("POST", f"/finetune/{job}/cancel")
    for more in (True, False):
        told = ask("DELETE", "/finetune?status=cancelled").json()
        left = [job["id"] for job in ask("GET", "/finetune").json()["data"]]
        assert (told["has_more"], sorted(told["deleted"] + left)) == (more, sorted(jobs))
        jobs = left
    assert jobs == []


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
    for job in jobs:
        ask("POST", f"/finetune/{job}/cancel")
    for job, left in ((jobs[0], 200), (jobs[1], 404)):
        assert ask("DELETE", f"/finetune/{job}").status_code == 204
        inside.retention.look()
        shown = ask("GET", f"/comparisons/{made.id}")
        assert (shown.status_code, shown.json()["status"]) == (left, "ended" if left == 200 else 404)


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


def test_what_cannot_go_keeps_nothing_else_from_going(
    inside: Service, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(job: JobRow) -> None:
        raise OSError("Stale file handle")

    monkeypatch.setattr(inside.removal, "job", refuse)
    job = finished(inside, ask)
    grown_old(inside, job, 31)
    inside.uploads.inbox.folder.mkdir(parents=True)
    old = Upload(name="bad", stored="bad", status="failed", changed_at=time.time() - 21 * DAY)
    (inside.uploads.inbox.folder / "bad.json").write_bytes(old.to_bytes())
    inside.retention.look()
    assert inside.store.get(job.id) is not None
    assert inside.uploads.inbox.find("bad") is None


@pytest.mark.parametrize("leads", [True, False])
def test_only_the_service_that_leads_takes_away(leads: bool, inside: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serve.retention.EVERY_SECONDS", 0.0)
    answers, looks = [leads], list[bool]()

    def ask_once() -> bool:
        if not answers:
            raise asyncio.CancelledError
        return answers.pop()

    async def run() -> None:
        async with asyncio.timeout(10):  # for one that does not ask
            await inside.retention.run()

    monkeypatch.setattr(inside.retention, "_leads", ask_once)
    monkeypatch.setattr(inside.retention, "look", lambda: looks.append(True))
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(run())
    assert looks == [True] * leads
