"""`python -m rayctsl.experiments image`: tune, train and test every method of a suite, then report."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rayctsl.experiments.cells import Arguments, Cell, Result
    from rayctsl.experiments.image.records import NumberedRow, Stages
    from rayctsl.experiments.image.suite import Suite
    from rayctsl.experiments.output import Output

HELP = "meta-train every method, meta-test on the target datasets: Figures 6 and 7"
STAGES = ("tune", "train", "test", "report")
Report = Callable[["Suite", "Stages", "list[NumberedRow]", "Output"], str]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Four stages. tune: a small search for every method's step sizes, scored on held-out images of the "
        "meta-training tasks. train: the chosen values, several seeds, equal inner steps. test: fine-tuning on the "
        "targets. report: tables and figures. Finished cells are kept, so the same command goes on after a stop."
    )
    add_suite_arguments(parser, "embedded")
    parser.set_defaults(run=run)


def add_suite_arguments(parser: argparse.ArgumentParser, suite: str) -> None:
    """The flags that every experiment with suites has."""
    parser.add_argument(
        "--suite", default=suite, metavar="S", help=f"a name in configs/suites, or FILE.yaml (default: {suite})"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="cells, runs, tables and figures")
    parser.add_argument("--stage", choices=STAGES, default=STAGES[-1], help="the last stage to do (default: report)")
    parser.add_argument("--seeds", type=int, metavar="N", help="training seeds (default: the suite's)")
    parser.add_argument("--cell", metavar="NAME", help="compute this cell again, with what it needs, and nothing else")
    parser.add_argument("--data-root", metavar="DIR", help="where datasets are (default: RAYCTSL_DATA)")
    parser.add_argument(
        "--address", metavar="A", help="of Ray: auto, ray://…, local (default); none: one cell after another, here"
    )


def run(options: argparse.Namespace) -> None:
    from rayctsl.experiments.image.suite import load_suite

    def report(suite: Suite, stages: Stages, rows: list[NumberedRow], out: Output) -> str:
        from rayctsl.experiments.image.report import write_report

        return write_report(suite, stages, rows, out)

    run_suite(options, "image", load_suite(options.suite, options.seeds), report)


def run_suite(options: argparse.Namespace, experiment: str, suite: Suite, report: Report) -> None:
    """The stages of an experiment with a suite, up to the one asked for."""
    from rayctsl.data.roots import absolute_root
    from rayctsl.experiments.image import cells as image_cells
    from rayctsl.experiments.image import compute
    from rayctsl.experiments.image.records import Stages
    from rayctsl.experiments.image.text import format_search
    from rayctsl.experiments.output import Output

    if options.cell:
        suite = _needed(suite, options.cell)
    root, out = absolute_root(options.data_root), Output(options.out)
    last = STAGES.index(options.cell.split("-")[0] if options.cell else options.stage)
    check_datasets(suite, root, suite.sources if last < STAGES.index("test") else (*suite.sources, *suite.targets))
    stage = Stage(options, experiment, suite.gpus, out)
    with _connected(options.address):
        tuned = stage.run("tune", image_cells.tune_cells(suite, root), compute.tune)
        if last == 0:
            if not options.cell:
                print(format_search(suite, tuned))
            return
        chosen = image_cells.choose(suite, tuned)
        train_cells = image_cells.train_cells(suite, chosen, root)
        trained = stage.run("train", train_cells, partial(compute.train, out=str(out)))
        if last == 1:
            return
        test_cells = image_cells.test_cells(suite, trained, root)
        tested = stage.run("test", test_cells, partial(compute.test, out=str(out)))
    if last == len(STAGES) - 1:
        rows = image_cells.result_rows(suite, trained, tested, root)
        print(report(suite, Stages(tuned, chosen, trained), rows, out))
        print(f"report: {out}")


def check_datasets(suite: Suite, root: str, names: Sequence[str]) -> None:
    """Refuse at once when a dataset is missing, with the command that brings it."""
    from rayctsl.data.catalog import CATALOG
    from rayctsl.data.library import open_dataset

    for name in names:
        try:
            open_dataset(name, root)
        except ValueError:
            if suite.import_from is None:
                raise
            base, _, size = name.partition("@")
            command = f"python -m rayctsl.data import {base} --from {suite.import_from.format(name=base)}"
            command += (f" --size {size}" if size else "") + (" --published" if base in CATALOG else "")
            command += f" --data-root {root}"
            raise ValueError(f"the suite needs dataset {name!r}, which {root} lacks; run: {command}") from None


@dataclass(frozen=True)
class Stage:
    """Computes the cells of one stage after another, as the command asks for."""

    options: argparse.Namespace
    experiment: str
    gpus: float
    out: Output

    def run(self, name: str, cells: list[Cell[Arguments]], compute: Callable[[Arguments], Result]) -> dict[str, Result]:
        from rayctsl.experiments.cells import run_cells

        wanted = self.options.cell if self.options.cell and self.options.cell.startswith(f"{name}-") else None
        if not cells and wanted is None:
            return {}
        results = run_cells(
            cells,
            compute,
            self.out,
            label=f"{self.experiment} {name}",
            command=lambda cell: f"{_command(self.options, self.experiment)} --cell {cell.name}",
            address=self.options.address,
            gpus=self.gpus,
            only=wanted,
        )
        if wanted:
            print(f"{wanted}: {self.out}/cells/{wanted}.json")
        return results


def _needed(suite: Suite, cell: str) -> Suite:
    """The part of a suite that one cell depends on."""
    from rayctsl.experiments.image.cells import method_of

    if cell.split("-")[0] not in STAGES[:-1] or method_of(cell) not in suite.methods:
        raise ValueError(f"there is no cell {cell!r} in this suite; DIR/cells shows their names")
    return suite.only((method_of(cell),))


def _connected(address: str | None) -> AbstractContextManager[object]:
    """One Ray for all stages."""
    if address == "none":
        return nullcontext()
    from rayctsl.cluster.resources import connected

    return connected(address)


def _command(options: argparse.Namespace, experiment: str) -> str:
    """The line that starts this experiment again."""
    words = ["python", "-m", "rayctsl.experiments", experiment]
    for key in ("suite", "out", "seeds", "data_root", "weights"):
        value = getattr(options, key, None)
        if value is not None:
            words += [f"--{key.replace('_', '-')}", str(value)]
    return shlex.join(words)
