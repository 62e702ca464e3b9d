"""What the service is told when it starts, checked once; and the folder where it keeps what belongs to it alone."""

from __future__ import annotations

import hashlib
import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rayctsl.registry import storage_root
from rayctsl.storage import Storage

Receivers = Literal["off", "public", "any"]  # of webhooks
BOUNDS: dict[str, tuple[float, float]] = {  # of every number, lowest and highest
    "port": (0, 65535),
    "max_running": (1, 10_000),
    "max_queued": (1, 1_000_000),
    "max_attempts": (1, 100),
    "max_steps": (1, 100_000),
    "max_streams": (1, 100_000),
    "max_predictions": (1, 1000),
    "max_connections": (10, 1_000_000),
    "max_connections_per_address": (1, 1_000_000),
    "request_seconds": (0.1, 3600),
    "job_cpus": (0.001, 10_000),
    "job_gpus": (0, 1000),
    "job_limit_seconds": (1, 1e9),
    "checkpoint_seconds": (0.1, 1e6),
    "worker_idle_seconds": (1, 1e9),
    "worker_start_seconds": (1, 1e6),
    "warm_workers": (0, 10_000),
    "body_limit": (1024, 2**30),
    "image_limit": (1024, 2**30),
    "batch_limit": (1024, 2**30),
    "upload_limit": (1024, 2**40),
    "upload_share": (1024, 2**50),
    "keep_jobs_days": (0.001, 100_000),
    "keep_models_days": (0.001, 100_000),
    "keep_datasets_days": (0.001, 100_000),
}


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
    max_predictions: int = 8  # that run or wait
    max_connections: int = 1000
    max_connections_per_address: int = 256
    request_seconds: float = 10.0  # for the head of a request to come
    job_cpus: float = 1.0
    job_gpus: float = 0.0
    job_limit_seconds: float = 24 * 3600.0
    checkpoint_seconds: float = 30.0
    worker_idle_seconds: float = 120.0
    worker_start_seconds: float = 120.0  # a running worker without a sign of life gives up its jobs after these
    warm_workers: int = 0  # kept ready even when no job waits
    body_limit: int = 64 * 1024
    image_limit: int = 10 * 1024 * 1024
    batch_limit: int = 32 * 1024 * 1024  # of many images at once
    upload_limit: int = 2 * 1024**3
    upload_share: int = 20 * 1024**3  # of all datasets that one key has sent, as they are kept

    keep_jobs_days: float | None = None  # after their end; None: for ever
    keep_models_days: float | None = None
    keep_datasets_days: float | None = None  # that were uploaded, after their last use
    webhooks: Receivers = "public"  # to which addresses: none, those of the internet, any

    has_keys: bool = False  # API keys were made before the start

    def __post_init__(self) -> None:
        # What travels to other processes and machines must mean the same there.
        object.__setattr__(self, "storage", str(Storage(storage_root(self.storage))))
        if self.data_root is not None and "://" not in self.data_root:
            object.__setattr__(self, "data_root", os.path.abspath(os.path.expanduser(self.data_root)))
        if not is_loopback(self.host) and not self.token and not self.has_keys:
            raise ValueError(
                f"without a token the service binds to loopback only, not to {self.host}: set RAYCTSL_TOKEN, "
                "or make a key with python -m serve keys add"
            )
        if self.token is not None and (
            len(self.token) < 16 or not self.token.isascii() or not self.token.isprintable()
        ):
            raise ValueError("RAYCTSL_TOKEN must have 16 or more printable ASCII characters")
        for name, (low, high) in BOUNDS.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:  # which a NaN is not either
                raise ValueError(f"{name.replace('_', '-')} must be between {low:g} and {high:g}, not {value:g}")

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
