"""`python -m rayctsl.experiments synthetic run | figures`: the experiment on eight surfaces in the plane."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rayctsl.config import Config
    from rayctsl.experiments.synthetic.surfaces import Environment

HELP = "eight loss surfaces in the plane: Figures 4 and 5 and the supplement's 1 to 3"
NEGATIVE_NUMBER = re.compile(r"-\.?\d\S*")  # also -1e3 and -5., which argparse would take for options
FIGURE_NAMES = ("surfaces", "short_horizon", "cost", "landscapes", "quality", "optimizers", "shifting", "convergence")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(required=True, parser_class=type(parser), metavar="COMMAND")
    shared = type(parser)(add_help=False)
    shared.add_argument("--env", metavar="F.npz", help="angles [T], targets [T, 2], coeff [4] (default: by the seed)")
    shared.add_argument("--seed", type=int, default=0, help="draws the environment when there is no file (default: 0)")

    run = commands.add_parser("run", parents=[shared], help="meta-train one method from one start, write its path")
    run._negative_number_matcher = NEGATIVE_NUMBER
    run.add_argument("--config", metavar="F.yaml", help="a run config in place of the flags from --method on")
    run.add_argument("--start", type=float, nargs=2, required=True, metavar=("X", "Y"), help="first phi")
    run.add_argument("--out", type=Path, required=True, metavar="F.json")
    run.add_argument("--method", metavar="M", help="shifting, reptile, accurate, ...")
    run.add_argument("--alpha", type=float, help="inner learning rate (default: 0.05)")
    run.add_argument("--beta", type=float, help="meta learning rate (default: 0.1)")
    run.add_argument("--inner-steps", type=int, metavar="K", help="of a trajectory (default: 100)")
    run.add_argument(
        "--trajectories",
        type=int,
        metavar="M",
        help="every method takes M x K meta-updates (default: 3)",
    )
    run.add_argument("--optimizer", choices=("sgd", "momentum", "adam"), help="inner optimizer (default: momentum)")
    run.set_defaults(run=run_one)

    figures = commands.add_parser("figures", parents=[shared], help="all figures, with their data")
    figures.add_argument("--out", type=Path, required=True, metavar="DIR")
    figures.add_argument(
        "--only", nargs="+", choices=FIGURE_NAMES, default=(), metavar="NAME", help=" ".join(FIGURE_NAMES)
    )
    figures.add_argument("--force", action="store_true", help="make finished figures again")
    figures.set_defaults(run=run_figures)


def run_one(options: argparse.Namespace) -> None:
    """Write {"trajectory": [[x, y], ...], "inner_steps": total over tasks, "loss_after": task average}."""
    if not all(abs(value) < float("inf") for value in options.start):
        raise ValueError("--start needs two finite numbers")
    if options.out.is_dir():
        raise ValueError(f"{options.out} is a folder; name a file for the result")
    config = _config(options)
    from rayctsl.experiments.synthetic.run import meta_train

    environment = _environment(options)
    from rayctsl.experiments.output import write_json_file
    from rayctsl.learning.group import NonFiniteLoss
    from rayctsl.progress import Progress

    method = config.method.name
    progress = Progress(config.total_steps, method)
    try:
        result = meta_train(environment, [options.start], config, on_step=lambda index: progress.advance(1))
    except NonFiniteLoss as error:
        raise ValueError(f"{str(error).partition(';')[0]}; choose a smaller --alpha or --beta") from None
    progress.close()
    content = {
        "trajectory": result.trajectory[:, 0].tolist(),
        "inner_steps": result.inner_steps,
        "loss_after": float(result.loss_after[0]),
    }
    write_json_file(options.out, content)
    print(f"{method}: {result.inner_steps:,} inner steps, loss after {content['loss_after']:.4g}: {options.out}")


def _config(options: argparse.Namespace) -> Config:
    """The config of one run: a file's, or the paper's with the flags that were given."""
    from rayctsl.config import load_config
    from rayctsl.experiments.synthetic.run import synthetic_config

    names = ("method", "alpha", "beta", "inner_steps", "trajectories", "optimizer")
    given = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    if options.config is None:
        if "method" not in given:
            raise ValueError("name a --method, or a --config that does")
        return synthetic_config(**given, seed=options.seed)
    if given:
        flag = next(iter(given)).replace("_", "-")
        raise ValueError(f"--config says everything about the method: leave out --{flag}, or --config")
    return load_config(options.config, {"seed": options.seed})


def run_figures(options: argparse.Namespace) -> None:
    from rayctsl.experiments.output import Output
    from rayctsl.experiments.synthetic.figures import write_figures

    source = ["--env", options.env] if options.env else []
    command = ["python -m rayctsl.experiments synthetic figures", *source, f"--seed {options.seed} --out {options.out}"]
    write_figures(
        _environment(options),
        Output(options.out),
        seed=options.seed,
        only=options.only,
        force=options.force,
        say=lambda line: print(line, file=sys.stderr, flush=True),
        command=" ".join(command),
    )
    print(f"figures: {options.out}")


def _environment(options: argparse.Namespace) -> Environment:
    from rayctsl.experiments.synthetic.surfaces import Environment

    if options.seed < 0:
        raise ValueError(f"--seed must not be negative (got {options.seed})")
    return Environment.load(options.env) if options.env else Environment.draw(options.seed)
