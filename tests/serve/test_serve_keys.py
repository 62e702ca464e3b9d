"""API keys: scopes, shares, quotas and rates, made and revoked by the command; and the log of who did what."""

from __future__ import annotations

import dataclasses
import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import delete
from sqlalchemy.exc import SQLAlchemyError

from serve.__main__ import build_parser, has_keys, main
from serve.access import AccessLog
from serve.bench.instance import make_dataset, make_initialization
from serve.datasets import stored_name
from serve.inbox import Upload
from serve.jobs.tables import KEYS, open_database
from serve.keys import Caller, KeyStore
from serve.service import Service
from serve.settings import Settings
from tests.serve.applications import opened

BODY = {"dataset": "stripes", "steps": 3}
Ask = Callable[..., httpx.Response]


@pytest.fixture
def application(tmp_path: Path) -> Iterator[FastAPI]:
    make_dataset(tmp_path / "data")
    make_initialization(tmp_path / "storage")
    settings = Settings(
        storage=str(tmp_path / "storage"), data_root=str(tmp_path / "data"), address="http://127.0.0.1:1"
    )
    with opened(settings) as made:
        yield made


def test_without_keys_this_machine_may_do_everything_and_with_one_nobody_else(inside: Service, ask: Ask) -> None:
    assert ask("POST", "/finetune", json=BODY).status_code == 202
    key = inside.keys.add(Caller("lab", ("read",)))
    assert ask("GET", "/finetune").status_code == 401
    assert ask("GET", "/finetune", key[:-1]).status_code == 401
    assert ask("GET", "/finetune", key).status_code == 200
    assert {ask("GET", path).status_code for path in ("/", "/docs", "/openapi.json", "/livez")} == {200}


def test_when_the_last_key_is_revoked_nobody_enters_until_there_is_another(inside: Service, ask: Ask) -> None:
    key = inside.keys.add(Caller("lab", ("read", "finetune")))
    inside.keys.revoke("lab")
    assert [ask("GET", "/finetune", shown).status_code for shown in (None, key)] == [401, 401]
    assert ask("POST", "/finetune", json=BODY).status_code == 401
    assert ask("GET", "/livez").status_code == 200
    another = inside.keys.add(Caller("lab-2", ("read",)))
    assert [ask("GET", "/finetune", shown).status_code for shown in (None, key, another)] == [401, 401, 200]


def test_a_service_whose_keys_are_all_revoked_starts_locked_on_any_address(inside: Service) -> None:
    folder = inside.settings.folder.parent
    options = build_parser().parse_args(["--host", "0.0.0.0", "--storage", str(folder)])
    assert not has_keys(options)
    inside.keys.add(Caller("lab", ("read",)))
    inside.keys.revoke("lab")
    assert has_keys(options)
    open_settings = Settings(storage=str(folder), address="http://127.0.0.1:1", host="0.0.0.0", has_keys=True)
    with opened(open_settings) as restarted:
        assert restarted.state.service.keys.wanted


def test_a_database_that_loses_its_keys_or_does_not_answer_opens_no_running_service(inside: Service, ask: Ask) -> None:
    key = inside.keys.add(Caller("lab", ("read",)))
    with open_database(inside.settings.database_url).begin() as connection:
        connection.execute(delete(KEYS))
    inside.keys.refresh()
    assert [ask("GET", "/finetune", shown).status_code for shown in (None, key)] == [401, 401]
    again = inside.keys.add(Caller("lab", ("read",)))
    KEYS.drop(open_database(inside.settings.database_url))
    with pytest.raises(SQLAlchemyError):
        inside.keys.refresh()
    assert [ask("GET", "/finetune", shown).status_code for shown in (None, again)] == [401, 200]


def test_scopes(inside: Service, ask: Ask) -> None:
    reader = inside.keys.add(Caller("reader", ("read",)))
    worker = inside.keys.add(Caller("worker", ("read", "finetune")))
    other = inside.keys.add(Caller("other", ("read", "finetune")))
    admin = inside.keys.add(Caller("boss", ("admin",)))
    assert ask("POST", "/finetune", reader, json=BODY).json()["type"] == "scope-missing"
    job = ask("POST", "/finetune", worker, json=BODY).json()
    assert inside.store.get(job["id"]).owner == "worker"  # type: ignore[union-attr]
    assert ask("GET", f"/finetune/{job['id']}", reader).status_code == 200
    assert ask("POST", f"/finetune/{job['id']}/cancel", other).json()["type"] == "not-yours"
    assert ask("POST", f"/finetune/{job['id']}/cancel", admin).json()["status"] == "cancelled"


