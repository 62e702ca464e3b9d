"""Bad input gets the right 4xx with one sentence and leaves nothing behind; strangers get nothing at all."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from serve.bench.instance import Instance
from tests.serve.warm import WarmInstance

TOKEN = "correct-horse-battery"
GOOD = {"dataset": "stripes", "steps": 3}


def assert_problem(answer: httpx.Response, *statuses: int) -> dict:
    assert answer.status_code in statuses, (answer.status_code, answer.text)
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == answer.status_code
    assert problem["detail"]
    assert "\n" not in problem["detail"]
    assert "Traceback" not in answer.text
    return problem


@pytest.fixture
def nothing_stored(waiting_service: Instance, waiting: httpx.Client) -> Iterator[None]:
    def everything() -> tuple[int, list[str]]:
        total = sum(1 for _ in _all_jobs(waiting))
        service = waiting_service.storage / "service"
        files = sorted(str(p) for p in waiting_service.storage.rglob("*") if service not in p.parents)
        return total, files

    before = everything()
    yield
    assert everything() == before


def _all_jobs(client: httpx.Client) -> Iterator[dict]:
    after: dict = {}
    while True:
        page = client.get("/finetune", params={"limit": 100, **after}).json()
        yield from page["data"]
        if not page["has_more"]:
            return
        after = {"after": page["data"][-1]["id"]}


@pytest.mark.usefixtures("nothing_stored")
@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"dataset": "stripe"}, 404),
        ({"dataset": "cub"}, 409),
        ({"dataset": ""}, 422),
        ({"dataset": None}, 422),
        ({"dataset": "../stripes"}, 422),
        ({"dataset": "/etc/passwd"}, 422),
        ({"dataset": "file:///etc/passwd"}, 422),
        ({"dataset": "http://169.254.169.254/"}, 422),
        ({"dataset": "os.system"}, 422),
        ({"dataset": "stripes; rm -rf /"}, 422),
        ({"dataset": "stripes\n"}, 422),
        ({"dataset": "x" * 1000}, 422),
        ({"initialization": "no-such-thing"}, 404),
        ({"initialization": "../../etc"}, 422),
        ({"initialization": "$(id)"}, 422),
        ({"initialization": "..%2f"}, 422),
        ({"steps": 0}, 422),
        ({"steps": 10**9}, 422),
        ({"steps": 10**400}, 422),
        ({"steps": "5"}, 422),
        ({"steps": True}, 422),
        ({"steps": 1.5}, 422),
        ({"train_size": 0}, 422),
        ({"seed": -1}, 422),
        ({"seed": 2**31}, 422),
        ({"alpha": 0}, 422),
        ({"alpha": "NaN"}, 422),
        ({"batch_size": 10**6}, 422),
        ({"evaluate_every": 0}, 422),
        ({"label": "x" * 201}, 422),
        ({"label": 5}, 422),
        ({"compare_with_scratch": "yes"}, 422),
        ({"data_root": "/etc"}, 422),
    ],
)
def test_bad_values(waiting: httpx.Client, change: dict, status: int) -> None:
    problem = assert_problem(waiting.post("/finetune", json={**GOOD, **change}), status)
    (value,) = change.values()
    if isinstance(value, str) and len(value) > 20:
        assert value not in json.dumps(problem)


def test_unknown_names_get_a_proposal(waiting: httpx.Client) -> None:
    assert "did you mean 'stripes'?" in waiting.post("/finetune", json={"dataset": "stripe"}).json()["detail"]
    assert "rayctsl.data prepare cub" in waiting.post("/finetune", json={"dataset": "cub"}).json()["detail"]


@pytest.mark.usefixtures("nothing_stored")
@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"", "application/json", 422),
        (b"{", "application/json", 400),
        (b"null", "application/json", 422),
        (b"[]", "application/json", 422),
        (b'"x"', "application/json", 422),
        (b"\xff\xfe", "application/json", 400),
        (b"[" * 60_000, "application/json", 400),
        (b'{"dataset": "stripes", "steps": NaN}', "application/json", 422),
        (b'{"dataset": "stripes", "label": "\\ud800"}', "application/json", 422),
        (json.dumps(GOOD).encode(), "text/plain", 415),
        (json.dumps(GOOD).encode(), "application/x-www-form-urlencoded", 415),
        (b"dataset=stripes", "multipart/form-data; boundary=x", 415),
        (b" " * 65_537, "application/json", 413),
    ],
)
def test_bad_bodies(waiting: httpx.Client, body: bytes, kind: str, status: int) -> None:
    assert_problem(waiting.post("/finetune", content=body, headers={"content-type": kind}), status)


@pytest.mark.usefixtures("nothing_stored")
def test_body_without_a_length_is_limited_too(waiting: httpx.Client) -> None:
    chunks = (b" " * 8192 for _ in range(100))
    answer = waiting.post("/finetune", content=chunks, headers={"content-type": "application/json"})
    assert_problem(answer, 413)


@pytest.mark.usefixtures("nothing_stored")
@pytest.mark.parametrize("key", [b"", b"x" * 129, b"two words", b"caf\xe9"])
def test_bad_idempotency_keys(waiting: httpx.Client, key: bytes) -> None:
    assert_problem(waiting.post("/finetune", json=GOOD, headers=[(b"idempotency-key", key)]), 422)


PATHS = [
    "..",
    "%2e%2e",
    "%252e%252e",
    "..%2f..%2fetc%2fpasswd",
    "..%5c..%5cwindows",
    "%00",
    "a%00b",
    "%2fetc%2fpasswd",
    "%E2%80%A5",
    "x" * 3000,
    "ft-..",
    "ft-0123456789abcdeg",
    "'%20or%201=1--",
]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "template",
    [
        "/initializations/{}",
        "/initializations/{}/weights",
        "/finetune/{}",
        "/finetune/{}/weights",
        "/finetune/{}/events",
        "/static/{}",
        "/rayctsl/{}/resolve/main/phi.safetensors",
        "/rayctsl/x/resolve/main/{}",
        "/api/models/rayctsl/{}",
        "/v1/initializations/{}",
    ],
)
def test_path_like_names_open_nothing(waiting_service: Instance, template: str, path: str) -> None:
    # A bare connection: clients tidy such paths up before they send them.
    answer = raw_get(waiting_service, template.format(path))
    assert answer.startswith(("HTTP/1.1 404", "HTTP/1.1 422", "HTTP/1.1 405"))
    assert "root:" not in answer
    assert "application/problem+json" in answer


def raw_get(service: Instance, target: str, host: str = "127.0.0.1") -> str:
    import socket

    with socket.create_connection(("127.0.0.1", service.port)) as connection:
        request = f"GET {target} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n"
        connection.sendall(request.encode())
        answer = b""
        while block := connection.recv(65536):
            answer += block
    return answer.decode(errors="replace")


@pytest.mark.parametrize("path", ["/finetune/ft-0123456789abcdef/cancel", "/finetune/ft-0123456789abcdef"])
def test_unknown_jobs(waiting: httpx.Client, path: str) -> None:
    method = "POST" if path.endswith("cancel") else "GET"
    assert_problem(waiting.request(method, path), 404)


def test_wrong_methods_name_all_that_work(waiting: httpx.Client) -> None:
    answer = waiting.put("/finetune")
    assert_problem(answer, 405)
    assert answer.headers["allow"] == "GET, HEAD, POST, DELETE"
    assert_problem(waiting.get("/nothing"), 404)


def test_other_hosts_and_pages_are_refused(waiting_service: Instance, waiting: httpx.Client) -> None:
    assert raw_get(waiting_service, "/livez", host="evil.example").startswith("HTTP/1.1 400")
    assert raw_get(waiting_service, "/livez", host=f"localhost:{waiting_service.port}").startswith("HTTP/1.1 200")
    foreign = {"origin": "https://evil.example"}
    assert_problem(waiting.post("/finetune", json=GOOD, headers=foreign), 403)
    assert_problem(waiting.post("/finetune/ft-0123456789abcdef/cancel", headers=foreign), 403)
    own = {"origin": waiting_service.url}
    assert_problem(waiting.post("/finetune/ft-0123456789abcdef/cancel", headers=own), 404)
    answer = waiting.options("/finetune", headers={**foreign, "access-control-request-method": "POST"})
    assert "access-control-allow-origin" not in answer.headers


def test_headers_that_keep_browsers_safe(waiting: httpx.Client) -> None:
    page = waiting.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert "script-src" not in page.headers["content-security-policy"]
    assert page.headers["content-security-policy"].startswith("default-src 'self';")
    data = waiting.get("/initializations")
    assert data.headers["content-security-policy"].startswith("default-src 'none'")
    for answer in (page, data, waiting.get("/nothing")):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "server" not in answer.headers


@pytest.fixture(scope="module")
def locked(make_world: Callable[[], Path]) -> Iterator[Instance]:
    with WarmInstance(make_world(), "--address", "http://127.0.0.1:1", token=TOKEN).running() as instance:
        yield instance


OPEN = ["/", "/livez", "/readyz", "/v1/livez", "/v1/readyz", "/openapi.json"]


def test_with_a_token_every_other_route_wants_it(locked: Instance) -> None:
    headers = {"authorization": f"Bearer {TOKEN}"}
    with httpx.Client(base_url=locked.url, trust_env=False) as client:
        document = client.get("/openapi.json", headers=headers).json()
        assert document["security"] == [{"token": []}]
        paths = [(method, path) for path, item in document["paths"].items() for method in item]
        assert len(paths) > 14
        for method, path in [*paths, ("get", "/nothing")]:
            for prefix in ("", "/v1"):
                answer = client.request(method, prefix + path)
                if prefix + path in OPEN:
                    assert answer.status_code == 200
                else:
                    assert_problem(answer, 401)
                    assert answer.headers["www-authenticate"] == "Bearer"
        assert client.get("/").status_code == 200
        assert client.get("/initializations", headers=headers).status_code == 200


@pytest.mark.parametrize(
    "value",
    ["", "Bearer", "Bearer wrong", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}"],
)
def test_wrong_tokens(locked: Instance, value: str) -> None:
    answer = httpx.get(f"{locked.url}/initializations", headers={"authorization": value}, trust_env=False)
    assert_problem(answer, 401)
    assert TOKEN not in answer.text
    assert "?token=" not in answer.text
    assert_problem(httpx.get(f"{locked.url}/initializations?token={TOKEN}", trust_env=False), 401)


def test_requests_are_counted_by_route_and_not_by_path(waiting: httpx.Client) -> None:
    waiting.get("/initializations/some-unheard-of-name")
    text = waiting.get("/metrics").text
    assert 'route="/initializations/{id}"' in text
    assert "unheard" not in text


def test_nothing_unpickles_and_the_service_does_not_import_ray(python: str) -> None:
    root = Path(__file__).parent.parent.parent
    sources = [*(root / "serve").rglob("*.py"), *(root / "rayctsl" / "jobs").rglob("*.py")]
    for path in sources:
        text = path.read_text()
        assert "pickle.load" not in text, path
        assert "torch.load" not in text, path
    code = "import sys, serve.app; sys.exit('ray' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([python, "-c", code], check=False).returncode == 0
