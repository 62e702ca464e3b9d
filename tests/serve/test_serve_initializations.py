"""Lists, cards and downloads of initializations, also through the Hugging Face client."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from serve.bench.instance import Instance, make_initialization
from tests.serve.conftest import wait_for


def listed(client: httpx.Client) -> set[str]:
    return {card["id"] for card in client.get("/initializations").json()["data"]}


@pytest.fixture
def storage(waiting_service: Instance, waiting: httpx.Client) -> Iterator[Path]:
    """The service's storage for a test that adds initializations, which are gone again for the next."""
    folder, before = waiting_service.storage / "initializations", listed(waiting)
    kept = set(folder.iterdir())
    yield waiting_service.storage
    for made in set(folder.iterdir()) - kept:
        shutil.rmtree(made)
    wait_for(lambda: listed(waiting) == before)


@pytest.fixture(scope="module")
def cards(waiting: httpx.Client) -> list[dict]:
    return waiting.get("/initializations").json()["data"]


@pytest.fixture(scope="module")
def phi(waiting_service: Instance) -> bytes:
    return (waiting_service.storage / "initializations" / "shifting-0" / "phi.safetensors").read_bytes()


@pytest.fixture(scope="module")
def weights(cards: list[dict]) -> str:
    return f"/initializations/{next(card['id'] for card in cards if card['id'].startswith('shifting'))}/weights"


def test_list_has_every_card_newest_first_without_long_metrics(waiting: httpx.Client, cards: list[dict]) -> None:
    assert {card["method"]["name"] for card in cards} == {"shifting", "reptile", "fomaml"}
    keys = [(card["created"], card["id"]) for card in cards]
    assert keys == sorted(keys, reverse=True)
    assert all(card["metrics"] == {"accuracy": 0.5} for card in cards)
    whole = waiting.get(f"/v1/initializations/{cards[0]['id']}").json()
    assert whole["metrics"]["curve"] == [[0, 1.0], [100, 0.5]]


@pytest.mark.parametrize(
    ("query", "methods"),
    [
        ({"method": "reptile"}, {"reptile"}),
        ({"model": "resnet8"}, {"shifting", "reptile", "fomaml"}),
        ({"model": "resnet20"}, set()),
        ({"task": "greek"}, {"shifting", "reptile", "fomaml"}),
        ({"task": "georgian"}, set()),
        ({"q": "Fom greek"}, {"fomaml"}),
        ({"method": "reptile", "q": "fomaml"}, set()),
    ],
)
def test_filters(waiting: httpx.Client, query: dict, methods: set) -> None:
    answer = waiting.get("/initializations", params=query).json()
    assert {card["method"]["name"] for card in answer["data"]} == methods
    assert answer["object"] == "list"


@pytest.mark.parametrize("sort", ["id", "-id", "created", "-created", "method", "-size"])
def test_pages_join_to_the_whole_list(waiting: httpx.Client, sort: str) -> None:
    whole = [card["id"] for card in waiting.get("/initializations", params={"sort": sort}).json()["data"]]
    found: list[str] = []
    more = True
    while more:
        query = {"sort": sort, "limit": 1, **({"after": found[-1]} if found else {})}
        page = waiting.get("/initializations", params=query).json()
        found += [card["id"] for card in page["data"]]
        assert found == whole[: len(found)]
        more = page["has_more"]
    assert len(page["data"]) == 1  # who says that there is more has more
    assert found == whole
    assert len(found) == 3
    if sort == "id":
        assert found == sorted(found)


def test_new_damaged_and_deleted_initializations_are_noticed(storage: Path, waiting: httpx.Client) -> None:
    before, bad = listed(waiting), storage / "initializations" / "bad"
    bad.mkdir()
    (bad / "card.json").write_text("{")
    made = make_initialization(storage, 7, "leap")
    wait_for(lambda: listed(waiting) == {*before, made.id})
    shutil.rmtree(made.storage.root)
    wait_for(lambda: listed(waiting) == before)


def test_download_with_checksum_as_etag(waiting: httpx.Client, weights: str, phi: bytes) -> None:
    answer = waiting.get(weights)
    assert answer.content == phi
    assert answer.headers["etag"] == f'"{hashlib.sha256(phi).hexdigest()}"'
    assert answer.headers["content-type"] == "application/octet-stream"
    assert waiting.get(weights, headers={"if-none-match": answer.headers["etag"]}).status_code == 304
    for known in ("*", f'"other", W/{answer.headers["etag"]}'):
        assert waiting.get(weights, headers={"if-none-match": known}).status_code == 304
    assert waiting.get(weights, headers={"if-none-match": '"other"'}).content == phi
    head = waiting.head(weights)
    assert (head.headers["content-length"], head.content) == (str(len(phi)), b"")


