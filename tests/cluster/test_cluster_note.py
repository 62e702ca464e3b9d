"""What a dead process was at."""

from __future__ import annotations

import os

from rayctsl.cluster.note import Note, note_name, read_note
from rayctsl.learning.engine import LocalEngine


def test_the_last_task_is_known_after_the_process_is_gone(tiny_problem):
    name = note_name("test", os.getpid())
    note, engine = Note(name), LocalEngine(tiny_problem(2))
    note.watch(engine.method)
    engine.run(0, 3)
    assert read_note(name) == (2, "task-1")
    assert read_note(name) is None, "a note is read once"


def test_between_chunks_a_process_is_at_no_task(tiny_problem):
    name = note_name("test", os.getpid())
    note = Note(name)
    note.clear()
    assert read_note(name) is None
