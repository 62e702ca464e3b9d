"""`python -m rayctsl.tune`: sweep beta, K, the method or any other config key with Ray Tune."""

from __future__ import annotations

import argparse
import sys
from datetime import datetime

from rayctsl.command import OneLineParser, add_address_argument, program, run_command


class NothingFinished(RuntimeError):
    """No trial of a sweep came to its end."""

    exit_code = 1


def parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog=program("rayctsl.tune"),
        description="Search config keys for the best validation accuracy. Leaves a table, results.parquet, best.yaml "
        "(for rayctsl.train --config), plots and the best initialization in the run folder.",
    )
    parser.add_argument("--config", metavar="F.yaml", help="the sweep, e.g. configs/sweeps/smoke.yaml")
    add_address_argument(parser)
    parser.add_argument(
        "--run-dir", metavar="DIR", help="a new folder (or URI) for the sweep; default runs/sweep-<time>"
    )
    parser.add_argument("--resume", metavar="DIR", help="continue the sweep in DIR; finished trials are not run again")
    parser.add_argument(
        "--resume-if-exists", action="store_true", help="continue the sweep in --run-dir if it was begun, else begin it"
    )
    parser.add_argument("--storage", metavar="DIR", help="publish the best initialization here, not in the run folder")
    return parser


def main(argv: list[str] | None = None) -> int:
    return run_command(parser(), argv, tune)


def tune(arguments: argparse.Namespace) -> None:
    import yaml

    from rayctsl.commands.train import check_tasks
    from rayctsl.sweeps.config import FILE, build_sweep, draw_trials, load_sweep, trial_config

    if bool(arguments.config) == bool(arguments.resume):
        raise ValueError("give either --config F.yaml to begin a sweep or --resume DIR to continue one")
    if arguments.resume and arguments.run_dir:
        raise ValueError("--resume continues a sweep in its own folder: leave out --run-dir")
    if arguments.resume_if_exists and not arguments.run_dir:
        raise ValueError("--resume-if-exists needs --run-dir")
    asked = load_sweep(arguments.config) if arguments.config else None  # before torch, which takes seconds to import
    from rayctsl.learning.run_folder import Resume, claim_folder

    base = arguments.resume or arguments.run_dir or f"runs/sweep-{datetime.now():%Y%m%d-%H%M%S}"
    resume: Resume = "must" if arguments.resume else "if_exists" if arguments.resume_if_exists else "never"
    run, begun = claim_folder(base, FILE, resume, kind="the folder of a sweep")
    sweep = build_sweep(yaml.safe_load(run.read(FILE))) if begun or asked is None else asked
    checked = set()
    for overrides in draw_trials(sweep):
        config = trial_config(sweep, overrides)
        if (key := (config.model, config.data.tasks, config.data.root)) not in checked:
            checked.add(key)
            check_tasks(config)
    from rayctsl.cluster.resources import connected
    from rayctsl.sweeps.sweep import run_sweep, with_settled_data

    sweep = sweep if begun else with_settled_data(sweep)
    with connected(arguments.address):
        records = run_sweep(sweep, run)
    report(sweep, run, records, arguments.storage)


def report(sweep: object, run: object, records: object, storage: str | None) -> None:
    """Print and write what the sweep found."""
    from rayctsl.storage import Storage
    from rayctsl.sweeps.config import Sweep
    from rayctsl.sweeps.plots import plot_sweep
    from rayctsl.sweeps.report import (
        format_choices,
        format_table,
        rows_of,
        settings_of,
        warnings_of,
        write_best,
        write_results,
    )

    assert isinstance(sweep, Sweep)
    assert isinstance(run, Storage)
    assert isinstance(records, dict)
    rows = rows_of(sweep, records)
    write_results(run, rows)
    plot_sweep(run, rows)
    print(format_table(rows))
    for warning in warnings_of(rows):
        print(warning, file=sys.stderr)
    if rows[0]["status"] != "finished":
        raise NothingFinished(f"none of the {len(rows)} trials finished; {run}/results.parquet says why")
    settings = settings_of(rows)
    print(format_choices(settings))
    initialization = write_best(sweep, run, records[settings[0].rows[0]["trial"]], storage)
    print(f"results: {run}/results.parquet")
    print(f"best: {run}/best.yaml")
    print(f"initialization: {initialization.storage}")
