"""`tests/processor_time.py` finds what a run started, and who started it."""

from __future__ import annotations

import sys

from tests.processor_time import main

BUSY = "import time\nwhile time.process_time() < 0.5: pass"
ADOPTED = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {BUSY!r}, 'ray' + '::TaskLearner'])"


def test_processes_are_counted_by_what_they_are_and_by_their_test(capfd):
    # cat goes on until all have let go of the pipe.
    command = f"PYTEST_CURRENT_TEST='tests/a.py::b@lane (call)' {sys.executable} -c \"$0\" | cat; exit 3"
    assert main(["sh", "-c", command, ADOPTED]) == 3
    said = capfd.readouterr().out.splitlines()
    (line,) = [line for line in said if line.endswith("| Ray's workers |")]
    seconds, count = (int(cell) for cell in line.split("|")[1:3])
    assert seconds <= 1
    assert count == 1
    (line,) = [line for line in said if line.endswith("| tests/a.py::b |")]
    assert float(line.split("|")[1]) > 0.1
