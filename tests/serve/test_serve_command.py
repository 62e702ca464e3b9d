"""`python -m serve` with bad input: exit code 2 and one line; and what its settings refuse."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import pytest

from serve.__main__ import main
from serve.bench.instance import Instance
from serve.settings import Settings


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--host", "0.0.0.0"], "set RAYCTSL_TOKEN"),
        (["--host", "example.org"], "set RAYCTSL_TOKEN"),
        (["--port", "99999"], "port must be between"),
        (["--max-running", "0"], "must be between 1"),
        (["--max-queued", "-1"], "must be between 1"),
        (["--address", "ray://x:10001"], "--address takes"),
        (["--database", "mysterydb://x"], "the database"),
        (["--storage", "gopher://x"], "not a storage"),
    ],
)
def test_bad_options(arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if "--storage" not in arguments:
        arguments = [*arguments, "--storage", str(tmp_path)]
    if "--address" not in arguments:
        arguments = [*arguments, "--address", "http://127.0.0.1:1"]
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("serve: ")
    assert words in error
    assert error.count("\n") == 1


def test_short_tokens_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="16 or more"):
        Settings(storage=str(tmp_path), token="short")


def test_second_service_on_one_storage_is_refused(waiting_service: Instance, python: str, tmp_path: Path) -> None:
    command = [python, "-m", "serve", "--storage", str(waiting_service.storage), "--port", "0"]
    done = subprocess.run(
        [*command, "--address", "http://127.0.0.1:1"], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 2
    assert "another service is running" in done.stderr


def test_a_port_in_use_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["--storage", str(tmp_path), "--port", str(port)]) == 2
    said = capsys.readouterr().err
    assert said == f"serve: cannot listen at 127.0.0.1 port {port}: in use; choose another with --port\n"


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    assert "RAYCTSL_TOKEN" in capsys.readouterr().out
