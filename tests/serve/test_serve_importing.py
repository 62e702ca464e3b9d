"""The process that imports an archive: what it is told, and what it leaves behind for people."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from rayctsl.jobs.importer import Limits
from serve.importing import KILLED, SILENT, run_importer


def play(
    script: str, folder: Path, monkeypatch: pytest.MonkeyPatch, size: int | None = None, seed: int = 0
) -> tuple[str | None, list[str]]:
    """What is said of an import that a shell script plays, and its stages."""
    python, stages = folder / "python", list[str]()
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(python))

    async def on_stage(stage: str) -> None:
        stages.append(stage)

    said = asyncio.run(run_importer(folder / "a.archive", "mine", str(folder), Limits(), size, seed, on_stage))
    return said, stages


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("exit 0", None),
        ("exit 3", SILENT),
        ("""echo '{"error": "one class only"}'; exit 2""", "one class only"),
        ("kill -9 $$", KILLED),
    ],
)
def test_how_an_import_ended(script: str, said: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert play(script, tmp_path, monkeypatch) == (said, [])


def test_stages_are_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = """echo '{"stage": "unpacking", "files": 500}'; echo '{"stage": "reading images"}'"""
    assert play(script, tmp_path, monkeypatch) == (None, ["unpacking 500", "reading images"])


@pytest.mark.parametrize(("size", "words"), [(32, " --seed 7 --size 32 "), (None, " --seed 7 --files ")])
def test_an_import_is_told_how_large_and_how_split_images_are_to_be(
    size: int | None, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said, _ = play("""echo "{\\"error\\": \\"$*\\"}"; exit 2""", tmp_path, monkeypatch, size, 7)
    assert said is not None
    assert words in said


def test_an_import_does_not_know_the_services_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAYCTSL_TOKEN", "correct-horse-battery")
    monkeypatch.setenv("RAYCTSL_CACHE", "/cache")
    script = """echo "{\\"error\\": \\"token '$RAYCTSL_TOKEN', cache '$RAYCTSL_CACHE'\\"}"; exit 2"""
    assert play(script, tmp_path, monkeypatch) == ("token '', cache '/cache'", [])
