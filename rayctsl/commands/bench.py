"""`python -m rayctsl.bench NAME …`: measurements, each a ratio of things measured in one run."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass

from rayctsl.command import OneLineParser, positive, program, run_command


@dataclass(frozen=True)
class Bench:
    """A measurement, computed by `rayctsl/bench/NAME.py`."""

    help: str
    add_flags: Callable[[argparse.ArgumentParser], None]


def _step(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", choices=["resnet20", "demo"], default="resnet20")
    parser.add_argument("--workers", type=positive, default=2, help="learners, and processes of the limit")
    parser.add_argument("--sizes", metavar="P,P", help="image sizes, one task each; the paper's eight (or the demo's)")
    parser.add_argument("--batch-size", type=positive, help="128 (or the demo's 32)")
    parser.add_argument("--steps", type=positive, help="steps per round; 2 (or 40 of the demo)")
    parser.add_argument("--rounds", type=positive, help="8 (or 6 of the demo)")
    parser.add_argument("--no-obvious", dest="obvious", action="store_false", help="measure against the limit alone")
    parser.add_argument("--against", metavar="FOLDER", help="another checkout, and nothing else, to measure against")


def _inner(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", choices=["resnet20", "demo"], default="resnet20")
    parser.add_argument("--size", type=positive, default=32, help="image size in pixels")
    parser.add_argument("--options", metavar="NAME,NAME", help="some of them; all when absent")
    parser.add_argument("--steps", type=positive, help="steps per round; 4 (or 100 of the demo)")
    parser.add_argument("--rounds", type=positive, default=5)


def _data(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--batch-size", type=positive, default=128)
    parser.add_argument("--size", type=positive, default=32, help="image size in pixels")
    parser.add_argument("--rounds", type=positive, default=5)


def _chaos(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kills", type=int, default=20, help="how many faults in all")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="deal no more faults after so long")
    parser.add_argument("--kinds", metavar="A,B", help="some kinds of fault; all when absent")
    parser.add_argument("--no-replace", dest="replace", action="store_false", help="lost nodes never come back")
    parser.add_argument("--nodes", type=positive, default=3, help="nodes of the test cluster")
    parser.add_argument(
        "--learners-per-node", type=positive, default=1, help="on 1 node: the exchange is shared memory"
    )
    parser.add_argument("--steps", type=positive, default=600, help="inner steps of the run")
    parser.add_argument("--seed", type=int, default=0, help="chooses victims and moments")
    parser.add_argument("--transport", choices=["collective", "objects"], default="collective")


def _drivers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tries", type=positive, default=50)
    parser.add_argument(
        "--storage", choices=["local", "s3"], default="local", help="s3: moto's server, on this machine"
    )
    parser.add_argument("--seed", type=int, default=0, help="chooses the moments")


def _network(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--faults", type=int, default=4, help="cuts and slow spells, in turn")
    parser.add_argument("--steps", type=positive, default=900, help="inner steps of the run")
    parser.add_argument("--seed", type=int, default=0, help="chooses the moments")
    parser.add_argument("--transport", choices=["collective", "objects"], default="collective")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)


def _same(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--methods", metavar="A,B", help="some methods; all when absent")
    parser.add_argument("--nodes", default="1,2,3", metavar="N,N", help="numbers of nodes")


def _transport(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workers", default="2,4,8", metavar="W,W", help="numbers of learners")
    parser.add_argument("--models", default="resnet20,resnet18", help="vector sizes, by model")
    parser.add_argument("--tasks", type=positive, default=8)
    parser.add_argument("--steps", type=positive, default=200, help="steps per measurement (fewer for large vectors)")
    parser.add_argument("--rounds", type=positive, default=5)
    parser.add_argument("--no-delay", dest="delay", action="store_false", help="leave out the slowed network")


def _scale(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tasks", default="2,4,8,16,32,64", metavar="T,T", help="numbers of tasks, on the first W")
    parser.add_argument("--workers", default="2,1,4,8", metavar="W,W", help="numbers of learners, for the largest T")
    parser.add_argument("--work-ms", type=float, default=2.0, help="work of one task's inner step")
    parser.add_argument("--floats", type=positive, help="parameters of the shared backbone; ResNet-20's 269072")
    parser.add_argument("--steps", type=positive, default=50, help="steps per round")
    parser.add_argument("--rounds", type=positive, default=5)
    parser.add_argument("--start-rounds", type=int, default=3, help="starts of a whole run; 0 leaves them out")
    parser.add_argument("--start-workers", type=positive, default=2)
    parser.add_argument("--only-start", action="store_true", help="nothing but the starts")


def _plan(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="F.yaml", help="the run; the paper's image experiment when absent")
    parser.add_argument("--workers", default="8", metavar="W,W", help="numbers of learners")
    parser.add_argument(
        "--gpus", type=int, default=0, metavar="N", help="GPUs per node; 0: CPU learners as measured here"
    )
    parser.add_argument("--cores", type=positive, default=8, metavar="N", help="CPU learners per node")
    parser.add_argument("--bandwidth", default="10", metavar="G,G", help="Gbit/s of a node's link")
    parser.add_argument("--node-gigabytes", type=float, default=10.0, help="GB/s between the GPUs of a node (PCIe: 10)")
    parser.add_argument("--latency-us", type=float, default=20.0, help="of one message between nodes")
    parser.add_argument("--gpu-gflops", type=float, default=5000.0, help="what one GPU achieves, not its peak")
    parser.add_argument("--launch-ms", type=float, default=5.0, help="of a step on a GPU whatever its size")
    parser.add_argument(
        "--tasks", type=positive, metavar="T", help="repeat the config's tasks up to T; at least one a learner"
    )
    parser.add_argument("--markdown", action="store_true", help="print the predictions as a table too")
    parser.add_argument("--check", action="store_true", help="compare predictions with runs that are possible here")
    parser.add_argument("--rounds", type=positive, default=5, help="of --check")


def _packing(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", choices=["resnet20", "demo"], default="resnet20")
    parser.add_argument("--sizes", metavar="P,P", help="image sizes, one task each; the paper's eight (or the demo's)")
    parser.add_argument("--batch-size", type=positive, help="128 (or the demo's 32)")
    parser.add_argument("--workers", default="2,3,4", metavar="W,W", help="numbers of learners")
    parser.add_argument("--steps", type=positive, default=3, help="steps of the run on two learners")
    parser.add_argument("--rounds", type=positive, default=3)


def _accelerator(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", choices=["resnet20", "demo"], default="resnet20")
    parser.add_argument("--sizes", metavar="P,P", help="image sizes, one task each; the paper's eight")
    parser.add_argument("--batch-size", type=positive, help="128 (or the demo's 32)")
    parser.add_argument("--steps", type=positive, default=50, help="steps per round")
    parser.add_argument("--rounds", type=positive, default=5)
    parser.add_argument("--report", metavar="FILE.md", default="accelerator.md", help="where the report goes")


def _ahead(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workers", type=positive, default=2, help="learners")
    parser.add_argument("--tasks", type=positive, default=4)
    parser.add_argument("--work-ms", type=float, default=2.0, help="work of one task's inner step")
    parser.add_argument("--steps", type=positive, default=20, help="steps per chunk")
    parser.add_argument("--chunks", type=positive, default=20, help="chunks in a row")
    parser.add_argument("--rounds", type=positive, default=7)


BENCHES = {
    "step": Bench("a whole run against the machine's limit and the obvious program", _step),
    "inner": Bench("each way to speed up the inner step against plain eager fp32", _inner),
    "data": Bench("augmented batches from the store against a per-image pipeline", _data),
    "chaos": Bench("train while processes and nodes are disturbed; compare phi", _chaos),
    "drivers": Bench("two drivers on one run folder, again and again", _drivers),
    "network": Bench("a run over two hosts whose link is cut and slowed; compare phi", _network),
    "same": Bench("phi of every method for every number of learners, nodes and transport", _same),
    "transport": Bench("the meta-update with idle learners against plain gloo", _transport),
    "scale": Bench("cost of a step against tasks and learners, and the time to the first step", _scale),
    "ahead": Bench("what learners would wait for the driver between two chunks of steps", _ahead),
    "plan": Bench("predict a run on a cluster that is not here", _plan),
    "packing": Bench("how near the packing of the paper's sizes is to the best one", _packing),
    "accelerator": Bench("check on this machine's GPU what is promised of GPUs", _accelerator),
}


def parser() -> argparse.ArgumentParser:
    parser = OneLineParser(prog=program("rayctsl.bench"), description=__doc__)
    commands = parser.add_subparsers(dest="bench", required=True, metavar="NAME")
    for name, bench in BENCHES.items():
        command = commands.add_parser(name, help=bench.help)
        bench.add_flags(command)
        command.add_argument("--json", action="store_true", help="print nothing but one JSON object")
    return parser


def main(argv: list[str] | None = None) -> int:
    return run_command(parser(), argv, bench)


def bench(arguments: argparse.Namespace) -> None:
    from importlib import import_module

    with redirect_stdout(sys.stderr):  # Ray reports there what its processes say
        result = import_module(f"rayctsl.bench.{arguments.bench}").measure(arguments)
    if not arguments.json:
        for name, value in result.items():
            print(f"{name}: {value}", file=sys.stderr)
    print(json.dumps(result))
