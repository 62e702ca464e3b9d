"""`python -m rayctsl.experiments error`: the approximation error against alpha, beta and k."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

HELP = "the approximation error of trajectory shifting: Figure 3"
FULL = {
    "dataset": "tiny_imagenet_1",
    "model": "resnet20",
    "batch_size": 128,
    "lengths": [10, 30, 100, 300, 1000],
    "length": 100,
}
SMALL = {**FULL, "model": "resnet8", "batch_size": 32, "lengths": [2, 5, 10, 20, 50, 100], "length": 20}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Mean and 95 % interval of log10 |error| over draws of network, batches and unit meta-gradients, against "
        "alpha, beta and k, each varied alone. The defaults are the paper's setting; --small ends in minutes on a CPU."
    )
    steps = [0.001, 0.003, 0.01, 0.03, 0.1]
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="finished cells in it are kept")
    parser.add_argument("--small", action="store_true", help="resnet8, batch 32, k up to 100")
    parser.add_argument("--dataset", metavar="NAME", help="default: tiny_imagenet_1")
    parser.add_argument("--data-root", metavar="DIR", help="where datasets are (default: RAYCTSL_DATA)")
    parser.add_argument("--model", metavar="NAME", help="default: resnet20")
    parser.add_argument("--width", type=int, default=16, help="of the model's first stage (default: 16)")
    parser.add_argument("--batch-size", type=int, metavar="N", help="default: 128")
    parser.add_argument("--alphas", type=float, nargs="+", default=steps, metavar="A", help="inner learning rates")
    parser.add_argument("--betas", type=float, nargs="+", default=steps, metavar="B", help="lengths of meta-updates")
    parser.add_argument("--lengths", type=int, nargs="+", metavar="K", help="trajectory lengths")
    parser.add_argument("--alpha", type=float, default=0.01, help="while others vary (default: 0.01)")
    parser.add_argument("--beta", type=float, default=0.01, help="while others vary (default: 0.01)")
    parser.add_argument("--length", type=int, metavar="K", help="while others vary (default: 100; small: 20)")
    parser.add_argument("--activations", nargs="+", choices=("relu", "softplus"), default=["relu", "softplus"])
    parser.add_argument("--draws", type=int, default=10, metavar="N", help="default: 10")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default: cpu)")
    parser.add_argument(
        "--address", metavar="A", help="of Ray: auto, ray://…, local (default); none: one cell after another, here"
    )
    parser.add_argument("--only", metavar="CELL", help="compute this cell again, and nothing else")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    for key, value in (SMALL if options.small else FULL).items():
        if getattr(options, key) is None:
            setattr(options, key, value)
    from rayctsl.experiments.error.records import ErrorSweep

    sweep = ErrorSweep(
        tuple(options.alphas),
        tuple(options.betas),
        tuple(options.lengths),
        options.alpha,
        options.beta,
        options.length,
        tuple(options.activations),
        options.draws,
    )
    from rayctsl.data.library import open_dataset
    from rayctsl.data.roots import absolute_root
    from rayctsl.experiments.cells import run_cells
    from rayctsl.experiments.error.measure import Network, build_learner, compute_cell
    from rayctsl.experiments.error.report import rows_of, write_report
    from rayctsl.experiments.output import Output

    network = Network(
        dataset=options.dataset,
        data_root=absolute_root(options.data_root),
        model=options.model,
        width=options.width,
        batch_size=options.batch_size,
        device=options.device,
    )
    open_dataset(options.dataset, options.data_root)
    build_learner({**network, "activation": "relu", "alpha": options.alpha, "draw": 0})  # a bad model is refused here
    cells, out = sweep.cells(network), Output(options.out)
    results = run_cells(
        cells,
        compute_cell,
        out,
        label="error",
        command=lambda cell: f"{_command(options)} --only {cell.name}",
        address=options.address,
        gpus=1 if options.device.startswith("cuda") else 0,
        only=options.only,
    )
    if options.only:
        for k, error in results[options.only].items():
            print(f"k = {k}: |error| {error:.6g}")
        return
    summary = write_report(sweep, rows_of(cells, results), out)
    for name, (mean, half) in summary["exponents"].items():
        print(f"{name}: exponent {mean:.2f} +- {half:.2f}")
    print(f"figure: {out}/error.png")


def _command(options: argparse.Namespace) -> str:
    """The line that starts this experiment again."""
    words = ["python", "-m", "rayctsl.experiments", "error"]
    plain = (
        "out",
        "dataset",
        "data_root",
        "model",
        "width",
        "batch_size",
        "alpha",
        "beta",
        "length",
        "draws",
        "device",
    )
    lists = ("alphas", "betas", "lengths", "activations")
    for key in (*plain, *lists):
        value = getattr(options, key)
        if value is not None:
            values = value if key in lists else [value]
            words += [f"--{key.replace('_', '-')}", *(str(each) for each in values)]
    return shlex.join(words)
