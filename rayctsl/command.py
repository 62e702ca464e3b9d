"""What all commands share: the config's flags, and one way to end.

Exit codes: 0 success, 2 bad input with one clear line, 1 failure, 130 / 143 after Ctrl-C / SIGTERM and a clean stop.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

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
    parser.add_argument("--method", metavar="M", help="shifting, reptile, fomaml, leap, mtl, ... (docs/METHODS.md)")
    parser.add_argument("--beta", type=float, metavar="B", help="meta learning rate")
    parser.add_argument("--inner-steps", type=int, metavar="K", help="inner steps of a trajectory")
    parser.add_argument("--trajectories", type=int, metavar="M", help="how often the task learners restart from phi")
    parser.add_argument("--tasks", metavar="a,b,c", help="the meta-training datasets")
    parser.add_argument("--data-root", metavar="DIR", help="where prepared datasets are, a path or URI")
    parser.add_argument("--workers", type=int, metavar="W", help="task-learner actors")
    parser.add_argument("--seed", type=int, metavar="S", help="a run is a function of its config and seed")
    parser.add_argument(
        "--set", action="append", default=[], metavar="key=value", help="any other config key, e.g. inner.alpha=0.05"
    )


def add_address_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--address", metavar="A", help="auto (the running cluster), ray://…, or local: start Ray here (default)"
    )


def overrides_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """Config overrides from parsed flags."""
    import yaml

    overrides = {key: getattr(arguments, flag) for flag, key in FLAGS.items() if getattr(arguments, flag) is not None}
    if arguments.tasks is not None:
        overrides["data.tasks"] = [name.strip() for name in arguments.tasks.split(",") if name.strip()]
    for item in arguments.set:
        key, separator, value = item.partition("=")
        if not separator or not key:
            raise ValueError(f"--set takes key=value, got {item!r}")
        try:
            overrides[key.strip()] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise ValueError(f"--set {key}: {value!r} is not a value") from None
    return overrides


def run_command(
    parser: argparse.ArgumentParser, argv: list[str] | None, action: Callable[[argparse.Namespace], None]
) -> int:
    """Parse, act, and turn what went wrong into one line and an exit code."""
    arguments = parser.parse_args(argv)
    name = parser.prog.split()[-1]
    try:
        action(arguments)
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        return _exit_code(error, name)
    return 0


def _exit_code(error: Exception, name: str) -> int:
    if "rayctsl.learning.training" in sys.modules:
        from rayctsl.learning.group import NonFiniteLoss
        from rayctsl.learning.training import EngineFault, Interrupted

        if isinstance(error, Interrupted):
            print(f"stopped; continue with: python -m rayctsl.train --resume {error.run_dir}", file=sys.stderr)
            return 128 + error.signum
        if isinstance(error, (NonFiniteLoss, EngineFault)):
            print(f"{name}: {error}", file=sys.stderr)
            return 1
    if isinstance(error, ValueError):
        print(f"{name}: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    if isinstance(error, OSError):
        print(f"{name}: {error}", file=sys.stderr)
        return 1
    raise error
