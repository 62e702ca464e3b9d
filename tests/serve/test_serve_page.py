"""The page at `/`: its files, and what people do with it in a real Chromium against real services."""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, ViewportSize, expect

from serve.bench.instance import Instance, make_dataset, make_initialization
from serve.routes.page import WEB
from tests.serve.conftest import in_browser
from tests.serve.warm import WarmInstance

TOKEN = "correct-horse-battery"
NOBODY = "http://127.0.0.1:1"
PAYLOAD = "<img src=x onerror=\"document.body.dataset.owned='yes'\"><script>document.body.dataset.owned='yes'</script>"
PHONE = ViewportSize(width=360, height=740)


def test_vendored_files_are_those_of_the_manifest() -> None:
    vendor = WEB / "vendor"
    packages = json.loads((vendor / "manifest.json").read_text())
    named = {name: checksum for package in packages for name, checksum in package["files"].items()}
    found = {path.relative_to(vendor).as_posix() for path in vendor.rglob("*") if path.is_file()}
    assert found == {*named, "manifest.json"}
    for name, checksum in named.items():
        assert hashlib.sha256((vendor / name).read_bytes()).hexdigest() == checksum, name
    for package in packages:
        assert package["version"]
        assert package["license"]
        assert any(name.endswith("LICENSE") for name in package["files"])


def test_page_needs_nothing_inline_and_nothing_from_elsewhere(waiting: httpx.Client) -> None:
    page = waiting.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert page.headers["content-security-policy"].startswith("default-src 'self';")
    assert not re.search(r"<script(?![^>]*\ssrc=)|<style|\sstyle=|\son[a-z]+=", page.text)
    for address in re.findall(r'(?:src|href)="([^"#]+)"', page.text):
        assert not address.startswith(("http", "//", "/")), address
        assert waiting.get(f"/{address}").status_code == 200, address
    assert waiting.get("/", headers={"if-none-match": page.headers["etag"]}).status_code == 304
    assert waiting.get("/", headers={"if-none-match": '"other"'}).content == page.content
    for path in (WEB / "js").rglob("*.js"):
        code = path.read_text()
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b", code), path
        assert waiting.get(f"/static/{path.relative_to(WEB)}").headers["content-type"].startswith("text/javascript")


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    """A service with a token, without Ray, that holds 25 initializations, one of them hostile."""
    folder = tmp_path_factory.mktemp("shelf")
    make_dataset(folder / "data")
    made = [make_initialization(folder / "made", seed, method) for seed, method in enumerate(("shifting", "reptile"))]
    curve = [[step, round(2.5 * 0.995**step, 5)] for step in range(0, 400, 8)]
    for number in range(25):
        original = made[number % 2]
        card = {**original.card.to_json(), "metrics": {"loss_curve": curve, "final_loss": curve[-1][1]}}
        card["id"] = f"{card['method']['name']}-{number:02d}"
        if number == 24:
            card |= {"id": "hostile", "model": {"name": "own", "class_name": PAYLOAD}}
            card |= {"tasks": [PAYLOAD, "x" * 190], "spent": {PAYLOAD: 1}, "versions": {PAYLOAD: PAYLOAD}}
        place = folder / "storage" / "initializations" / card["id"]
        shutil.copytree(original.storage.root, place)
        (place / "card.json").write_text(json.dumps(card))
    with WarmInstance(folder, "--address", NOBODY, token=TOKEN).running() as instance:
        yield instance


@pytest.fixture
def reader(context: BrowserContext, page: Page, shelf: Instance) -> Page:
    """A page of the shelf in a tab that has the token already."""
    context.add_init_script(f"sessionStorage.setItem('rayctsl-token', '{TOKEN}')")
    page.goto(shelf.url)
    return page


def saved(page: Page, button: Any) -> tuple[str, bytes]:
    with page.expect_download() as download:
        button.click()
    return download.value.suggested_filename, Path(download.value.path()).read_bytes()


def too_wide(page: Page) -> bool:
    return page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")


