"""What all commands share: the config's flags, and one way to end.

Exit codes: 0 success, 2 bad input with one clear line, 1 failure, 130 / 143 after Ctrl-C / SIGTERM and a clean stop.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn

from rayctsl.signals import term_as_interrupt
from rayctsl.words import one_line

if TYPE_CHECKING:
    from rayctsl.contract import JsonObject

CONSOLE: list[str] = []  # the command that the console script `rayctsl` was asked for

FLAGS = {  # flag -> config key
    "method": "method.name",
    "beta": "method.beta",
    "inner_steps": "inner_steps",
    "trajectories": "trajectories",
    "workers": "topology.workers",
    "seed": "seed",
    "data_root": "data.root",
}


def add_config_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags that choose and change a config, and where it runs."""
    parser.add_argument("--config", metavar="F.yaml", help="start from this file; the paper's defaults otherwise")
    add_address_argument(parser)
    from rayctsl.config import METHOD_CONFIGS

    parser.add_argument("--method", metavar="M", help=", ".join(METHOD_CONFIGS))
    parser.add_argument("--beta", type=float, metavar="B", help="meta learning rate")
    parser.add_argument("--inner-steps", type=int, metavar="K", help="inner steps of a trajectory")
    parser.add_argument("--trajectories", type=int, metavar="M", help="how often the task learners restart from phi")
    parser.add_argument("--tasks", metavar="a,b,c", help="the meta-training datasets")
    parser.add_argument("--data-root", metavar="DIR", help="where prepared datasets are, a path or URI")
    parser.add_argument("--workers", type=int, metavar="W", help="task-learner actors")
    parser.add_argument("--seed", type=int, metavar="S", help="a run is a function of its config and seed")
    add_set_argument(parser)


def add_set_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set", action="append", default=[], metavar="key=value", help="any other config key, e.g. inner.alpha=0.05"
    )


def add_address_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--address", metavar="A", help="auto (the running cluster), ray://…, or local: start Ray here (default)"
    )


def overrides_of(arguments: argparse.Namespace) -> JsonObject:
    """Config overrides from parsed flags."""
    overrides = {key: getattr(arguments, flag) for flag, key in FLAGS.items() if getattr(arguments, flag) is not None}
    if arguments.tasks is not None:
        overrides["data.tasks"] = [name.strip() for name in arguments.tasks.split(",") if name.strip()]
    return {**overrides, **set_overrides(arguments.set)}


def set_overrides(items: Sequence[str]) -> JsonObject:
    """Config overrides from `key=value`, the values in YAML."""
    import yaml

    overrides = {}
    for item in items:
        key, separator, value = item.partition("=")
        if not separator or not key:
            raise ValueError(f"--set takes key=value, got {item!r}")
        try:
            overrides[key.strip()] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise ValueError(f"--set {key}: {value!r} is not a value") from None
    return overrides


def positive(text: str) -> int:
    """The type of flags that count something; the parser says what it refuses."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return int(text)


def check_files(*paths: str | None) -> None:
    """Find out before the work where its result cannot go."""
    for path in filter(None, paths):
        if os.path.isdir(path):
            raise ValueError(f"{path} is a folder; name a file in it")
        if not os.path.isdir(os.path.dirname(os.path.abspath(path))):
            raise ValueError(f"the folder of {path} does not exist")


class OneLineParser(argparse.ArgumentParser):
    """Says what is wrong in one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog.removeprefix('python -m ')}: {message} (see --help)\n")


def program(module: str) -> str:
    """How the user called this command: `python -m rayctsl.train`, or `rayctsl train` by the console script."""
    return f"rayctsl {module.rpartition('.')[2]}" if CONSOLE else f"python -m {module}"


def run_command(
    parser: argparse.ArgumentParser,
    argv: list[str] | None,
    action: Callable[[argparse.Namespace], int | None],
    stopped: str | None = None,
) -> int:
    """Parse, act, and turn what went wrong into one line and an exit code.

    Args:
        stopped: what to say after Ctrl-C or SIGTERM.
    """
    arguments = parser.parse_args(argv)
    if os.environ.get("RAYCTSL_QUICK"):
        print("RAYCTSL_QUICK is set: every run is cut to a few steps", file=sys.stderr)
    try:
        with term_as_interrupt():
            return action(arguments) or 0
    except KeyboardInterrupt as interrupt:
        if stopped:
            print(stopped, file=sys.stderr)
        return int(getattr(interrupt, "exit_code", 130))
    except BrokenPipeError:  # `… | head` has read enough; what is still in the buffer must not fail again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:
        code = _exit_code(error)
        if code is None:
            raise
        print(f"{parser.prog.removeprefix('python -m ')}: {one_line(error)}", file=sys.stderr)
        return code


def _exit_code(error: Exception) -> int | None:
    """The code of an error that one line explains, which may bring its own; None where only a traceback does."""
    if hasattr(error, "exit_code"):
        return int(error.exit_code)
    if isinstance(error, ValueError):
        return 2
    return 1 if isinstance(error, (OSError, MemoryError)) else None
