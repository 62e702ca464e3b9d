"""Walks a page as a newcomer does: every block in order, in one shell session's folder, and looks at what is printed.

`python -m tests.docs.walk PAGE` runs in the clone that it is called in, whose environment `make .venv` has made. The
only shortcut is RAYCTSL_QUICK (configs/README.md). A command is expected to succeed; `SHAPES` has what it must print,
`LEFT_OUT` what cannot run on any machine, each with its reason. Blocks of the language `bash` want a service: those of
the tutorial are run by `tests/serve/test_serve_tutorial.py`.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.processes import end_those_that_name

SHAPES = {  # page: printed command -> the end of its output
    "README.md": {
        "make demo": (
            r"target +from scratch +from the initialization\n(\w+ +[\d.]+ ± [\d.]+ +[\d.]+ ± [\d.]+\n){7}"
            r"picture: runs/demo-\S+/plots/comparison.png\ninitialization: \S+/runs/demo-\S+/initialization\n$"
        ),
        "rayctsl train --config configs/demo.yaml": r"initialization: \S+/runs/shifting-[\d-]+/initialization\n$",
        "rayctsl train --config configs/demo.yaml --method reptile": (
            r"initialization: \S+/runs/reptile-[\d-]+/initialization\n$"
        ),
        "rayctsl train --config configs/paper/image/shifting.yaml --print-config": r"^seed: 0\n|\ninner_steps: ",
        "rayctsl finetune --init runs/NAME --dataset digits --seeds 5": (
            r"seed 0: [\d.]+ %\n[\s\S]*digits from \S+, \d+ steps of 32 images, alpha 0.1: [\d.]+ ± [\d.]+ %\n$"
        ),
        "rayctsl finetune --init none --config configs/demo.yaml --dataset digits --seeds 5": (
            r"digits from none, \d+ steps of 32 images, alpha 0.1: [\d.]+ ± [\d.]+ %\n$"
        ),
        "ray start --head": r"Ray runtime started",
        "rayctsl serve --storage runs": r"127\.0\.0\.1:8000|localhost:8000",
        "curl -X POST localhost:8000/finetune -H 'content-type: application/json' "
        """-d '{"dataset": "digits", "steps": 200}'""": r'"id":"ft-[0-9a-f]+"',
        "rayctsl data import flowers --from ~/pictures/flowers": r"flowers",
        "rayctsl data list": r"digits",
        "python": r"([\d.]+ % on digits|torch.Size\(\[4, 32\]\))\n$",
    },
    "docs/TUTORIAL.md": {
        "rayctsl predict model pictures/rows/000.jpg pictures/falling --top 2": (
            r"pictures/rows/000.jpg: \w+ [\d.]+ %  \w+ [\d.]+ %\n"
        ),
        "rayctsl evaluate model --dataset ./pictures": r"accuracy: [\d.]+ % \([\d.]+ to [\d.]+\) of 8 images",
    },
}
LEFT_OUT = {  # the beginning of a printed command: why
    "make test": "is what runs this walk",
    "rayctsl train --address auto --config configs/paper": "wants GPUs, days and a bucket",
    "rayctsl tune": "takes minutes; tests/sweeps runs sweeps",
    "rayctsl experiments synthetic": "takes a minute of a quiet machine; tests/experiments draws small ones",
    "rayctsl experiments image": "takes hours; tests/experiments runs small ones",
    "rayctsl data prepare": "wants the publishers' servers; tests/data has small ones of its own",
}


def blocks(page: Path) -> Iterator[tuple[str, str]]:
    yield from re.findall(r"^```(sh|python)\n(.*?)^```", page.read_text(), re.M | re.S)


def commands(page: Path) -> Iterator[str]:
    """The shell commands of a page, one line each, without comments; a Python block is the command `python`."""
    for language, block in blocks(page):
        if language == "python":
            yield "python"
            continue
        for line in block.replace("\\\n", " ").splitlines():
            if command := re.sub(r"(^|\s)#.*", "", line).strip():
                yield command


class Walk:
    """One newcomer in one clone; what was started in the background is stopped at the end."""

    def __init__(self, page: str):
        self.page, self.shapes = page, SHAPES[page]
        self.background: list[subprocess.Popen[str]] = []
        bin_folder = Path(".venv/bin").resolve()
        self.environment = {**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}", "RAYCTSL_QUICK": "1"}

    def run(self) -> None:
        programs = iter([block for language, block in blocks(Path(self.page)) if language == "python"])
        for command in commands(Path(self.page)):
            if why := next((why for start, why in LEFT_OUT.items() if command.startswith(start)), None):
                print(f"left out: {command} ({why})", flush=True)
                continue
            started = time.monotonic()
            said = self.take(command, next(programs) if command == "python" else None)
            shape = self.shapes.get(command, "")
            if not re.search(shape, said):
                sys.exit(f"{self.page}: {command}\nshould print {shape}\nbut printed\n{said}")
            print(f"{time.monotonic() - started:5.0f} s  {command}", flush=True)

    def take(self, command: str, program: str | None) -> str:
        """Run one command and return what it printed."""
        if command.startswith("rayctsl serve"):
            return self.serve(command)
        if "runs/NAME" in command:
            newest = max(Path("runs").glob("shifting-*"), key=lambda path: path.stat().st_mtime)
            command = command.replace("runs/NAME", str(newest))
        words = ["python", "-c", program] if program else ["bash", "-c", command]
        done = subprocess.run(words, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            sys.exit(f"{self.page}: {command}\nended with {done.returncode}:\n{done.stdout}")
        return done.stdout

    def serve(self, command: str) -> str:
        process = subprocess.Popen(
            command.split(), env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.background.append(process)
        said = ""
        assert process.stdout is not None
        while not re.search(self.shapes.get(command, ""), said):
            line = process.stdout.readline()
            if not line:
                sys.exit(f"{self.page}: {command}\nended:\n{said}")
            said += line
        return said

    def close(self) -> None:
        """Stop what still runs: the service, and the cluster of `ray start`."""
        for process in self.background:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)
        end_those_that_name(os.environ["RAY_TMPDIR"])


if __name__ == "__main__":
    walk = Walk(sys.argv[1])
    try:
        walk.run()
    finally:
        walk.close()