def test_one_client_cannot_fill_the_queue(inside: Service, ask: Ask) -> None:
    greedy = inside.keys.add(Caller("greedy", ("read", "finetune"), queue_share=2, jobs_per_day=3))
    modest = inside.keys.add(Caller("modest", ("read", "finetune")))
    answers = [ask("POST", "/finetune", greedy, json=BODY) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [202, 202, 429]
    assert answers[2].json()["type"] == "share-full"
    assert ask("POST", "/finetune", modest, json=BODY).status_code == 202
    for answer in answers[:2]:
        ask("POST", f"/finetune/{answer.json()['id']}/cancel", greedy)
    assert ask("POST", "/finetune", greedy, json=BODY).status_code == 202
    spent = ask("POST", "/finetune", greedy, json=BODY)
    assert (spent.status_code, spent.json()["type"]) == (429, "quota-used")


def test_two_keys_may_choose_the_same_idempotency_key(inside: Service, ask: Ask) -> None:
    keys = [inside.keys.add(Caller(name, ("finetune",))) for name in ("a", "b")]
    jobs = {
        ask("POST", "/finetune", key, json=BODY, headers={"idempotency-key": "same"}).json()["id"]
        for key in [*keys, *keys]
    }
    assert len(jobs) == 2


def test_rates(inside: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("serve.keys.time.monotonic", lambda: now[0])
    caller = Caller("quick", ("read",), requests_per_minute=2)
    assert [inside.keys.wait_for(caller) for _ in range(3)] == [0.0, 0.0, 30.0]
    now[0] += 30
    assert inside.keys.wait_for(caller) == 0.0
    assert inside.keys.wait_for(caller) > 0
    now[0] += 3600  # an hour of silence is no hour's requests
    assert [inside.keys.wait_for(caller) for _ in range(3)] == [0.0, 0.0, 30.0]


def test_the_command_makes_lists_and_revokes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = ["--storage", str(tmp_path)]
    assert main(["keys", "add", "lab-3", "--scope", "read", "--queue-share", "5", *place]) == 0
    secret = capsys.readouterr().out.strip()
    store = KeyStore(open_database(f"sqlite:///{tmp_path}/service/jobs.sqlite3"))
    found = store.find(secret)
    assert found == Caller("lab-3", ("read",), queue_share=5)
    assert secret not in (tmp_path / "service" / "jobs.sqlite3").read_bytes().decode(errors="replace")
    assert main(["keys", "add", "lab-3", *place]) == 2
    assert main(["keys", "add", "x", "--scope", "root", *place]) == 2
    assert main(["keys", "add", "x", "--jobs-per-day", "0", *place]) == 2
    assert main(["keys", "revoke", "lab-3", *place]) == 0
    assert main(["keys", "revoke", "lab-3", *place]) == 2
    capsys.readouterr()
    assert main(["keys", "list", *place]) == 0
    line = capsys.readouterr().out
    assert "lab-3" in line
    assert "revoked" in line
    assert secret not in line
    store.refresh()
    assert store.find(secret) is None


def test_the_list_shows_every_limit_in_the_order_of_the_flags(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    limits = ["--queue-share", "5", "--jobs-per-day", "60", "--requests-per-minute", "700"]
    assert main(["keys", "add", "lab-3", *limits, "--storage", str(tmp_path)]) == 0
    capsys.readouterr()
    assert main(["keys", "list", "--storage", str(tmp_path)]) == 0
    assert capsys.readouterr().out.split()[:5] == ["lab-3", "read,finetune", "5", "60", "700"]


def test_who_did_what_is_logged(inside: Service, ask: Ask, tmp_path: Path) -> None:
    key = inside.keys.add(Caller("lab", ("read", "finetune")))
    ask("POST", "/finetune", key, json=BODY)
    ask("GET", "/datasets", key)
    ask("GET", "/datasets")
    ask("GET", "/livez")
    inside.access.close()
    lines = [json.loads(line) for line in (tmp_path / "storage" / "service" / "access.jsonl").read_text().splitlines()]
    told = [(line["who"], line["method"], line["path"], line["status"], line.get("audit", False)) for line in lines]
    assert told == [
        ("lab", "POST", "/finetune", 202, True),
        ("lab", "GET", "/datasets", 200, False),
        (None, "GET", "/datasets", 401, False),
    ]
    assert all(line["seconds"] >= 0 and line["at"] > 1e9 for line in lines)
    assert key not in json.dumps(lines)


def test_a_private_dataset_and_its_jobs_show_to_their_owner_alone(inside: Service, ask: Ask, tmp_path: Path) -> None:
    mine = inside.keys.add(Caller("mine", ("read", "finetune")))
    yours = inside.keys.add(Caller("yours", ("read", "finetune")))
    boss = inside.keys.add(Caller("boss", ("admin",)))
    stored = stored_name("flowers", "mine")
    shutil.copytree(tmp_path / "data" / "stripes", tmp_path / "data" / stored)
    inside.uploads.inbox.write(Upload(name="flowers", stored=stored, owner="mine", status="ready"))
    inside.datasets.look_again()
    names = [dataset["name"] for dataset in ask("GET", "/datasets", mine).json()["data"]]
    assert "flowers" in names
    assert stored not in names
    assert "flowers" not in [dataset["name"] for dataset in ask("GET", "/datasets", yours).json()["data"]]
    assert stored not in ask("GET", "/openapi.json").text
    job = ask("POST", "/finetune", mine, json={"dataset": "flowers", "steps": 3}).json()
    assert job["dataset"] == "flowers"
    for path in (f"/finetune/{job['id']}", f"/finetune/{job['id']}/weights", f"/finetune/{job['id']}/events"):
        assert ask("GET", path, yours).status_code == 404, path
    assert ask("POST", f"/finetune/{job['id']}/cancel", yours).status_code == 404
    lists = [ask("GET", "/finetune", key).json()["data"] for key in (mine, boss, yours)]
    assert [len(found) for found in lists] == [1, 1, 0]
    refused = ask("POST", "/finetune", yours, json={"dataset": "flowers", "steps": 3})
    assert refused.status_code == 404
    assert stored not in refused.text
    for name in ("flowers", stored):
        assert ask("GET", f"/datasets/{name}", yours).status_code == 404
        assert ask("DELETE", f"/datasets/{name}", yours).status_code == 404
    assert ask("DELETE", "/datasets/flowers", mine).json()["type"] == "dataset-in-use"
    ask("POST", f"/finetune/{job['id']}/cancel", mine)
    assert ask("DELETE", "/datasets/flowers", mine).status_code == 204
    assert not (tmp_path / "data" / stored).exists()


def test_nobody_gets_a_key_by_the_operators_name(inside: Service) -> None:
    with pytest.raises(ValueError, match="'operator' is taken"):
        inside.keys.add(Caller("operator", ("read",)))
    assert not inside.keys.wanted


def test_many_jobs_that_are_deleted_at_once_are_ones_own(inside: Service, ask: Ask) -> None:
    mine, yours = (inside.keys.add(Caller(name, ("read", "finetune"))) for name in ("mine", "yours"))
    jobs = {}
    for key in (mine, yours):
        jobs[key] = ask("POST", "/finetune", key, json=BODY).json()["id"]
        ask("POST", f"/finetune/{jobs[key]}/cancel", key)
    assert ask("DELETE", "/finetune?status=cancelled", mine).json()["deleted"] == [jobs[mine]]
    assert ask("GET", f"/finetune/{jobs[yours]}", yours).status_code == 200


def test_a_full_log_is_turned_over_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serve.access.MAX_BYTES", 300)
    log = AccessLog(tmp_path)
    for number in range(20):
        log.add({"path": "/" + "x" * 30, "number": number})
    log.close()
    log.add({"number": "late"})
    files = [file for end in (".5", ".4", ".3", ".2", ".1", "") if (file := tmp_path / f"access.jsonl{end}").exists()]
    assert [json.loads(line)["number"] for file in files for line in file.read_text().splitlines()] == list(range(20))
    assert max(file.stat().st_size for file in files) <= 300


def test_deleting_jobs_gives_no_quota_back(inside: Service, ask: Ask) -> None:
    key = inside.keys.add(Caller("lab", ("read", "finetune"), jobs_per_day=2))
    for _ in range(2):
        job = ask("POST", "/finetune", key, json=BODY).json()["id"]
        ask("POST", f"/finetune/{job}/cancel", key)
        assert ask("DELETE", f"/finetune/{job}", key).status_code == 204
    assert ask("POST", "/finetune", key, json=BODY).json()["type"] == "quota-used"


def test_a_deleted_job_counts_for_a_day_from_when_it_was_asked_for(
    inside: Service, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    key = inside.keys.add(Caller("lab", ("read", "finetune"), jobs_per_day=1))
    job = ask("POST", "/finetune", key, json=BODY).json()["id"]
    ask("POST", f"/finetune/{job}/cancel", key)
    monkeypatch.setattr("serve.jobs.store.time", SimpleNamespace(time=lambda: now + 20 * 3600))
    assert ask("DELETE", f"/finetune/{job}", key).status_code == 204
    assert ask("POST", "/finetune", key, json=BODY).json()["type"] == "quota-used"
    monkeypatch.setattr("serve.jobs.store.time", SimpleNamespace(time=lambda: now + 25 * 3600))
    assert ask("POST", "/finetune", key, json=BODY).status_code == 202


def compared(service: Service) -> dict[str, object]:
    """A comparison that asks for two jobs a seed."""
    for number in range(2):
        make_initialization(Path(service.storage.root), number)
    service.index.refresh()
    return {"dataset": "stripes", "initializations": sorted(service.index.by_id)[-2:], "steps": 3}


@pytest.mark.parametrize("limit", ["queue-full", "share-full", "quota-used"])
def test_a_comparison_that_is_refused_costs_nothing_and_starts_nothing(
    limit: str, inside: Service, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    body, woken = compared(inside), list[str]()
    if limit == "queue-full":
        inside.settings = dataclasses.replace(inside.settings, max_queued=4)
    share, a_day = 4 if limit == "share-full" else None, 4 if limit == "quota-used" else 5
    key = inside.keys.add(Caller("lab", ("read", "finetune"), queue_share=share, jobs_per_day=a_day))
    first = ask("POST", "/finetune", key, json=BODY).json()["id"]
    monkeypatch.setattr(inside, "hurry", lambda: woken.append("woken"))
    for _ in range(3):
        refused = ask("POST", "/comparisons", key, json={**body, "seeds": 2})
        assert (refused.status_code, refused.json()["type"]) == (429, limit)
    unknown = {**body, "initializations": [*inside.index.by_id, "nothing"], "seeds": 1}
    assert ask("POST", "/comparisons", key, json=unknown).status_code == 404
    assert woken == []
    assert [job["id"] for job in ask("GET", "/finetune", key).json()["data"]] == [first]
    assert [ask("POST", "/finetune", key, json=BODY).status_code for _ in range(3)] == [202] * 3, (
        "all are still its own"
    )


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ({"queue_share": 3}, "3 jobs of this key may wait: 2 x 2 are more."),
        ({"jobs_per_day": 3}, "This key may ask for 3 jobs in 24 hours: 2 x 2 are more."),
        ({}, "5 jobs may wait here: 2 x 3 are more."),
    ],
)
def test_a_comparison_that_never_fits_is_not_to_be_tried_again(
    limits: dict[str, int], told: str, inside: Service, ask: Ask
) -> None:
    inside.settings = dataclasses.replace(inside.settings, max_queued=5)
    key = inside.keys.add(Caller("lab", ("read", "finetune"), **limits))
    refused = ask("POST", "/comparisons", key, json={**compared(inside), "seeds": 2 if limits else 3})
    assert (refused.status_code, refused.json()["type"], refused.json()["detail"]) == (409, "too-many-jobs", told)
    assert "retry-after" not in refused.headers
