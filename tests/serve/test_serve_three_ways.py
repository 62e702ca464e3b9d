"""A folder of pictures by command line, on the page and by curl: one accuracy, and one probability for one picture."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, expect

from serve.bench.instance import Instance
from tests.serve.conftest import in_browser, wait_for
from tests.serve.test_serve_page_images import archive_of, drop_from_disk
from tests.stripes import write_pictures

STEPS, BATCH = 20, 16


def on_the_page(page: Page, service: Instance, pictures: Path) -> str:
    """The job that somebody who only clicks has made."""
    page.goto(f"{service.url}/#/datasets")
    drop_from_disk(page, pictures)
    page.get_by_role("link", name="Fine-tune on it").click()
    page.get_by_label("Steps", exact=True).fill(str(STEPS))
    page.get_by_text("More settings").click()
    page.get_by_label("Batch size").fill(str(BATCH))
    page.get_by_role("button", name="Start", exact=True).click()
    expect(page.locator(".status")).to_have_text("Succeeded")
    return page.url.rsplit("/", 1)[1]


def by_curl(service: Instance, pictures: Path, body: dict[str, Any]) -> str:
    packed = pictures.with_suffix(".zip")
    packed.write_bytes(archive_of(pictures))

    def curl(path: str, *options: str) -> dict[str, Any]:
        command = ["curl", "-sf", "--noproxy", "*", f"{service.url}/{path}", *options]
        answer: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        return answer

    curl("datasets?name=by-hand", "--data-binary", f"@{packed}")
    wait_for(lambda: curl("datasets/by-hand")["status"] == "ready")
    job: str = curl("finetune", "--json", json.dumps({"dataset": "by-hand", **body}))["id"]
    wait_for(lambda: curl(f"finetune/{job}")["status"] == "succeeded", 120)
    return job


@in_browser
@pytest.mark.ray
def test_one_accuracy(page: Page, service: Instance, http: httpx.Client, tmp_path: Path) -> None:
    pictures = write_pictures(tmp_path / "by-hand", count=120, side=16)
    jobs = [on_the_page(page, service, pictures)]
    first = http.get(f"/finetune/{jobs[0]}").json()
    initialization = first["initialization"]["id"]
    # The same name again: it is part of what batches and test images are drawn from.
    assert http.delete("/datasets/by-hand").status_code == 204
    jobs.append(
        by_curl(service, pictures, {"initialization": initialization, "steps": STEPS, "batch_size": BATCH, "seed": 0})
    )
    rayctsl = str(Path(sys.executable).with_name("rayctsl"))
    recipe = [f"--{key}={first['config'][key]}" for key in ("alpha", "optimizer", "weight_decay")]
    subprocess.run(
        [rayctsl, "finetune", "--init", initialization, "--storage", str(service.storage), "--dataset", "./by-hand"]
        + [f"--steps={STEPS}", f"--batch-size={BATCH}", "--seeds=1", "--threads=1", "--save=model", "--out=result.json"]
        + [option.replace("_", "-") for option in recipe],
        cwd=tmp_path,
        env={"RAYCTSL_DATA": str(tmp_path / "data"), "PATH": ""},
        check=True,
    )
    picture = next(pictures.rglob("*.jpg"))
    subprocess.run([rayctsl, "predict", "model", picture, "--out=answers.csv"], cwd=tmp_path, check=True)

    result = json.loads((tmp_path / "result.json").read_text())
    of_service = [http.get(f"/finetune/{job}").json()["result"]["accuracy"] for job in jobs]
    assert of_service == pytest.approx([result["accuracies"][0] / 100] * 2, abs=1e-12)
    assert 0.3 < of_service[0] < 1, "a number that chance and perfection do not share"
    with (tmp_path / "answers.csv").open() as file:
        answer = next(csv.DictReader(file))
    for job in jobs:
        best = http.post(f"/finetune/{job}/predict", files={"image": picture.read_bytes()}).json()["classes"][0]
        assert best["name"] == answer["class"]
        assert best["probability"] == pytest.approx(float(answer["probability"]), abs=1e-4)
        assert http.delete(f"/finetune/{job}").status_code == 204
    assert http.delete("/datasets/by-hand").status_code == 204
