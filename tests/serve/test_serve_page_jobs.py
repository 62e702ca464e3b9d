"""Jobs on the page in a real Chromium: from the form to predictions, and by keyboard over a wire that is cut."""

from __future__ import annotations

import contextlib
import hashlib
import io
import re
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import httpx
import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Page, expect

from serve.bench.instance import Instance
from tests.serve.conftest import in_browser
from tests.serve.test_serve_page import PAYLOAD, PHONE, saved, too_wide


@in_browser
@pytest.mark.ray
def test_job_from_the_form_to_its_predictions(
    page: Page, service: Instance, http: httpx.Client, tmp_path: Path
) -> None:
    page.goto(service.url)
    page.get_by_role("link", name="New fine-tune").click()
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_text("Choose a dataset.")).to_be_visible()
    page.get_by_label("Dataset").select_option("stripes")
    expect(page.get_by_text("3 classes, 48 training and 24 test images of 8 × 8")).to_be_visible()
    page.get_by_label("Steps", exact=True).fill("60")
    page.get_by_label("Label").fill(PAYLOAD)
    page.get_by_label("Compare with scratch").check()
    page.get_by_text("More settings").click()
    page.get_by_label("Batch size").fill("16")
    page.get_by_role("button", name="Start").click()
    expect(page).to_have_url(re.compile(r"#/jobs/ft-[0-9a-f]{16}$"))
    job_id = page.url.rsplit("/", 1)[1]
    expect(page.get_by_role("heading", level=1)).to_have_text(PAYLOAD)

    curve = page.get_by_role("img", name="Accuracy on the test images")
    expect(curve).to_have_attribute("aria-label", re.compile("at step"))  # it moves …
    expect(curve).to_have_attribute("aria-label", re.compile("at step 60$"))  # … to its end
    expect(page.locator(".status")).to_have_text("Succeeded")
    job = http.get(f"/finetune/{job_id}").json()
    shown = page.locator(".number strong").all_inner_texts()
    assert shown[:2] == [f"{100 * job['result'][key]:.1f} %" for key in ("accuracy", "scratch_accuracy")]
    rows = page.locator("tbody tr")
    assert rows.count() == len(job["metrics"]["initialization"]) == len(job["metrics"]["scratch"])
    settings = page.locator("section", has_text="Settings")
    expect(settings).to_contain_text(re.compile(r"Training images\s*all.*Crop padding\s*automatic", re.S))

    name, content = saved(page, page.get_by_role("link", name="Download the model"))
    assert name == f"{job_id}.safetensors"
    assert hashlib.sha256(content).hexdigest() == job["result"]["weights"]["sha256"]

    page.get_by_label("Drop an image").set_input_files(
        {"name": "band.png", "mimeType": "image/png", "buffer": band("bottom")}
    )
    expect(page.locator(".bars li").first).to_contain_text("bottom")
    drop(page, band("top"))
    expect(page.locator(".bars li").first).to_contain_text("top")
    assert page.locator(".bars li").count() == 3
    page.get_by_role("link", name="Jobs").first.click()
    row = page.locator(f".job[data-id={job_id}]")
    expect(row).to_contain_text("from scratch")
    expect(row.get_by_role("link")).to_have_text(PAYLOAD)
    assert page.evaluate("document.body.dataset.owned") is None
    page.set_viewport_size(PHONE)
    assert not too_wide(page)
    row.get_by_role("link").click()
    expect(page.get_by_text("Try it")).to_be_visible()
    assert not too_wide(page)


def band(name: str) -> bytes:
    """A picture of one of the dataset's classes."""
    pixels = np.full((64, 64), 30, np.uint8)
    start = 16 * ("top", "middle", "bottom").index(name)
    pixels[start : start + 24] = 190
    sink = io.BytesIO()
    Image.fromarray(pixels).convert("RGB").save(sink, "PNG")
    return sink.getvalue()


def drop(page: Page, content: bytes) -> None:
    """Let a file fall on the drop zone."""
    script = """bytes => {
        const data = new DataTransfer();
        data.items.add(new File([new Uint8Array(bytes)], 'dropped.png', {type: 'image/png'}));
        return data;
    }"""
    data = page.evaluate_handle(script, list(content))
    page.dispatch_event(".drop", "drop", {"dataTransfer": data})


@in_browser
@pytest.mark.ray
def test_keyboard_alone_starts_a_job_that_survives_a_lost_connection_and_is_cancelled(
    page: Page, complaints: list[str], service: Instance, follow: Callable, http: httpx.Client
) -> None:
    asked: list[str | None] = []
    page.on(
        "request",
        lambda request: asked.append(request.headers.get("last-event-id")) if request.url.endswith("/events") else None,
    )
    wire = Wire(service.port)
    page.goto(f"{wire.url}/#/finetune")
    expect(page.get_by_label("Dataset")).to_be_visible()
    press_until(page, "dataset")
    page.keyboard.type("stripes")
    press_until(page, "steps")
    page.keyboard.type("20000")
    press_until(page, "summary")
    page.keyboard.press("Enter")
    press_until(page, "batch_size")
    page.keyboard.type("16")
    press_until(page, "evaluate_every")
    page.keyboard.type("100")
    page.keyboard.press("Enter")
    curve = page.get_by_role("img", name="Accuracy on the test images")
    expect(curve).to_have_attribute("aria-label", re.compile("at step"))
    job_id = page.url.rsplit("/", 1)[1]

    seen = page.locator("tbody tr").count()
    wire.cut()
    expect(page.get_by_text("The connection broke")).to_be_visible()
    expect(page.get_by_text("The connection broke")).to_be_hidden()
    expect(page.locator("tbody tr").nth(seen + 1)).to_be_attached()
    assert asked[0] is None
    assert int(asked[-1] or 0) >= seen
    complaints.clear()

    press_until(page, "Cancel job")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Yes, cancel")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".status")).to_have_text("Cancelled")
    assert follow(http, job_id)["status"] == "cancelled"
    steps = [int(text.replace(",", "")) for text in page.locator("tbody th").all_text_contents()]
    assert steps == sorted(set(steps))
    page.get_by_role("link", name="Run again").click()
    expect(page.get_by_label("Steps", exact=True)).to_have_value("20000")
    wire.close()


class Wire:
    """Stands between the browser and a service, and can be cut: a browser that is offline keeps what is connected."""

    def __init__(self, port: int):
        self.port, self.ends = port, set[socket.socket]()
        self.door = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.door.getsockname()[1]}"
        threading.Thread(target=self._welcome, daemon=True).start()

    def _welcome(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                pair = self.door.accept()[0], socket.create_connection(("127.0.0.1", self.port))
                self.ends |= set(pair)
                for source, target in (pair, pair[::-1]):
                    threading.Thread(target=self._carry, args=(source, target), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def cut(self) -> None:
        for end in self.ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.door.shutdown(socket.SHUT_RDWR)
        self.door.close()
        self.cut()


def press_until(page: Page, wanted: str) -> None:
    """Press Tab until the focus is on the field, element or text that is meant."""
    script = "() => { const e = document.activeElement; return [e.id, e.localName, e.textContent.trim()]; }"
    for _ in range(60):
        page.keyboard.press("Tab")
        if wanted in page.evaluate(script):
            return
    raise AssertionError(f"Tab never reaches {wanted}")
