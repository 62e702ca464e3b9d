"""Telling others that a job has ended: one signed POST, tried again for hours, never to an address of our own network.

Headers and signature are those of the Standard Webhooks convention: `webhook-id` is the job's id, and
`webhook-signature` is `v1,` and the base64 of HMAC-SHA256 over `id.timestamp.body`, with the secret's bytes as the key.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import ipaddress
import json
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx
from sqlalchemy import Engine, select, update

from rayctsl.words import one_line
from serve.jobs.rows import TERMINAL, JobRow
from serve.jobs.store import JobStore
from serve.jobs.tables import JOBS, WEBHOOKS
from serve.jobs.view import dump_job, show_job
from serve.problems import log
from serve.settings import Receivers

LOOK_SECONDS = 1.0
ANSWER_SECONDS = 10.0
AT_ONCE = 8
DELAYS = (5.0, 30.0, 120.0, 600.0, 3600.0, 6 * 3600.0)  # after the first, second, … failure; then it is given up


class RefusedAddressError(ValueError):
    """An address that must not be asked."""


@dataclass(frozen=True)
class Delivery:
    """Who is to be told of which job, and how it went so far."""

    job: str
    url: str
    secret: str
    status: str
    attempts: int
    next_at: float
    error: str | None


def check_url(url: str, *, private: bool) -> None:
    """Refuse at once what can never be delivered; names are looked up when the time has come."""
    try:
        parts, asked = urlsplit(url), httpx.URL(url)
        good = parts.scheme in ("http", "https") and parts.hostname == asked.host and parts.port != 0
    except (ValueError, httpx.InvalidURL):
        good = False
    if not good or not parts.hostname or parts.username or parts.password:
        raise RefusedAddressError("it must be http:// or https:// and a host, without a name or password")
    if private:
        return
    try:
        address = ipaddress.ip_address(parts.hostname)
    except ValueError:  # a name
        return
    _check_public(address)


def resolve(host: str, port: int, *, private: bool) -> str:
    """The one address that is going to be connected to: looked up and judged once, so that no second answer counts."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        raise RefusedAddressError(f"the name {host} is not known") from None
    addresses = [ipaddress.ip_address(str(entry[4][0]).partition("%")[0]) for entry in found]
    if not private:
        for address in addresses:
            _check_public(address)
    return str(addresses[0])


def _check_public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    inner = getattr(address, "ipv4_mapped", None) or getattr(address, "sixtofour", None) or address
    if not (address.is_global and inner.is_global) or address.is_multicast:
        raise RefusedAddressError("it leads into a private network; the operator can allow that with --webhooks any")


def sign(secret: str, identifier: str, timestamp: int, body: bytes) -> str:
    message = f"{identifier}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(secret.encode(), message, hashlib.sha256)).decode()


def new_client() -> httpx.AsyncClient:
    """It follows nobody: a redirect could lead to an address that would have been refused."""
    return httpx.AsyncClient(timeout=ANSWER_SECONDS, follow_redirects=False, trust_env=False)


class Webhooks:
    """Looks for jobs that have ended and tells whoever asked to be told.

    Args:
        receivers: none, and what waits goes on waiting; those on the internet; any.
        leads: whether this service is the one that does it.
    """

    def __init__(self, engine: Engine, store: JobStore, receivers: Receivers, leads: Callable[[], bool]):
        self._engine, self._store, self._receivers, self._leads = engine, store, receivers, leads

    async def run(self) -> None:
        async with new_client() as client:
            while True:
                try:
                    if self._leads():
                        due = await asyncio.to_thread(self.due)
                        await asyncio.gather(*(self._deliver(client, each) for each in due))
                except Exception as error:
                    log.error("webhooks: %s", one_line(error, 200))
                await asyncio.sleep(LOOK_SECONDS)

    def due(self) -> list[Delivery]:
        """Those to be tried now; none while webhooks are off, for what waits is not given up."""
        if self._receivers == "off":
            return []
        ended = WEBHOOKS.c.job.in_(select(JOBS.c.id).where(JOBS.c.status.in_(TERMINAL)))
        query = select(WEBHOOKS).where(WEBHOOKS.c.status == "waiting", WEBHOOKS.c.next_at <= time.time(), ended)
        with self._engine.connect() as connection:
            rows = connection.execute(query.order_by(WEBHOOKS.c.next_at).limit(AT_ONCE))
            return [Delivery(**row._mapping) for row in rows]

    def find(self, job: str) -> Delivery | None:
        with self._engine.connect() as connection:
            row = connection.execute(select(WEBHOOKS).where(WEBHOOKS.c.job == job)).first()
            return Delivery(**row._mapping) if row else None

    async def _deliver(self, client: httpx.AsyncClient, delivery: Delivery) -> None:
        job = await asyncio.to_thread(self._store.get, delivery.job)
        if job is None:
            return
        try:
            async with asyncio.timeout(2 * ANSWER_SECONDS):
                error = await self._post(client, delivery, job)
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, TimeoutError, OSError) as failure:
            error = one_line(failure, 150) or type(failure).__name__
        await asyncio.to_thread(self._note, delivery, error)

    async def _post(self, client: httpx.AsyncClient, delivery: Delivery, job: JobRow) -> str | None:
        """Send it to the address as it was judged; returns what is wrong with the answer."""
        url = httpx.URL(delivery.url)
        port = url.port or (443 if url.scheme == "https" else 80)
        address = await asyncio.to_thread(lambda: resolve(url.host, port, private=self._receivers == "any"))
        now = int(time.time())
        body = json.dumps(
            {"type": f"finetune.{job.status}", "timestamp": now, "data": dump_job(show_job(job))}
        ).encode()
        headers = {
            "host": url.netloc.decode(),
            "content-type": "application/json",
            "user-agent": "rayctsl",
            "webhook-id": job.id,
            "webhook-timestamp": str(now),
            "webhook-signature": sign(delivery.secret, job.id, now, body),
        }
        target = url.copy_with(host=address)
        asked = client.stream("POST", target, content=body, headers=headers, extensions={"sni_hostname": url.host})
        async with asked as answer:  # whose body nobody needs
            return None if answer.is_success else f"the answer was {answer.status_code}"

    def _note(self, delivery: Delivery, error: str | None) -> None:
        attempts = delivery.attempts + 1
        values: dict[str, object] = {"attempts": attempts, "error": error, "status": "delivered"}
        if error is not None:
            over = attempts > len(DELAYS)
            delay = 0.0 if over else DELAYS[attempts - 1]
            values |= {"status": "failed" if over else "waiting", "next_at": time.time() + delay}
            log.info("webhook of job %s, try %d: %s", delivery.job, attempts, error)
        with self._engine.begin() as connection:
            connection.execute(update(WEBHOOKS).where(WEBHOOKS.c.job == delivery.job).values(values))
