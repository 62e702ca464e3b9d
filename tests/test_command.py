"""What all commands share: flags as config keys, and one line and an exit code for what goes wrong."""

from __future__ import annotations

import argparse
import errno

import pytest

from rayctsl.command import (
    OneLineParser,
    add_config_arguments,
    check_files,
    overrides_of,
    run_command,
    set_overrides,
)
from rayctsl.config import load_config


def overrides(*flags: str) -> dict[str, object]:
    parser = argparse.ArgumentParser()
    add_config_arguments(parser)
    return overrides_of(parser.parse_args(flags))


def test_flags_change_what_they_name_and_nothing_else():
    assert overrides() == {}
    assert overrides("--tasks", "latin, shapes,") == {"data.tasks": ["latin", "shapes"]}
    changes = overrides("--method", "reptile", "--inner-steps", "3", "--workers", "2", "--data-root", "here")
    config = load_config(None, changes)
    assert (config.method.name, config.inner_steps, config.topology.workers, config.data.root) == (
        "reptile",
        3,
        2,
        "here",
    )


def test_a_flag_of_zero_is_a_flag():
    """Its file may say something else."""
    assert overrides("--seed", "0", "--beta", "0") == {"seed": 0, "method.beta": 0.0}


def test_what_is_set_by_key_comes_after_the_flags():
    assert overrides("--seed", "1", "--set", "seed=2", "--set", "data.tasks=[latin]") == {
        "seed": 2,
        "data.tasks": ["latin"],
    }


def test_values_of_keys_are_yaml():
    items = ["a=1", "b=0.5", "c=null", "d=[x, y]", "e=true", "f=k=v", " g =", "h=text"]
    assert set_overrides(items) == {
        "a": 1, "b": 0.5, "c": None, "d": ["x", "y"], "e": True, "f": "k=v", "g": None, "h": "text",
    }  # fmt: skip
    for wrong, sentence in (("seed", "takes key=value"), ("=1", "takes key=value"), ("a=[1", "is not a value")):
        with pytest.raises(ValueError, match=sentence):
            set_overrides([wrong])


def test_where_a_result_cannot_go_is_found_out_before_the_work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check_files(None, "", "result.json", str(tmp_path / "result.json"))
    with pytest.raises(ValueError, match="is a folder; name a file in it"):
        check_files("result.json", str(tmp_path))
    with pytest.raises(ValueError, match=r"the folder of none/result\.json does not exist"):
        check_files("none/result.json")


class Diverged(RuntimeError):
    exit_code = 7


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ValueError("bad\ninput"), 2),
        (OSError(errno.ENOSPC, "bad input"), 1),
        (MemoryError("bad input"), 1),
        (Diverged("bad input"), 7),
    ],
)
def test_an_error_that_one_line_explains_ends_with_it_and_its_code(error, code, capsys):
    def act(arguments: argparse.Namespace) -> int:
        raise error

    assert run_command(OneLineParser("python -m rayctsl.train"), [], act) == code
    said = capsys.readouterr().err
    assert said.startswith("rayctsl.train: ")
    assert said.endswith("bad input\n")
    assert said.count("\n") == 1


def test_an_error_of_the_program_keeps_its_traceback():
    def act(arguments: argparse.Namespace) -> int:
        raise RuntimeError("a mistake of ours")

    with pytest.raises(RuntimeError, match="a mistake of ours"):
        run_command(OneLineParser("x"), [], act)


@pytest.mark.parametrize(("answer", "code"), [(None, 0), (0, 0), (3, 3)])
def test_an_action_says_its_code_or_nothing(answer, code):
    assert run_command(OneLineParser("x"), [], lambda arguments: answer) == code


def test_after_ctrl_c_a_command_says_what_it_leaves(capsys):
    def act(arguments: argparse.Namespace) -> int:
        raise KeyboardInterrupt

    assert run_command(OneLineParser("x"), [], act, "stopped; nothing is lost") == 130
    assert capsys.readouterr().err == "stopped; nothing is lost\n"
