"""Every view of the page with jobs in every state: no accessibility findings, nothing too wide, from phone to desk."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import APIResponse, Browser, Page, Route, expect

from serve.bench.instance import Instance, make_dataset
from tests.serve.conftest import CHROMIUM
from tests.serve.every_state import REASON, fill
from tests.serve.warm import WarmInstance

AXE = (Path(__file__).parent.parent / "assets" / "axe" / "axe.min.js").read_text()
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM.exists(), reason="no Chromium here: apt-get install chromium"),
]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Instance, dict[str, str]]]:
    folder = tmp_path_factory.mktemp("views")
    make_dataset(folder / "data")
    ids = fill(folder)
    with WarmInstance(folder, "--address", "http://127.0.0.1:1").running() as instance:
        yield instance, ids


def views(ids: dict[str, str]) -> dict[str, str]:
    """Addresses, and a text that shows that the view is complete."""
    return {
        "#/initializations": "loss|no curve",
        f"#/initializations/{ids['card']}": "Difference, points",
        "#/jobs": REASON,
        f"#/jobs/{ids['queued']}": "waits for its turn",
        f"#/jobs/{ids['failed']}": "It failed",
        f"#/jobs/{ids['succeeded']}": "Try it",
        "#/finetune?dataset=stripes": "More settings",
        f"#/compare?jobs={ids['succeeded']},{ids['second']}": "At step 60",
        "#/compare": "Choose two or more jobs",
        "#/comparisons": "ahead with",
        f"#/comparisons/{ids['comparison']}": "All 2 jobs have ended",
        "#/datasets": "Drop a folder",
        "#/datasets/stripes": "48 training and 24 test images",
        "#/nothing": "There is no such page",
        "docs": "Documents",
    }


@pytest.mark.parametrize(
    ("scheme", "width"),
    [
        ("light", 1280),
        ("dark", 360),
        pytest.param("light", 360, marks=pytest.mark.long),
        pytest.param("dark", 1280, marks=pytest.mark.long),
    ],
)
def test_no_accessibility_findings_and_nothing_too_wide(
    world: tuple[Instance, dict[str, str]], browser: Browser, scheme: Literal["light", "dark"], width: int
) -> None:
    instance, ids = world
    found = []
    context = browser.new_context(color_scheme=scheme, bypass_csp=True, viewport={"width": width, "height": 800})
    page = context.new_page()
    page.on("pageerror", lambda error: found.append(str(error)))
    for view, text in views(ids).items():
        page.goto(f"{instance.url}/{view}")
        expect(page.locator("main")).to_contain_text(re.compile(text))
        page.evaluate(AXE)
        result = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        found += [f"{view}: {one['id']} {one['nodes'][0]['html']}" for one in result["violations"]]
        if page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"):
            found.append(f"{view} is too wide")
    context.close()
    assert found == []


# Whether each rule of our styles finds an element, leaving out what a pointer, a keyboard or time brings about.
# A rule that stands inside another by mistake is looked for inside it, as browsers do.
SELECTORS = r"""() => {
  const states = /::[\w-]+|:(hover|focus|focus-visible|disabled|empty)(?![\w-])/g;
  const attributes = /\[(aria-busy|aria-invalid|aria-sort|data-over|data-st|open)[^\]]*\]|\.over/g;
  const found = {};
  const walk = (rules, outer) => {
    for (const rule of rules) {
      const own = rule.selectorText ? outer + rule.selectorText : outer;
      if (rule.selectorText && rule.style.length) {
        const plain = own.replaceAll(states, "").replaceAll(attributes, "").replaceAll(/(^|,)\s*(?=,|$)/g, "$1*");
        found[own] = own.includes(":not(") || document.querySelector(plain) !== null;
      }
      if (rule.cssRules) walk(rule.cssRules, rule.selectorText ? `${own} ` : outer);
    }
  };
  const own = [...document.styleSheets].filter((sheet) => !sheet.href.includes("/vendor/"));
  for (const sheet of own) walk(sheet.cssRules, "");
  return found;
}"""
# What only time, faults, an empty storage, several initializations or six jobs show.
UNSEEN = {
    ".notice + .buttons",
    ".spark:has(> .muted:only-child)",
    ".skeleton",
    ".sheet",
    ".empty pre",
    ".form .notice",
    ".picks",
    ".picks legend",
    ".pick",
}
UNSEEN |= {f".swatch.{name}" for name in ("third", "fourth", "fifth", "sixth")}


def test_every_rule_of_the_styles_is_used(world: tuple[Instance, dict[str, str]], page: Page) -> None:
    instance, ids = world
    classes = [{"name": name, "probability": 0.5} for name in ("top", "middle")]
    page.route("**/predict", lambda route: route.fulfill(json={"object": "prediction", "job": "x", "classes": classes}))
    rules, used = set[str](), set[str]()
    for view, text in views(ids).items():
        page.goto(f"{instance.url}/{view}")
        expect(page.locator("main")).to_contain_text(re.compile(text))
        looks = [page.evaluate(SELECTORS)]
        if text == "Try it":
            image = {"name": "x.png", "mimeType": "image/png", "buffer": b"x"}
            page.get_by_label("Drop an image").set_input_files(image)
            expect(page.locator(".bars li")).to_have_count(2)
            looks.append(page.evaluate(SELECTORS))
        for look in looks:
            rules |= set(look)
            used |= {selector for selector, seen in look.items() if seen}
    assert rules - used - UNSEEN == set()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    yield context.new_page()
    context.close()


def test_jobs_are_searched_sorted_and_compared(world: tuple[Instance, dict[str, str]], page: Page) -> None:
    instance, ids = world
    page.goto(f"{instance.url}/#/jobs")
    rows = page.locator("tr.job:visible")
    expect(rows).to_have_count(4)
    page.get_by_label("Search").fill("failed")
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text(REASON)
    page.get_by_label("Search").fill("")
    page.get_by_role("button", name="Seed").click()
    assert [row.get_attribute("data-id") for row in rows.all()] == [
        ids[state] for state in ("second", "succeeded", "failed", "queued")
    ]
    expect(page.locator("th[aria-sort=descending]")).to_have_text("Seed")
    for state in ("second", "succeeded"):
        page.locator(f"tr[data-id={ids[state]}] input").check()
    page.get_by_role("link", name="Compare their curves").click()
    expect(page).to_have_title("Compare jobs · rayctsl")
    expect(page.get_by_role("heading", name="At step 60, which all have reached")).to_be_visible()
    expect(page.get_by_role("img", name="Accuracy on the test images")).to_be_visible()


def test_chosen_jobs_are_deleted_once_all_of_them_have_ended(
    world: tuple[Instance, dict[str, str]], page: Page
) -> None:
    instance, _ = world
    asked = {"data": {"dataset": "stripes", "steps": 5, "label": "to go"}}
    for _ in range(2):
        made = page.request.post(f"{instance.url}/finetune", **asked).json()
        page.request.post(f"{instance.url}/finetune/{made['id']}/cancel")
    page.goto(f"{instance.url}/#/jobs")
    page.get_by_label("Search").fill("to go")
    rows = page.locator("tr.job:visible")
    expect(rows).to_have_count(2)
    for box in rows.locator("input").all():
        box.check()
    page.get_by_role("button", name="Delete them").click()
    page.get_by_role("button", name="Yes, delete them").click()
    expect(rows).to_have_count(0)
    assert all(job["label"] != "to go" for job in page.request.get(f"{instance.url}/finetune").json()["data"])
    page.get_by_label("Search").fill("queued")
    rows.first.locator("input").check()
    expect(page.get_by_role("button", name="Delete them")).to_be_hidden()


def test_a_deleted_job_does_not_come_back_with_a_list_that_was_asked_for_before(
    world: tuple[Instance, dict[str, str]], page: Page
) -> None:
    instance, _ = world
    for _ in range(2):
        asked = {"data": {"dataset": "stripes", "steps": 5, "label": "ghost"}}
        made = page.request.post(f"{instance.url}/finetune", **asked).json()
        page.request.post(f"{instance.url}/finetune/{made['id']}/cancel")
    page.goto(f"{instance.url}/#/jobs")
    page.get_by_label("Search").fill("ghost")
    rows, lists = page.locator("tr.job:visible"), "**/finetune?limit=*"
    expect(rows).to_have_count(2)
    held = list[tuple[Route, APIResponse]]()
    page.route(lists, lambda route: held.append((route, route.fetch())))

    def wait_for(count: int) -> None:
        while len(held) < count:  # the page keeps up with its jobs
            page.wait_for_timeout(20)

    wait_for(1)
    rows.first.locator("input").check()
    page.get_by_role("button", name="Delete them").click()
    page.get_by_role("button", name="Yes, delete them").click()
    expect(rows).to_have_count(1)
    held[0][0].fulfill(response=held[0][1])
    wait_for(2)  # it asks again when it is done with the first answer
    assert rows.count() == 1
    page.unroute(lists)  # and lets the second go on
    left = rows.first.get_attribute("data-id")
    assert left != made["id"]
    page.request.delete(f"{instance.url}/finetune/{left}")  # as another window does
    expect(rows).to_have_count(0)


def test_failed_job_says_why_first_and_its_tab_has_its_name(world: tuple[Instance, dict[str, str]], page: Page) -> None:
    instance, ids = world
    page.goto(f"{instance.url}/#/jobs/{ids['failed']}")
    alert = page.get_by_role("alert").first
    expect(alert).to_have_text(f"It failed: {REASON}")
    box, chart = alert.bounding_box(), page.locator(".chart").first.bounding_box()
    assert box is not None
    assert chart is not None
    assert box["y"] < chart["y"]
    expect(page).to_have_title("a failed job · rayctsl")


def test_form_is_the_service_s_description_and_gives_commands(
    world: tuple[Instance, dict[str, str]], page: Page
) -> None:
    instance, _ = world
    page.goto(f"{instance.url}/#/finetune?dataset=stripes&label=it%27s")
    document = page.request.get(f"{instance.url}/openapi.json").json()
    names = set(document["components"]["schemas"]["FinetuneRequest"]["properties"])
    expect(page.get_by_label("Steps", exact=True)).to_have_value("1000")
    assert set(page.locator("form [name]").evaluate_all("all => all.map(one => one.name)")) == names - {"webhook"}
    expect(page.get_by_role("img", name="Images of the first classes of stripes")).to_be_visible()
    page.get_by_text("The same as a command").click()
    curl = page.locator("pre").first.inner_text()
    assert "'\\''" in curl, "what a user wrote is quoted for the shell"
    sent = json.loads(curl.split("-d '", 1)[1].rstrip("'").replace("'\\''", "'"))
    assert sent["label"] == "it's"
    assert 'client.finetune("stripes"' in page.locator("pre").nth(1).inner_text()


def test_the_api_page_shows_every_route(world: tuple[Instance, dict[str, str]], page: Page) -> None:
    instance, _ = world
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.goto(f"{instance.url}/docs")
    document = page.request.get(f"{instance.url}/openapi.json").json()
    named = [(method.upper(), path) for path, item in document["paths"].items() for method in item]
    shown = page.locator("details:has(.method)")
    expect(shown).to_have_count(len(named))
    assert sorted(shown.locator("summary").evaluate_all(
        "all => all.map(one => [one.children[0].textContent, one.children[1].textContent])"
    )) == sorted(map(list, named))  # fmt: skip
    page.locator("#create_job summary").click()
    opened = page.locator("details[open]")
    expect(opened.locator("pre")).to_contain_text("""-d '{"dataset":""")
    opened.get_by_role("link", name="FinetuneRequest").click()
    expect(page.locator("#FinetuneRequest")).to_contain_text("Same request, same seed, same result.")
    expect(page.locator("#FinetuneRequest td", has_text="integer from 1 to 100000").first).to_be_visible()
    assert complaints == []
