"""`python -m rayctsl.experiments lengths`: accuracy against K with a search at every K, and what comes with it."""

from __future__ import annotations

import argparse
from pathlib import Path

from rayctsl.command import positive
from rayctsl.commands.experiments import image

HELP = "accuracy against K, searched at every K; accounts of cost; length of fine-tuning: Figure 6c"
SUITES = ("lengths_k1000", "lengths_k400", "lengths_k100", "lengths_k10")
RESULTS = "lengths_results"
CELLS = "lengths_cells.tar.xz"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Suite after suite: the search, then seed by seed, so that what is finished can be compared. Finished cells "
        f"are kept; the same command goes on after a stop. Leaves {RESULTS}.json, a small file from which --from "
        f"makes the tables and figures again, and {CELLS}, from which --cells goes on on another machine."
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="a folder a suite, and the report")
    parser.add_argument("--suites", default=",".join(SUITES), metavar="A,B", help="default: %(default)s")
    parser.add_argument("--seeds", type=positive, default=5, metavar="N", help="training seeds (default: 5)")
    parser.add_argument("--data-root", metavar="DIR", help="where datasets are (default: RAYCTSL_DATA)")
    parser.add_argument("--address", metavar="A", help="of Ray: auto, ray://…, local (default); none: without Ray")
    parser.add_argument("--cells", type=Path, metavar="F.tar.xz", help="take over what another machine has finished")
    parser.add_argument("--report", action="store_true", help="report what is finished, compute nothing")
    parser.add_argument("--from", dest="source", type=Path, metavar="F.json", help="report collected results instead")
    parser.add_argument(
        "--step-seconds", type=float, default=0.0062, metavar="S", help="of an inner step of a task (default: 0.0062)"
    )
    parser.add_argument(
        "--exchange-seconds", type=float, default=0.0023, metavar="S", help="of a meta-update (default: 0.0023)"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    from rayctsl.experiments.archive import pack_cells, unpack_cells
    from rayctsl.experiments.lengths.report import write_report
    from rayctsl.experiments.lengths.results import collect, read_results
    from rayctsl.experiments.output import Output
    from rayctsl.storage import Storage

    suites, out = options.suites.split(","), Output(options.out)
    if options.source is None:
        folders = {name: Storage(options.out / name) for name in (Path(suite).stem for suite in suites)}
        if options.cells is not None:
            print(f"{unpack_cells(options.cells, folders)} finished cells from {options.cells}")
        if not options.report:
            compute(options, suites)
        results = collect(folders)
        out.write_json(RESULTS, results)
        out.storage.write(CELLS, pack_cells(folders))
    else:
        results = read_results(options.source)
    print(write_report(results, out, options.step_seconds, options.exchange_seconds))
    print(f"report: {out}/lengths_report.md")


def compute(options: argparse.Namespace, suites: list[str]) -> None:
    """Every suite's search and seeds, in the order of the suites."""
    for suite in suites:
        for seeds in range(1, options.seeds + 1):
            _image(options, suite, seeds)


def _image(options: argparse.Namespace, suite: str, seeds: int) -> None:
    """The image experiment up to its tests, as its own command would run it."""
    parser = argparse.ArgumentParser()
    image.add_arguments(parser)
    words = ["--suite", suite, "--out", str(options.out / Path(suite).stem), "--stage", "test", "--seeds", str(seeds)]
    for flag, value in (("--data-root", options.data_root), ("--address", options.address)):
        words += [flag, value] if value else []
    chosen = parser.parse_args(words)
    chosen.run(chosen)
