"""Ray's job server over HTTP: four calls. The service never imports ray and is never a driver, so a cluster's death
cannot take it along.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import httpx

from serve.problems import log

ENDED = ("STOPPED", "SUCCEEDED", "FAILED")
TIMEOUT = httpx.Timeout(20.0, connect=3.0)
SUBMIT_TIMEOUT = httpx.Timeout(120.0, connect=3.0)  # a first submission takes many seconds on a busy head


class RayUnreachableError(Exception):
    """The cluster does not answer, or not with sense."""


class RayJobs:
    """Submit, look at and stop Ray jobs. `url` may change when a cluster is started anew."""

    def __init__(self, url: str | None, token: str | None = None, transport: httpx.AsyncBaseTransport | None = None):
        self.url, self.token = url, token
        self._http = httpx.AsyncClient(timeout=TIMEOUT, trust_env=False, transport=transport)

    async def close(self) -> None:
        await self._http.aclose()

    async def is_up(self, seconds: float = 20.0) -> bool:
        try:
            return (await self._ask("GET", "/api/version", timeout=seconds)).status_code == 200
        except RayUnreachableError:
            return False

    async def status(self, submission: str) -> str | None:
        """PENDING, RUNNING, STOPPED, SUCCEEDED or FAILED; None when Ray does not know the job."""
        answer = await self._ask("GET", f"/api/jobs/{submission}")
        if answer.status_code == 404:
            return None
        if answer.status_code != 200:
            raise RayUnreachableError(f"the job server answers {answer.status_code}")
        details = answer.json()
        if details.get("status") == "FAILED":
            log.warning("Ray says that %s failed: %s", submission, str(details.get("message"))[-500:])
        return str(details.get("status"))

    async def submit(self, submission: str, entrypoint: str, cpus: float, gpus: float, env: dict[str, str]) -> None:
        """Start a job; one that exists already under this name is the same job, which is a success."""
        body: dict[str, Any] = {
            "submission_id": submission,
            "entrypoint": entrypoint,
            "entrypoint_num_cpus": cpus,
            "runtime_env": {"env_vars": env},
        }
        if gpus:
            body["entrypoint_num_gpus"] = gpus
        answer = await self._ask("POST", "/api/jobs/", json=body, timeout=SUBMIT_TIMEOUT)
        # A second submission of one name is answered with a 500 and a traceback: ask whether the job is there.
        if answer.status_code != 200 and await self.status(submission) is None:
            raise RayUnreachableError(f"the job server refused a job with {answer.status_code}")

    async def stop(self, submission: str) -> None:
        await self._ask("POST", f"/api/jobs/{submission}/stop")

    async def _ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        if self.url is None:
            raise RayUnreachableError("there is no cluster yet")
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        try:
            return await self._http.request(method, self.url + path, headers=headers, **options)
        except httpx.HTTPError as error:
            raise RayUnreachableError(f"{type(error).__name__} at {self.url}") from None


def cluster_token() -> str | None:
    """The token of an existing cluster, found where Ray's own tools look; only when RAY_AUTH_MODE asks for one."""
    if os.environ.get("RAY_AUTH_MODE") != "token":
        return None
    if token := os.environ.get("RAY_AUTH_TOKEN"):
        return token.strip()
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
    try:
        return path.read_text().strip()
    except OSError:
        raise ValueError(f"RAY_AUTH_MODE is token, but {path} cannot be read") from None
