"""What the whole test run shares: one thread per process, one data root, one Ray cluster."""

from __future__ import annotations

import gc
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

# Before anything imports torch or ray: results do not depend on the machine, and nothing is phoned home.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # learners of several threads do not spin while others have work
os.environ["RAY_AUTH_MODE"] = "disabled"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112
os.environ["RAY_IGNORE_UNHANDLED_ERRORS"] = "1"
# Ray warns of a change of its own in how GPUs are hidden from actors without one; warnings are errors here.
os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"

import numpy as np
import pytest
import torch

from rayctsl.data.library import Dataset
from rayctsl.data.store import SplitInfo, open_split, write_split
from rayctsl.ports import free_ports
from rayctsl.torchvision_import import import_torchvision
from tests import strict_device as accelerator
from tests.warm_workers import WarmWorkers

torch.set_num_threads(1)
accelerator.install()  # before the first backward pass, which counts the devices there are; nobody sees it until a test
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # started in the background: commands under test would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ["tests.kept_actors"]


# Tests that share something costly stay in one process of `pytest -n 3 --dist loadgroup`; the rest go file by file.
LANES = {
    "ray": {"ray_nodes"},
    "service": {"service", "waiting_service", "dashboard", "postgres"},
    "k8s": {"rendered"},
    "timm": {"timm_library"},
}


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    lanes: dict[str, list[pytest.Item]] = {name: [] for name in LANES}
    for item in items:
        needs = set(getattr(item, "fixturenames", ()))
        lane = next((name for name, fixtures in LANES.items() if fixtures & needs), str(item.path))
        item.add_marker(pytest.mark.xdist_group(lane))
        # What pytest-xdist 3.8 does by itself, but where pytest 9.2 no longer looks.
        if hasattr(config, "workerinput") and hasattr(item, "_id"):
            item._id = type(item._id).parse(f"{item.nodeid}@{lane}")
        lanes.setdefault(lane, []).append(item)
    if not config.pluginmanager.has_plugin("randomly"):
        # Lanes first, then files with slow tests: what is handed out last is small, so that all end together.
        first = {name: name not in LANES and not any(map(_is_slow, tests)) for name, tests in lanes.items()}
        items[:] = [item for name in sorted(lanes, key=first.__getitem__) for item in lanes[name]]


def pytest_collection_finish() -> None:
    gc.freeze()  # what tests have imported is not looked at again and again


def _is_slow(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) for name in ("slow", "browser"))


@pytest.fixture(scope="session")
def data_root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where this test run keeps datasets; embedded ones are made on first use."""
    root = tmp_path_factory.mktemp("data")
    os.environ["RAYCTSL_DATA"] = str(root)
    yield root
    del os.environ["RAYCTSL_DATA"]


@pytest.fixture(scope="session")
def object_store() -> Iterator[str]:
    """Addresses on an S3 server of this machine; a folder's name takes the place of the braces.

    In a process of its own: what the server leaves to the garbage collector would be blamed on whatever test runs then.
    """
    port, quiet = free_ports(1)[0], subprocess.DEVNULL
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=quiet, stderr=quiet) as server:
        while server.poll() is None:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.05)
        os.environ.update(AWS_ACCESS_KEY_ID="test", AWS_SECRET_ACCESS_KEY="test", AWS_EC2_METADATA_DISABLED="true")
        options = f"endpoint_override=127.0.0.1:{port}&scheme=http&region=us-east-1&allow_bucket_creation=true"
        yield f"s3://tests/{{}}?{options}"
        server.terminate()


@pytest.fixture
def strict_device() -> Iterator[str]:
    """The name of an accelerator that exists during this test; see `tests/strict_device.py`."""
    accelerator.switch_on()
    yield accelerator.NAME
    accelerator.switch_off()


@pytest.fixture(scope="session")
def shifted(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """96 and 48 stripes of 4 kinds; test images are brighter than training images, so statistics cannot be mixed up."""
    folder, random = tmp_path_factory.mktemp("data") / "shifted", np.random.default_rng(0)
    y, x = np.mgrid[:12, :12]
    kinds = np.stack([y % 4 < 2, x % 4 < 2, (x + y) % 4 < 2, (x - y) % 4 < 2]) * 60 + 30
    for split, count, light in (("train", 96, 0), ("test", 48, 90)):
        labels = np.arange(count) % 4
        images = np.clip(kinds[labels] + light + random.normal(0, 25, (count, 12, 12)), 0, 255).astype(np.uint8)
        info = SplitInfo("shifted", split, (12, 12, 1), tuple("abcd"))
        write_split(folder / f"{split}.arrow", images[..., None], labels, info)
    return Dataset("shifted", open_split(folder / "train.arrow"), open_split(folder / "test.arrow"))


@pytest.fixture(scope="session")
def letters(shifted: Dataset) -> Dataset:
    """The same, but a mirror image is something else, as with letters."""
    train = copy(shifted.train)
    train.info = replace(train.info, flip=False)
    return replace(shifted, train=train)


@pytest.fixture(scope="session")
def ray_nodes(data_root: Path) -> Iterator[Any]:
    """The session's Ray cluster, to which tests may add nodes (and must remove them again)."""
    import ray

    with WarmWorkers() as warm:
        cluster = _start_cluster(warm, attempts=3)
        ray.init(address=cluster.address, logging_level="ERROR", namespace="tests")
        yield cluster
        ray.shutdown()
        cluster.shutdown()


def _start_cluster(warm: WarmWorkers, attempts: int) -> Any:
    """Begun again where its processes do not come up within Ray's half a minute, as on a busy machine."""
    from ray.cluster_utils import Cluster

    class WarmCluster(Cluster):
        def add_node(self, wait: bool = True, **options: Any) -> Any:
            return super().add_node(wait, **warm.options, **options)

    # A lost node is noticed after five missed checks: one a second here, so that nobody waits long for it.
    quick = {"health_check_period_ms": 1000, "health_check_initial_delay_ms": 1000}
    (port,) = free_ports(1)  # another Ray on this machine may have the dashboard's usual port
    head = {"num_cpus": 4, "include_dashboard": False, "dashboard_port": port, "_system_config": quick}
    try:
        return WarmCluster(initialize_head=True, head_node_args=head)
    except Exception as error:  # Ray's own has no class
        if attempts == 1 or "timed out during startup" not in str(error):
            raise
        return _start_cluster(warm, attempts - 1)


@pytest.fixture(scope="session")
def ray_cluster(ray_nodes: Any) -> str:
    """The address of the session's Ray cluster, one node with 4 logical CPUs."""
    return str(ray_nodes.address)


@pytest.fixture(scope="session")
def timm_library() -> None:
    """Its import takes four seconds."""
    import_torchvision()
    import timm  # noqa: F401


@pytest.fixture(scope="session")
def python() -> str:
    return sys.executable
