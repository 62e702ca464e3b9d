"""API keys: who may do what, how often, and how much of the queue is theirs.

A key is shown once, when it is made; the database holds its sha256 only (keys are 256 random bits, so a slow hash
would add nothing). `RAYCTSL_TOKEN` is one more key, the operator's, with every scope. `python -m serve keys` makes,
lists and revokes them; a running service sees a change within two seconds.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import threading
import time
from dataclasses import dataclass
from typing import Literal, get_args

from sqlalchemy import Engine, insert, select, update

from serve.jobs.tables import KEYS

Scope = Literal["read", "finetune", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,47}")
PREFIX = "rayctsl_"
REFRESH_SECONDS = 2.0
OPERATOR = "operator"


@dataclass(frozen=True)
class Caller:
    """Whoever sent a request. Example: Caller("lab-3", ("read", "finetune"), queue_share=10)"""

    name: str | None  # None: a service without keys, which serves this machine only
    scopes: tuple[str, ...] = SCOPES
    queue_share: int | None = None  # jobs of it that may wait
    jobs_per_day: int | None = None
    requests_per_minute: int | None = None

    def may(self, scope: Scope) -> bool:
        return scope in self.scopes or "admin" in self.scopes

    def owns(self, owner: str | None) -> bool:
        """Whether it may change what belongs to `owner`."""
        return self.may("admin") or self.name == owner


NOBODY_IN_PARTICULAR = Caller(None)


class KeyStore:
    """The keys of a database, kept in memory: who asks never waits for the database."""

    def __init__(self, engine: Engine, token: str | None = None):
        self._engine, self._lock = engine, threading.Lock()
        self._operator = {_hash(token): Caller(OPERATOR)} if token else {}
        self._callers: dict[str, Caller] = {}
        self._has_had_keys = False
        self._buckets: dict[str, tuple[float, float]] = {}  # requests left, as of when
        self.refresh()

    @property
    def wanted(self) -> bool:
        """Whether callers must show a key: as soon as one was made, and for good; revoking the last opens nothing."""
        return bool(self._operator) or self._has_had_keys

    def find(self, secret: str) -> Caller | None:
        """Who shows this key; by its hash, so that the time it takes says nothing about the key."""
        digest = _hash(secret)
        return self._operator.get(digest) or self._callers.get(digest)

    def wait_for(self, caller: Caller) -> float:
        """Seconds until the caller may ask again; 0 takes one of its requests."""
        rate = caller.requests_per_minute
        if rate is None or caller.name is None:
            return 0.0
        with self._lock:
            now = time.monotonic()
            left, at = self._buckets.get(caller.name, (float(rate), now))
            left = min(float(rate), left + (now - at) * rate / 60)
            self._buckets[caller.name] = (left - (left >= 1), now)
            return 0.0 if left >= 1 else (1 - left) * 60 / rate

    def add(self, caller: Caller) -> str:
        """Make a key and return it, for the only time."""
        _check(caller)
        secret = PREFIX + secrets.token_hex(32)
        values = {
            "name": caller.name,
            "hash": _hash(secret),
            "scopes": " ".join(caller.scopes),
            "queue_share": caller.queue_share,
            "jobs_per_day": caller.jobs_per_day,
            "requests_per_minute": caller.requests_per_minute,
            "created_at": round(time.time(), 3),
        }
        with self._engine.begin() as connection:
            if connection.execute(select(KEYS.c.name).where(KEYS.c.name == caller.name)).first():
                raise ValueError(f"there is a key {caller.name} already (a revoked name is not used again)")
            connection.execute(insert(KEYS).values(values))
        self.refresh()
        return secret

    def revoke(self, name: str) -> None:
        with self._engine.begin() as connection:
            change = update(KEYS).where(KEYS.c.name == name, KEYS.c.revoked_at.is_(None))
            if connection.execute(change.values(revoked_at=round(time.time(), 3))).rowcount == 0:
                raise ValueError(f"there is no key {name} that could be revoked; `serve keys list` shows all")
        self.refresh()

    def all(self) -> list[tuple[Caller, float, float | None]]:
        """Every key with the times when it was made and revoked."""
        with self._engine.connect() as connection:
            rows = connection.execute(select(KEYS).order_by(KEYS.c.created_at))
            return [(_caller(row._mapping), row.created_at, row.revoked_at) for row in rows]

    def refresh(self) -> None:
        """Look at the database; the service does so every two seconds."""
        with self._engine.connect() as connection:
            rows = connection.execute(select(KEYS)).all()
        self._has_had_keys = self._has_had_keys or bool(rows)  # also of rows that somebody has deleted since
        self._callers = {row.hash: _caller(row._mapping) for row in rows if row.revoked_at is None}


def _caller(row: object) -> Caller:
    values = dict(row)  # type: ignore[call-overload]
    limits = {name: values[name] for name in ("queue_share", "jobs_per_day", "requests_per_minute")}
    return Caller(values["name"], tuple(values["scopes"].split()), **limits)


def _check(caller: Caller) -> None:
    if caller.name is None or not NAME.fullmatch(caller.name) or caller.name == OPERATOR:
        raise ValueError("a key's name has up to 48 small letters, digits, dots, dashes; 'operator' is taken")
    unknown = [scope for scope in caller.scopes if scope not in SCOPES]
    if unknown or not caller.scopes:
        raise ValueError(f"scopes are {', '.join(SCOPES)}, not {', '.join(unknown) or 'none'}")
    for limit in (caller.queue_share, caller.jobs_per_day, caller.requests_per_minute):
        if limit is not None and limit < 1:
            raise ValueError("a key's limits must be at least 1")


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()