@pytest.mark.parametrize(
    ("asked", "status", "first", "last"),
    [
        ("bytes=0-99", 206, 0, 100),
        ("bytes=100-", 206, 100, None),
        ("bytes=-50", 206, -50, None),
        ("bytes=5-99999999", 206, 5, None),
        ("bytes=-99999999", 206, 0, None),
        ("bytes=9-3", 200, 0, None),
        ("bytes=0-1,4-5", 200, 0, None),
        ("lines=1-2", 200, 0, None),
        ("bytes=-", 200, 0, None),
    ],
)
def test_ranges(
    waiting: httpx.Client, weights: str, phi: bytes, asked: str, status: int, first: int, last: int | None
) -> None:
    answer = waiting.get(weights, headers={"range": asked})
    assert answer.status_code == status
    assert answer.content == phi[first:last]
    if status == 206:
        start = len(phi) + first if first < 0 else first
        assert answer.headers["content-range"] == f"bytes {start}-{start + len(answer.content) - 1}/{len(phi)}"


def test_what_was_sent_is_counted_and_no_more(waiting: httpx.Client, weights: str, phi: bytes) -> None:
    def downloaded() -> float:
        (value,) = re.findall(r"^rayctsl_download_bytes_total (.+)$", waiting.get("/metrics").text, re.MULTILINE)
        return float(value)

    before = downloaded()
    waiting.get(weights, headers={"range": "bytes=100-149"})
    waiting.head(weights)
    wait_for(lambda: downloaded() == before + 50)
    waiting.get(weights)
    wait_for(lambda: downloaded() == before + 50 + len(phi))


def test_range_beyond_the_end_and_if_range(waiting: httpx.Client, weights: str, phi: bytes) -> None:
    beyond = waiting.get(weights, headers={"range": f"bytes={len(phi)}-"})
    assert beyond.status_code == 416
    assert beyond.headers["content-range"] == f"bytes */{len(phi)}"
    assert beyond.headers["content-type"] == "application/problem+json"
    etag = waiting.head(weights).headers["etag"]
    assert waiting.get(weights, headers={"range": "bytes=10-", "if-range": etag}).content == phi[10:]
    assert waiting.get(weights, headers={"range": "bytes=10-", "if-range": '"old"'}).content == phi


def test_damaged_weights_are_not_served(storage: Path, waiting: httpx.Client) -> None:
    made = make_initialization(storage, 9, "reptile")
    path = Path(made.storage.root) / "phi.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    wait_for(lambda: waiting.get(f"/initializations/{made.id}/weights").status_code != 404)
    answer = waiting.get(f"/initializations/{made.id}/weights")
    path.write_bytes(content)
    assert answer.status_code == 503
    assert "damaged" in answer.json()["detail"]
    assert waiting.get(f"/initializations/{made.id}/weights").content == content


def test_hugging_face_client_downloads_unchanged(
    waiting_service: Instance, weights: str, phi: bytes, tmp_path: Path
) -> None:
    from huggingface_hub import HfApi, hf_hub_download, snapshot_download
    from huggingface_hub.errors import EntryNotFoundError, RepositoryNotFoundError

    repository = f"rayctsl/{weights.split('/')[2]}"
    place = {"endpoint": waiting_service.url, "cache_dir": tmp_path / "hub", "token": False}
    path = Path(hf_hub_download(repository, "phi.safetensors", **place))
    assert path.read_bytes() == phi
    folder = Path(snapshot_download(repository, **place))
    assert sorted(file.name for file in folder.iterdir()) == ["README.md", "card.json", "phi.safetensors"]
    card = json.loads((folder / "card.json").read_text())
    assert card["sha256"] == hashlib.sha256(phi).hexdigest()
    info = HfApi(waiting_service.url, token=False).model_info(repository)
    assert info.sha == folder.name
    assert Path(hf_hub_download(repository, "card.json", revision=info.sha, **place)).exists()
    with pytest.raises(EntryNotFoundError):
        hf_hub_download(repository, "nothing.bin", **place)
    with pytest.raises(RepositoryNotFoundError):
        hf_hub_download("rayctsl/nothing", "phi.safetensors", **place)


def test_lists_and_downloads_work_without_a_cluster(waiting: httpx.Client, weights: str) -> None:
    ready = waiting.get("/readyz")
    assert ready.status_code == 200
    assert ready.json() == {
        "status": "degraded",
        "ray": "down",
        "dispatcher": "running",
        "reasons": ["Ray does not answer: jobs wait."],
    }
    assert waiting.get(weights).status_code == 200
    assert "rayctsl_ray_up 0.0" in waiting.get("/metrics").text