@in_browser
def test_token_is_asked_for_once_and_kept_for_the_tab(page: Page, complaints: list[str], shelf: Instance) -> None:
    page.goto(shelf.url)
    field = page.get_by_label("Token", exact=True)
    expect(field).to_be_focused()
    field.fill("wrong-horse-battery")
    page.keyboard.press("Enter")
    expect(page.get_by_text("does not accept this token")).to_be_visible()
    page.get_by_role("button", name="Not now").click()
    expect(page.get_by_role("alert").filter(has_text="This needs the service's token")).to_be_visible()
    page.get_by_role("button", name="Try again").click()
    field.fill(TOKEN)
    page.keyboard.press("Enter")
    expect(page.locator(".entry")).to_have_count(20)
    assert complaints
    assert all("401" in text for text in complaints)
    complaints.clear()
    page.reload()
    expect(page.locator(".entry")).to_have_count(20)
    assert page.evaluate("[localStorage.length, document.cookie]") == [0, ""]
    page.get_by_role("button", name="Forget token").click()
    expect(field).to_be_visible()
    complaints.clear()


@in_browser
def test_list_search_order_curve_and_download(reader: Page, shelf: Instance) -> None:
    entries = reader.locator(".entry")
    expect(entries).to_have_count(20)
    reader.get_by_role("button", name="Show more").click()
    expect(entries).to_have_count(25)
    reader.get_by_label("Search").fill("shifting greek")
    expect(entries).to_have_count(12)
    assert reader.url.endswith("#/initializations?q=shifting+greek")
    reader.get_by_label("Order").select_option("Name")
    first = "shifting-00"
    expect(entries.first.get_by_role("heading")).to_have_text(first)
    expect(entries.first.get_by_role("img", name="Meta-training loss, at the end 0.35")).to_be_visible()
    name, content = saved(reader, entries.first.get_by_role("link", name="Download"))
    assert name == f"{first}.safetensors"
    with httpx.Client(headers={"authorization": f"Bearer {TOKEN}"}, trust_env=False) as client:
        assert content == client.get(f"{shelf.url}/initializations/{first}/weights").content
    reader.get_by_label("Search").fill("no such thing")
    expect(reader.get_by_text("Nothing matches “no such thing”.")).to_be_visible()


@in_browser
def test_initialization_by_its_address_with_curve_and_snippets(reader: Page, shelf: Instance) -> None:
    card = json.loads((shelf.storage / "initializations" / "shifting-00" / "card.json").read_text())
    reader.goto(f"{shelf.url}/#/initializations/{card['id']}")
    expect(reader).to_have_title(f"{card['id']} · rayctsl")
    expect(reader.get_by_role("img", name="Meta-training: mean loss")).to_be_visible()
    assert drawn(reader, ".plot canvas") > 300
    reader.get_by_role("button", name="Copy the sha256 checksum").click()
    assert reader.evaluate("navigator.clipboard.readText()") == card["sha256"]
    reader.get_by_role("button", name="Copy the snippet: Hugging Face client").click()
    snippet = reader.evaluate("navigator.clipboard.readText()")
    assert f'hf_hub_download("rayctsl/{card["id"]}", "phi.safetensors", endpoint="{shelf.url}"' in snippet
    assert TOKEN not in reader.content()


@in_browser
def test_numbers_of_one_kind_are_as_long_as_each_other(reader: Page) -> None:
    texts = reader.evaluate("""async () => {
        const { alike, decimal, measured } = await import("/static/js/format.js");
        return [[3.29, 3.3, 0.00123, 1234.5, NaN, undefined].map(measured), alike([2, 2.25, 2.5]), decimal(0.05)];
    }""")
    assert texts == [["3.29", "3.30", "0.00123", "1.2 k", "", ""], ["2.00", "2.25", "2.50"], "0.05"]


