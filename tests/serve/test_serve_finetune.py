"""Fine-tuning over HTTP with real Ray jobs: life of a job, events, cancel, weights, predictions."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image
from safetensors import safe_open

from serve.bench.instance import Instance

pytestmark = pytest.mark.ray
SMALL = {"dataset": "stripes", "steps": 30, "batch_size": 16}


def submit(client: httpx.Client, **options: Any) -> dict[str, Any]:
    answer = client.post("/finetune", json={**SMALL, **options})
    assert answer.status_code == 202, answer.text
    return answer.json()


def read_stream(client: httpx.Client, job_id: str, last: int | None = None) -> list[tuple[str, int | None, dict]]:
    """All blocks of an event stream: name, id, data."""
    headers = {"last-event-id": str(last)} if last is not None else {}
    with client.stream("GET", f"/finetune/{job_id}/events", headers=headers, timeout=90.0) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        text = answer.read().decode()
    blocks = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if "data" in fields:
            number = int(fields["id"]) if "id" in fields else None
            blocks.append((fields["event"], number, json.loads(fields["data"])))
    return blocks


@pytest.fixture(scope="module")
def finished(http: httpx.Client, follow: Callable[..., dict]) -> dict[str, Any]:
    """A job with a comparison, run to its end."""
    job = submit(http, compare_with_scratch=True, label="<b>mine</b>")
    return follow(http, job["id"])


def test_job_ends_with_all_that_is_needed_to_repeat_it(http: httpx.Client, finished: dict) -> None:
    assert finished["status"] == "succeeded", finished
    assert finished["progress"] == {"step": 30, "steps": 30, "fraction": 1.0}
    assert finished["created_at"] <= finished["started_at"] <= finished["finished_at"]
    result = finished["result"]
    assert result["accuracy"] > 0.6
    assert result["scratch_accuracy"] == finished["metrics"]["scratch"][-1]["accuracy"]
    assert result["accuracy"] == finished["metrics"]["initialization"][-1]["accuracy"]
    assert (result["num_classes"], result["train_size"], result["test_size"]) == (3, 48, 24)
    assert finished["config"]["batch_size"] == 16
    assert finished["initialization"]["id"] == http.get("/initializations?limit=1").json()["data"][0]["id"]
    assert finished["label"] == "<b>mine</b>"
    again = submit(http, seed=finished["seed"], initialization=finished["initialization"]["id"])
    curve = [block for block in read_stream(http, again["id"]) if block[0] == "point"]
    points = [{key: data[key] for key in ("step", "loss", "accuracy")} for _, _, data in curve]
    assert points == finished["metrics"]["initialization"]


def test_events_are_numbered_and_resume_without_gap_or_double(http: httpx.Client, finished: dict) -> None:
    blocks = read_stream(http, finished["id"])
    numbered = [(name, number) for name, number, _ in blocks if number is not None]
    assert [number for _, number in numbered] == list(range(1, len(numbered) + 1))
    assert numbered[0][0] == "started"
    assert blocks[-1][0] == "end"
    assert blocks[-1][2]["status"] == "succeeded"
    assert blocks[-1][2]["result"] == finished["result"]
    rest = read_stream(http, finished["id"], last=5)
    assert [number for _, number, _ in rest if number is not None] == list(range(6, len(numbered) + 1))
    done = http.get(f"/finetune/{finished['id']}/events", headers={"last-event-id": str(len(numbered))})
    assert done.status_code == 204


def test_weights_hold_the_model_and_its_classes(http: httpx.Client, finished: dict, tmp_path) -> None:
    answer = http.get(f"/finetune/{finished['id']}/weights")
    assert hashlib.sha256(answer.content).hexdigest() == finished["result"]["weights"]["sha256"]
    assert answer.headers["etag"] == f'"{finished["result"]["weights"]["sha256"]}"'
    part = http.get(f"/finetune/{finished['id']}/weights", headers={"range": "bytes=7-20"})
    assert part.content == answer.content[7:21]
    path = tmp_path / "model.safetensors"
    path.write_bytes(answer.content)
    with safe_open(path, "pt") as file:
        facts = json.loads(file.metadata()["rayctsl.finetuned"])
    assert facts["class_names"] == ["top", "middle", "bottom"]
    assert facts["shape"] == [8, 8, 1]


def picture(row: int, size: int = 64, mode: str = "RGB", kind: str = "PNG") -> bytes:
    """A bright band over dark ground, larger than the model's images and in colour."""
    pixels = np.full((size, size), 30, np.uint8)
    pixels[row * size // 4 : row * size // 4 + 3 * size // 8] = 190
    sink = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(sink, kind)
    return sink.getvalue()


@pytest.mark.parametrize(("row", "name"), list(enumerate(["top", "middle", "bottom"])))
def test_predict_names_the_band(http: httpx.Client, finished: dict, row: int, name: str) -> None:
    url = f"/finetune/{finished['id']}/predict"
    as_form = http.post(url, files={"image": ("x.png", picture(row), "image/png")}).json()
    assert as_form["classes"][0]["name"] == name
    assert sum(one["probability"] for one in as_form["classes"]) == pytest.approx(1, abs=1e-5)
    raw = http.post(url, content=picture(row), headers={"content-type": "image/png"}).json()
    assert raw == as_form
    for mode, kind in (("L", "PNG"), ("RGB", "JPEG"), ("P", "GIF"), ("RGB", "BMP"), ("RGB", "WEBP")):
        body = picture(row, 80, mode, kind)
        answer = http.post(url, content=body, headers={"content-type": f"image/{kind.lower()}"})
        assert answer.json()["classes"][0]["name"] == name, kind


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b"", "image/png", 422),
        (b"not an image", "image/png", 422),
        (picture(0)[:100], "image/png", 422),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "image/png", 422),
        (picture(0), "text/plain", 415),
        (b"x" * (10 * 2**20 + 1), "image/png", 413),
        (b"--x\r\nbroken", "multipart/form-data; boundary=x", 422),
        (b"broken", "multipart/form-data", 422),
    ],
)
def test_predict_refuses_what_is_no_image(
    http: httpx.Client, finished: dict, content: bytes, kind: str, status: int
) -> None:
    answer = http.post(f"/finetune/{finished['id']}/predict", content=content, headers={"content-type": kind})
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")


