"""The report of accuracy against K: lengths_report.md and its figures, from the collected results alone."""

from __future__ import annotations

from rayctsl.experiments.image.plots import plot_lengths
from rayctsl.experiments.lengths import tables
from rayctsl.experiments.lengths.plots import plot_costs, plot_finetuning
from rayctsl.experiments.lengths.results import Results
from rayctsl.experiments.lengths.rivals import rivals_table
from rayctsl.experiments.output import Output


def write_report(results: Results, out: Output, step_seconds: float, exchange_seconds: float) -> str:
    """Write what the finished cells can say; returns the main table."""
    table = tables.lengths_table(results)
    lines = [table, "", tables.paired_table(results), "", tables.way_table(results), ""]
    lines += [tables.search_table(results), ""]
    lengths = {method: cells for method, cells in tables.by_length(results).items() if len(cells) > 1}
    if lengths:
        out.write_figure("lengths_k", plot_lengths(lengths))
        lines += [tables.change_table(results), "", "![Accuracy against K](lengths_k.png)", ""]
    costs = tables.cost_curves(results, step_seconds, exchange_seconds)
    if costs:
        out.write_figure("lengths_cost", plot_costs(costs))
        lines += [rivals_table(results, step_seconds, exchange_seconds), ""]
        lines += [tables.cost_table(costs), "", "![Three accounts of cost](lengths_cost.png)", ""]
    steps, sizes = tables.finetuning(results, "steps"), tables.finetuning(results, "train_size")
    if steps or sizes:
        out.write_figure("lengths_finetuning", plot_finetuning(steps, sizes))
        lines += ["![Length of fine-tuning](lengths_finetuning.png)", ""]
    out.write_text("lengths_report.md", "\n".join(lines))
    return table
