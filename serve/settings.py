"""What the service is told when it starts, checked once; and the folder where it keeps what belongs to it alone."""

from __future__ import annotations

import hashlib
import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path

from rayctsl.registry import storage_root
from rayctsl.storage import Storage


@dataclass(frozen=True)
class Settings:
    """Limits are per service. Example: Settings(storage="/data/storage", max_running=4)"""

    storage: str
    data_root: str | None = None
    database: str | None = None  # an SQLAlchemy URL; a SQLite file in the service's folder when absent
    host: str = "127.0.0.1"
    port: int = 8000
    address: str | None = None  # a dashboard's http address, `auto`, or none: start Ray here
    token: str | None = None
    allowed_hosts: tuple[str, ...] = ()
    max_running: int = 2
    max_queued: int = 100
    max_attempts: int = 3
    max_steps: int = 100_000
    max_streams: int = 200
    job_cpus: float = 1.0
    job_gpus: float = 0.0
    job_limit_seconds: float = 24 * 3600.0
    checkpoint_seconds: float = 30.0
    worker_idle_seconds: float = 120.0
    warm_workers: int = 0  # kept ready even when no job waits
    body_limit: int = 64 * 1024
    image_limit: int = 10 * 1024 * 1024

    def __post_init__(self) -> None:
        if not is_loopback(self.host) and not self.token:
            raise ValueError(
                f"without a token the service binds to loopback only, not to {self.host}: set RAYCTSL_TOKEN"
            )
        if self.token is not None and (
            len(self.token) < 16 or not self.token.isascii() or not self.token.isprintable()
        ):
            raise ValueError("RAYCTSL_TOKEN must have 16 or more printable ASCII characters")
        for name in ("max_running", "max_queued", "max_attempts"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name.replace('_', '-')} must be at least 1")
        if not 0 <= self.port <= 65535:
            raise ValueError(f"{self.port} is not a port number")

    @property
    def folder(self) -> Path:
        """Where the service keeps its database, its Ray and its cache: beside local jobs, else in the user's cache."""
        storage = Storage(storage_root(self.storage))
        if storage.local:
            return Path(storage.root) / "service"
        key = hashlib.sha256(storage.base.encode()).hexdigest()[:16]
        return Path(os.environ.get("RAYCTSL_CACHE") or Path.home() / ".cache" / "rayctsl") / "service" / key

    @property
    def database_url(self) -> str:
        return self.database or f"sqlite:///{self.folder / 'jobs.sqlite3'}"

    @property
    def may_be_several(self) -> bool:
        """Whether other services may share the storage: with a database server, and without a Ray of our own."""
        return self.address is not None and not self.database_url.startswith("sqlite")

    @property
    def service_name(self) -> str:
        """Tells this service's workers apart from others' on the same cluster."""
        return hashlib.sha256(str(Storage(storage_root(self.storage))).encode()).hexdigest()[:8]


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