@in_browser
def test_the_pages_archives_are_read_whatever_the_files_are_called(reader: Page) -> None:
    """Long names and umlauts: a name may have 100 bytes, and the folders before it 155."""
    paths = ["rows/a.jpg", "ö" * 60 + ".jpg", f"{'ü' * 30}/{'é' * 45}.jpg", f"{'f' * 150}/{'g' * 99}"]
    packed = reader.evaluate(
        """async (paths) => {
        const { packTar } = await import("/static/js/tar.js");
        const files = paths.map((path) => ({ path, file: new File([path], "any") }));
        const fits = files.filter((each) => { try { packTar([each]); return true; } catch { return false; } });
        return [...new Uint8Array(await packTar(fits).arrayBuffer())];
    }""",
        paths,
    )
    with tarfile.open(fileobj=io.BytesIO(bytes(packed))) as archive:
        found = {entry.name: archive.extractfile(entry).read().decode() for entry in archive}  # type: ignore[union-attr]
    assert found == {path: path for path in paths if path != paths[1]}  # which is 124 bytes without a folder


@in_browser
def test_a_running_jobs_difference_is_of_one_step(reader: Page) -> None:
    """One run is always ahead of the other: its newest point is not to be compared with."""
    text = reader.evaluate("""async () => {
        const { numbers } = await import("/static/js/views/curves.js");
        const shown = numbers({ id: "x", compare_with_scratch: true, status: "running" });
        const run = (...accuracies) => new Map(accuracies.map((accuracy, i) => [10 * (i + 1), { accuracy }]));
        const points = { initialization: run(0.5, 0.7, 0.9), scratch: run(0.3, 0.4) };
        shown.update({ id: "x", status: "running", result: null }, points);
        return [...shown.node.querySelectorAll(".number")].map((each) => each.textContent);
    }""")
    assert text[2] == "+30.0difference at step 20, points"


def drawn(page: Page, canvas: str) -> int:
    """How many pixels of a canvas are not empty."""
    script = """canvas => canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data
        .filter((value, i) => i % 4 == 3 && value).length"""
    return page.locator(canvas).first.evaluate(script)


@in_browser
@pytest.mark.parametrize("view", ["#/initializations?q=hostile", "#/initializations/hostile"])
def test_hostile_card_is_shown_as_text(reader: Page, shelf: Instance, view: str) -> None:
    reader.goto(f"{shelf.url}/{view}")
    expect(reader.get_by_text(PAYLOAD, exact=True).first).to_be_visible()
    assert reader.locator("main script, main img[src='x']").count() == 0
    assert reader.evaluate("document.body.dataset.owned") is None


@in_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_phone_and_colours(browser: Browser, shelf: Instance, scheme: Any) -> None:
    context = browser.new_context(viewport=PHONE, color_scheme=scheme)
    context.add_init_script(f"sessionStorage.setItem('rayctsl-token', '{TOKEN}')")
    page = context.new_page()
    for view, text in (
        ("#/initializations", "Show more"),
        ("#/initializations/hostile", "How it was made"),
        ("#/finetune", "Compare with scratch"),
        ("#/jobs", "Compare initializations on one dataset"),
        ("#/nonsense", "There is no such page."),
    ):
        page.goto(f"{shelf.url}/{view}")
        expect(page.get_by_text(text, exact=True)).to_be_visible()
        assert not too_wide(page), view
    light = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).every(part => part > 200)")
    assert light == (scheme == "light")
    context.close()


@in_browser
def test_service_that_restarts_is_found_again(reader: Page, complaints: list[str], shelf: Instance) -> None:
    headers = {"authorization": f"Bearer {TOKEN}"}
    job = httpx.post(f"{shelf.url}/finetune", json={"dataset": "stripes"}, headers=headers, trust_env=False).json()
    reader.goto(f"{shelf.url}/#/jobs/{job['id']}")
    expect(reader.get_by_text("waits for its turn")).to_be_visible()
    shelf.kill()
    expect(reader.get_by_text("The connection broke; trying again")).to_be_visible()
    shelf.start()
    expect(reader.get_by_text("The connection broke")).to_be_hidden()
    reader.get_by_role("button", name="Cancel job").click()
    reader.get_by_role("button", name="Yes, cancel").click()
    expect(reader.locator(".status")).to_have_text("Cancelled")
    complaints.clear()
