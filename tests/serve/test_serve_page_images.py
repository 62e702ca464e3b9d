"""Own images on the page: from drop to prediction, refused by file name, and compared, in a real Chromium."""

from __future__ import annotations

import base64
import io
import zipfile
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from playwright.sync_api import Page, expect

from serve.bench.hostile import good, zipped
from serve.bench.instance import Instance
from tests.serve.conftest import in_browser
from tests.stripes import write_pictures


def drop(page: Page, name: str, content: bytes) -> None:
    """Let a file fall onto the page, as a file manager would."""
    script = """([text, name]) => {
        const data = new DataTransfer();
        data.items.add(new File([Uint8Array.from(atob(text), (c) => c.charCodeAt(0))], name));
        return data;
    }"""
    data = page.evaluate_handle(script, [base64.b64encode(content).decode(), name])
    page.dispatch_event(".dropzone", "drop", {"dataTransfer": data})


def drop_from_disk(page: Page, path: Path) -> None:
    """The same for what lies on this disk, by the browser's own drag and drop: a script cannot make a folder."""
    page.locator(".dropzone").scroll_into_view_if_needed()
    box = page.locator(".dropzone").bounding_box()
    assert box is not None
    place = {"x": box["x"] + box["width"] / 2, "y": box["y"] + 10}
    data = {"items": [], "files": [str(path)], "dragOperationsMask": 1}
    session = page.context.new_cdp_session(page)
    for kind in ("dragEnter", "dragOver", "drop"):
        session.send("Input.dispatchDragEvent", {"type": kind, **place, "data": data})


def archive_of(folder: Path) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as packed:
        for path in sorted(folder.rglob("*.jpg")):
            packed.write(path, path.relative_to(folder))
    return out.getvalue()


@in_browser
@pytest.mark.ray
def test_from_drop_to_prediction_to_comparison(
    page: Page, service: Instance, http: httpx.Client, tmp_path: Path
) -> None:
    folder = write_pictures(tmp_path / "holiday", count=40, side=12)
    page.goto(f"{service.url}/#/datasets")
    page.get_by_label("Pixels a side").fill("12")
    drop(page, "Holiday 2026.zip", archive_of(folder))
    expect(page.get_by_role("img", name="Images of holiday-2026 by class")).to_be_visible()
    expect(page.get_by_text("32 training and 8 test images of 4 classes, 12 × 12")).to_be_visible()

    page.get_by_role("link", name="Fine-tune on it").click()
    expect(page.get_by_label("Dataset")).to_have_value("holiday-2026")
    page.get_by_label("Steps", exact=True).fill("10")
    page.get_by_role("button", name="Start", exact=True).click()
    expect(page.locator(".status")).to_have_text("Succeeded")
    page.set_input_files("#image", next(folder.rglob("*.jpg")))
    expect(page.locator(".bars li")).to_have_count(4)
    job = page.url.rsplit("/", 1)[1]
    page.get_by_label("Publish the model").fill("stripes-v1")
    page.get_by_role("button", name="Publish").click()
    expect(page.get_by_text("Published as rayctsl/stripes-v1")).to_be_visible()
    page.get_by_role("button", name="Show the log").click()
    expect(page.locator(".log")).to_contain_text("it has succeeded")
    page.get_by_role("button", name="Delete job").click()
    page.get_by_role("button", name="Yes, delete it all").click()
    expect(page.get_by_role("heading", name="Jobs")).to_be_visible()
    assert http.get(f"/finetune/{job}").status_code == 404
    assert http.delete("/models/stripes-v1").status_code == 204

    page.goto(f"{service.url}/#/comparisons?dataset=holiday-2026")
    page.get_by_label("Seeds").fill("2")
    page.get_by_label("Steps").fill("4")
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(page.get_by_text("All 6 jobs have ended.")).to_be_visible()
    expect(page.locator("tbody tr")).to_have_count(4)  # three initializations, and random weights
    expect(page.locator("tbody tr").first).to_contain_text("best")
    expect(page.locator("tbody")).to_contain_text("from random weights")
    expect(page.locator("tbody tr").nth(1)).to_contain_text("±")
    page.get_by_role("button", name="Delete with its jobs").click()
    page.get_by_role("button", name="Yes, delete them all").click()
    expect(page.get_by_role("heading", name="Comparisons")).to_be_visible()
    page.goto(f"{service.url}/#/datasets/holiday-2026")
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_role("heading", name="Your images")).to_be_visible()
    assert http.get("/datasets/holiday-2026").status_code == 404


@in_browser
def test_a_folder_is_dropped(page: Page, waiting_service: Instance, tmp_path: Path) -> None:
    folder = write_pictures(tmp_path / "Holiday - 2026", count=440, side=8)  # browsers tell of 100 files at a time
    (folder / ".DS_Store").write_bytes(b"what systems leave")
    page.goto(f"{waiting_service.url}/#/datasets")
    page.get_by_label("Pixels a side").fill("8")
    drop_from_disk(page, folder)
    expect(page.get_by_role("img", name="Images of holiday-2026 by class")).to_be_visible()
    expect(page.get_by_text("352 training and 88 test images of 4 classes, 8 × 8")).to_be_visible()
    with httpx.Client(base_url=waiting_service.url, trust_env=False) as client:
        assert client.delete("/datasets/holiday-2026").status_code == 204


@in_browser
def test_a_long_title_becomes_a_name_that_the_service_takes(page: Page, waiting_service: Instance) -> None:
    name = "a" * 47  # and a dash, where it is cut
    page.goto(f"{waiting_service.url}/#/datasets")
    with page.expect_request(lambda request: request.method == "POST") as sent:
        drop(page, f"-{name} of last summer.zip", zipped(good()))
    assert parse_qs(urlsplit(sent.value.url).query)["name"] == [name]
    expect(page.get_by_role("img", name=f"Images of {name} by class")).to_be_visible()
    with httpx.Client(base_url=waiting_service.url, trust_env=False) as client:
        assert client.delete(f"/datasets/{name}").status_code == 204


@in_browser
def test_a_bad_archive_is_refused_by_the_names_of_its_files(page: Page, waiting_service: Instance) -> None:
    page.goto(f"{waiting_service.url}/#/datasets")
    drop(page, "pets.zip", zipped({**good(), "dog/broken.png": b"no picture"}))
    expect(page.get_by_role("alert")).to_contain_text("dog/broken.png")
    page.get_by_role("link", name="Send it again").click()
    drop(page, "notes.txt", b"hello")
    expect(page.get_by_role("alert")).to_contain_text("Drop a folder of class folders")
    with httpx.Client(base_url=waiting_service.url, trust_env=False) as client:
        assert client.delete("/datasets/pets").status_code == 204
