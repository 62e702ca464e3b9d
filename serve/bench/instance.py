"""A real service in a process of its own, on a free port, with small made data; for measurements and proofs."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np

from rayctsl.config import ModelConfig, build_config
from rayctsl.data.store import SplitInfo, write_split
from rayctsl.ports import free_ports
from rayctsl.registry import Initialization, save_initialization
from rayctsl.storage import Storage

DATASET = "stripes"


def make_dataset(data_root: Path, num_train: int = 48, num_test: int = 24) -> None:
    """Three classes of 8 x 8 images: a bright band at the top, in the middle or at the bottom."""
    random = np.random.default_rng(0)
    for split, count in (("train", num_train), ("test", num_test)):
        labels = np.arange(count) % 3
        images = random.integers(0, 60, (count, 8, 8, 1), dtype=np.uint8)
        for image, label in zip(images, labels, strict=True):
            image[2 * label : 2 * label + 3] += 150
        info = SplitInfo(DATASET, split, (8, 8, 1), ("top", "middle", "bottom"), source="imported from nothing")
        write_split(data_root / DATASET / f"{split}.arrow", images, labels, info)


def make_initialization(storage: Path, seed: int = 0, method: str = "shifting") -> Initialization:
    """A tiny backbone with random weights, saved as training would."""
    from rayctsl.models import build_model, find_head

    config = build_config({
        "seed": seed,
        "model": {"name": "resnet8", "width": 4},
        "data": {"tasks": ["latin", "greek"]},
        "method": {"name": method},
    })  # fmt: skip
    module = build_model(ModelConfig(name="resnet8", width=4), 3, seed)
    head = find_head(module)
    phi = {name: value.detach().clone() for name, value in module.named_parameters() if not name.startswith(head)}
    metrics = {"accuracy": 0.5, "curve": [[0, 1.0], [100, 0.5]]}
    place = Storage(storage).inside(f"initializations/{method}-{seed}")
    return save_initialization(place, phi, config, spent={"inner": 200}, metrics=metrics)


class Instance:
    """`python -m serve` as a child process."""

    def __init__(self, folder: Path, *options: str, port: int | None = None, token: str | None = None):
        self.storage, self.data = folder / "storage", folder / "data"
        self.port = port or free_ports(1)[0]
        self.url = f"http://127.0.0.1:{self.port}"
        self._command = [sys.executable, "-m", "serve", "--storage", str(self.storage), "--data-root", str(self.data)]
        self._command += ["--port", str(self.port), *options]
        self.log = folder / "service.log"
        self._environment = {**os.environ, **({"RAYCTSL_TOKEN": token} if token else {})}
        self.process: subprocess.Popen | None = None

    def start(self, wait_seconds: float = 120.0) -> None:
        self.process = self._launch()
        deadline = time.monotonic() + wait_seconds
        with httpx.Client(base_url=self.url, timeout=2.0, trust_env=False) as client:  # made once: its TLS costs 30 ms
            while time.monotonic() < deadline and self.process.poll() is None:
                with contextlib.suppress(httpx.HTTPError):
                    if client.get("/livez").status_code == 200:
                        return
                time.sleep(0.05)
        raise RuntimeError(f"the service did not start: {self.log.read_text()[-2000:]}")

    def _launch(self) -> subprocess.Popen:
        with self.log.open("ab") as log:
            return subprocess.Popen(self._command, stdout=log, stderr=log, env=self._environment)

    def kill(self) -> None:
        """As a power cut would."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    @contextlib.contextmanager
    def running(self) -> Iterator[Instance]:
        self.start()
        try:
            yield self
        finally:
            self.stop()


def finished_job(service: Instance, seconds: float = 300.0) -> str:
    """A job whose model can be asked to predict."""
    with httpx.Client(base_url=service.url, timeout=30.0, trust_env=False) as http:
        job = http.post("/finetune", json={"dataset": DATASET, "steps": 3}).json()["id"]
        deadline = time.monotonic() + seconds
        while (status := http.get(f"/finetune/{job}").json()["status"]) != "succeeded":
            assert status != "failed", "the job failed"
            assert time.monotonic() < deadline, f"the job is still {status}"
            time.sleep(0.2)
    return str(job)


def resident(pid: int) -> float:
    """Megabytes of memory that a process holds."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return float("nan")
