"""Run the build stage of the Dockerfile without Docker: the same instructions, in folders in place of the image's.

    python k8s/build_rehearsal.py [--keep DIR]

Files that git ignores are not copied. The stages after it (user, copy, environment) are not executed.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def instructions(dockerfile: Path, stage: str) -> list[tuple[str, str]]:
    """(INSTRUCTION, rest) of one stage, in order."""
    lines = re.sub(r"\\\n", " ", dockerfile.read_text()).splitlines()
    parsed = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    starts = [number for number, (name, *_) in enumerate(parsed) if name == "FROM"]
    (start,) = [number for number in starts if parsed[number][1].endswith(f" AS {stage}")]
    end = next((number for number in starts if number > start), len(parsed))
    return [(name, rest) for name, rest in parsed[start + 1 : end]]


def copy_tracked(name: str, target: Path) -> None:
    """A file or folder, without what git ignores."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", name],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for file in listed.stdout.splitlines():
        (target / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, target / file)


def build(folder: Path) -> None:
    """Execute the stage `build` below a folder."""
    source, environment_folder = folder / "src", folder / "opt" / "rayctsl"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    for name, rest in instructions(ROOT / "k8s" / "Dockerfile", "build"):
        if name == "WORKDIR":
            source.mkdir(parents=True)
        elif name == "ARG":
            key, _, value = rest.partition("=")
            environment.setdefault(key, value.strip('"'))
        elif name == "ENV":
            for word in shlex.split(rest):
                key, _, value = word.partition("=")
                value = value.replace("$PATH", environment["PATH"]).replace("/opt/rayctsl", str(environment_folder))
                environment[key] = value
        elif name == "COPY":
            for file in shlex.split(rest)[:-1]:
                copy_tracked(file, source)
        elif name == "RUN":
            command = rest.replace("/opt/rayctsl", str(environment_folder))
            if command.startswith("python -m venv"):
                command = command.replace("python", shlex.quote(sys.executable), 1)
            started = time.monotonic()
            log = folder / "build.log"
            with log.open("a") as output:
                done = subprocess.run(
                    ["sh", "-c", command], cwd=source, env=environment, stdout=output, stderr=output, check=False
                )
            print(f"{time.monotonic() - started:6.0f} s  exit {done.returncode}  {rest[:100]}", flush=True)
            if done.returncode:
                raise SystemExit(f"the step failed: {log.read_text()[-1500:]}")
    size = sum(
        path.stat().st_size for path in environment_folder.rglob("*") if not path.is_symlink() and path.is_file()
    )
    print(f"{size / 1e6:,.0f} MB in /opt/rayctsl")


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the build stage of k8s/Dockerfile without Docker.")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="build here and leave it")
    options = parser.parse_args()
    if options.keep:
        build(options.keep.resolve())
        return 0
    with tempfile.TemporaryDirectory() as folder:
        build(Path(folder))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
