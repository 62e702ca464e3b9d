"""What a dead process was at."""

from __future__ import annotations

import os
import subprocess
import sys

from rayctsl.cluster import note as notes
from rayctsl.cluster.note import Note, note_name, read_note
from rayctsl.learning.engine import LocalEngine


def test_the_last_task_is_known_after_the_process_is_gone(tiny_problem):
    name = note_name("test", os.getpid())
    note, engine = Note(name), LocalEngine(tiny_problem(2))
    note.watch(engine.method)
    engine.run(0, 3)
    assert read_note(name) == (2, "task-1")
    assert read_note(name) is None, "a note is read once"


def test_a_death_at_the_very_first_step_is_known_too(tiny_problem):
    name = note_name("test", os.getpid())
    note, engine = Note(name), LocalEngine(tiny_problem(2))
    note.watch(engine.method)
    engine.run(0, 1)
    assert read_note(name) == (0, "task-1")


def test_between_chunks_a_process_is_at_no_task(tiny_problem):
    name = note_name("test", os.getpid())
    note = Note(name)
    note.clear()
    assert read_note(name) is None


def test_old_notes_of_killed_processes_are_swept(tmp_path, monkeypatch):
    monkeypatch.setattr(notes, "FOLDER", tmp_path)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    names = {"old": note_name("a", gone.pid), "young": note_name("b", gone.pid), "alive": note_name("c", os.getpid())}
    for name in (*names.values(), "rayctsl-a-note-x", "other"):
        (tmp_path / name).touch()
        if name != names["young"]:
            os.utime(tmp_path / name, (1, 1))
    Note(note_name("new", os.getpid())).remove()
    assert {path.name for path in tmp_path.iterdir()} == {names["young"], names["alive"], "rayctsl-a-note-x", "other"}
