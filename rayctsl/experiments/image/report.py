"""The report of an image experiment: results.parquet, a summary as JSON, the figures, and report.md to read them by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from rayctsl.experiments.image import plots
from rayctsl.experiments.image.records import NumberedRow, Stages
from rayctsl.experiments.image.statistics import MEAN
from rayctsl.experiments.image.suite import Suite
from rayctsl.experiments.image.summary import Report, check_equal_steps, summary
from rayctsl.experiments.image.text import format_report, format_table
from rayctsl.experiments.output import Output

ABLATIONS = ("no_shifting", "random_shifting")  # their curves have figures of their own
Curve = TypeVar("Curve")


def write_report(suite: Suite, stages: Stages, rows: Sequence[NumberedRow], out: Output, prefix: str = "image") -> str:
    """Write tables and figures; returns the main table as text."""
    report = Report(suite, stages, rows)
    check_equal_steps(report)
    table, lengths = report.table(), report.lengths()
    out.write_rows("results" if prefix == "image" else f"{prefix}_results", rows)
    out.write_json(f"{prefix}_summary", summary(report))
    hidden = ABLATIONS if prefix == "image" else ()
    shown = {"mean of the targets": MEAN, **{name: target for target, name in report.names.items()}}
    curves = {name: without(report.curves(target), hidden) for name, target in shown.items()}
    named = {m: {report.names.get(of, of): cell for of, cell in row.items()} for m, row in table.items()}
    out.write_figure(f"{prefix}_losses", plots.plot_losses(without(report.losses(), hidden)))
    out.write_figure(f"{prefix}_accuracy", plots.plot_curves(curves))
    out.write_figure(f"{prefix}_methods", plots.plot_methods(named))
    if any(len(points) > 1 for points in lengths.values()):
        out.write_figure(f"{prefix}_lengths", plots.plot_lengths(lengths))
    text = format_table(report)
    out.write_text("report.md" if prefix == "image" else f"{prefix}_report.md", format_report(report, text, prefix))
    return text


def without(curves: Mapping[str, Curve], hidden: Sequence[str]) -> dict[str, Curve]:
    return {method: curve for method, curve in curves.items() if method not in hidden}
