"""The console script: every command by its name."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys

import pytest

from rayctsl.command import program, run_command
from rayctsl.commands.console import COMMANDS, main

RUN = "import sys; from rayctsl.commands.console import main; sys.exit(main())"


def console(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", RUN, *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_answers_to_its_name(name: str) -> None:
    answer = console(name, "--help")
    assert answer.returncode == 0
    assert answer.stdout.startswith(f"usage: rayctsl {name}")


def test_without_a_command_the_commands_are_listed(capsys) -> None:
    assert main([]) == 0
    said = capsys.readouterr().out
    assert all(f"  {name} " in said for name in COMMANDS)


def test_a_misspelt_command_is_corrected(capsys) -> None:
    assert main(["trian"]) == 2
    assert capsys.readouterr().err == "rayctsl: command 'trian' is unknown; did you mean 'train'?\n"


TYPOS = [
    "trian",
    "train --methd x",
    "train --set inner.alpa=3",
    "train --method reptil",
    "train --config nowhere.yaml",
    "train --tasks latn",
    "finetune --init none --dataset digts",
    "finetune --init none --dataset digits --steps 0",
    "finetune --init runs/NAME --dataset digits",
    "compare --init none,runs/NAME --dataset digits",
    "compare --datset digits",
    "predict nowhere .",
    "predict . nowhere.png",
    "evaluate nowhere --dataset digits",
    "export nowhere --to torch",
    "tune --config nowhere.yaml",
    "data prepare cubb",
    "serve --port 99999",
    "bench stp",
    "config nothing",
]


def test_a_typo_is_found_before_anything_heavy_is_imported() -> None:
    """torch and ray take seconds: nobody waits that long to be told of a missing letter."""
    found = """
import sys
from rayctsl.commands.console import main
for line in sys.argv[1:]:
    try:
        code = main(line.split())
    except SystemExit as stopped:
        code = stopped.code
    heavy = {"torch", "ray", "torchvision", "matplotlib", "scipy", "fastapi", "uvicorn"} & set(sys.modules)
    print(line, code, *sorted(heavy), sep="|")
"""
    done = subprocess.run([sys.executable, "-c", found, *TYPOS], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"{line}|2" for line in TYPOS]


def test_a_command_whose_output_nobody_reads_to_its_end_dies_as_of_sigpipe(tmp_path, monkeypatch) -> None:
    def print_too_much(arguments: argparse.Namespace) -> None:
        raise BrokenPipeError

    with open(tmp_path / "pipe", "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        assert run_command(argparse.ArgumentParser(), [], print_too_much) == 128 + signal.SIGPIPE
        print("what was still in the buffer")
    assert not (tmp_path / "pipe").read_text()


def test_a_command_is_called_as_it_was_asked_for_and_no_longer(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "nothing"]) == 2
    assert capsys.readouterr().err.startswith("rayctsl config: ")
    assert program("rayctsl.train") == "python -m rayctsl.train", "who comes after the console is not the console"