def test_predict_refuses_an_image_bomb(http: httpx.Client, finished: dict) -> None:
    sink = io.BytesIO()
    Image.new("1", (8000, 8000)).save(sink, "PNG")
    answer = http.post(
        f"/finetune/{finished['id']}/predict", content=sink.getvalue(), headers={"content-type": "image/png"}
    )
    assert answer.status_code == 413


def test_running_job_is_cancelled(http: httpx.Client, follow: Callable[..., dict]) -> None:
    job = submit(http, steps=100_000)
    follow(http, job["id"], "running")
    assert http.get(f"/finetune/{job['id']}/weights").status_code == 409
    assert http.post(f"/finetune/{job['id']}/cancel").json()["status"] == "cancelling"
    ended = follow(http, job["id"])
    assert ended["status"] == "cancelled"
    assert ended["result"] is None
    assert http.post(f"/finetune/{job['id']}/cancel").json()["status"] == "cancelled"
    assert read_stream(http, job["id"])[-1][0] == "end"


def test_finished_job_cannot_be_cancelled(http: httpx.Client, finished: dict) -> None:
    answer = http.post(f"/finetune/{finished['id']}/cancel")
    assert (answer.status_code, answer.json()["type"]) == (409, "job-ended")


def test_diverging_job_fails_with_a_reason(http: httpx.Client, follow: Callable[..., dict]) -> None:
    job = follow(http, submit(http, alpha=10.0, weight_decay=1.0, steps=400)["id"])
    assert job["status"] == "failed"
    assert job["error"]["code"] == "bad_input"
    assert "diverged" in job["error"]["message"]


def test_location_and_prefix(http: httpx.Client, follow: Callable[..., dict]) -> None:
    answer = http.post("/v1/finetune", json=SMALL)
    assert answer.headers["location"] == f"/v1/finetune/{answer.json()['id']}"
    assert http.get(answer.headers["location"]).json()["id"] == answer.json()["id"]
    follow(http, answer.json()["id"])


def test_waiting_jobs_queue_bound_keys_and_cancel(waiting_service: Instance, waiting: httpx.Client) -> None:
    headers = {"idempotency-key": "once"}
    with ThreadPoolExecutor(8) as pool:  # the same key from everywhere at once: one job
        answers = list(pool.map(lambda _: waiting.post("/finetune", json=SMALL, headers=headers), range(8)))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert sum("idempotent-replay" not in answer.headers for answer in answers) == 1
    other = waiting.post("/finetune", json={**SMALL, "steps": 31}, headers=headers)
    assert (other.status_code, other.json()["type"]) == (409, "idempotency-key-reused")

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: waiting.post("/finetune", json=SMALL), range(30)))
    assert sorted(answer.status_code for answer in answers) == [202] * 4 + [429] * 26
    assert {answer.headers.get("retry-after") for answer in answers} == {None, "15"}
    assert waiting.post("/finetune", json=SMALL, headers=headers).status_code == 202  # known, so no new place

    page = waiting.get("/finetune", params={"limit": 2}).json()
    rest = waiting.get("/finetune", params={"after": page["data"][-1]["id"], "status": "queued"}).json()
    assert (len(page["data"]), page["has_more"], len(rest["data"]), rest["has_more"]) == (2, True, 3, False)
    assert waiting.get("/finetune", params={"status": "running"}).json()["data"] == []
    for job in page["data"] + rest["data"]:
        assert waiting.post(f"/finetune/{job['id']}/cancel").json()["status"] == "cancelled"
        (end,) = [block for block in read_stream(waiting, job["id"]) if block[0] == "end"]
        assert end[2]["status"] == "cancelled"
    assert not (waiting_service.storage / "jobs").exists()
