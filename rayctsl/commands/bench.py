"""`python -m rayctsl.bench NAME …`: measurements, each a ratio of things measured in one run."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import redirect_stdout

from rayctsl.command import OneLineParser, program, run_command


def parser() -> argparse.ArgumentParser:
    parser = OneLineParser(prog=program("rayctsl.bench"), description=__doc__)
    commands = parser.add_subparsers(dest="bench", required=True, metavar="NAME")

    step = commands.add_parser("step", help="a whole run against the machine's limit and the obvious program")
    step.add_argument("--model", choices=["resnet20", "demo"], default="resnet20")
    step.add_argument("--workers", type=int, default=2, help="learners, and processes of the limit")
    step.add_argument("--sizes", metavar="P,P", help="image sizes, one task each; the paper's eight (or the demo's)")
    step.add_argument("--batch-size", type=int, help="128 (or the demo's 32)")
    step.add_argument("--steps", type=int, help="steps per round; 2 (or 40 of the demo)")
    step.add_argument("--rounds", type=int, help="8 (or 6 of the demo)")
    step.add_argument("--no-obvious", dest="obvious", action="store_false", help="measure against the limit alone")

    inner = commands.add_parser("inner", help="each way to speed up the inner step against plain eager fp32")
    inner.add_argument("--model", choices=["resnet20", "demo"], default="resnet20")
    inner.add_argument("--size", type=int, default=32, help="image size in pixels")
    inner.add_argument("--options", metavar="NAME,NAME", help="some of them; all when absent")
    inner.add_argument("--steps", type=int, help="steps per round; 4 (or 100 of the demo)")
    inner.add_argument("--rounds", type=int, default=5)

    data = commands.add_parser("data", help="augmented batches from the store against a per-image pipeline")
    data.add_argument("--batch-size", type=int, default=128)
    data.add_argument("--size", type=int, default=32, help="image size in pixels")
    data.add_argument("--rounds", type=int, default=5)

    chaos = commands.add_parser("chaos", help="train while processes and nodes are disturbed; compare phi")
    chaos.add_argument("--kills", type=int, default=20, help="how many faults in all")
    chaos.add_argument("--kinds", metavar="A,B", help="some kinds of fault; all when absent")
    chaos.add_argument("--no-replace", dest="replace", action="store_false", help="lost nodes never come back")
    chaos.add_argument("--nodes", type=int, default=3, help="nodes of the test cluster")
    chaos.add_argument("--learners-per-node", type=int, default=1, help="on 1 node: the exchange is shared memory")
    chaos.add_argument("--steps", type=int, default=600, help="inner steps of the run")
    chaos.add_argument("--seed", type=int, default=0, help="chooses victims and moments")
    chaos.add_argument("--transport", choices=["collective", "objects"], default="collective")

    drivers = commands.add_parser("drivers", help="two drivers on one run folder, again and again")
    drivers.add_argument("--tries", type=int, default=50)
    drivers.add_argument(
        "--storage", choices=["local", "s3"], default="local", help="s3: moto's server, on this machine"
    )
    drivers.add_argument("--seed", type=int, default=0, help="chooses the moments")

    network = commands.add_parser("network", help="a run over two hosts whose link is cut and slowed; compare phi")
    network.add_argument("--faults", type=int, default=4, help="cuts and slow spells, in turn")
    network.add_argument("--steps", type=int, default=900, help="inner steps of the run")
    network.add_argument("--seed", type=int, default=0, help="chooses the moments")
    network.add_argument("--transport", choices=["collective", "objects"], default="collective")
    network.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)

    same = commands.add_parser("same", help="phi of every method for every number of learners, nodes and transport")
    same.add_argument("--methods", metavar="A,B", help="some methods; all when absent")

    transport = commands.add_parser("transport", help="the meta-update with idle learners against plain gloo")
    transport.add_argument("--workers", default="2,4,8", metavar="W,W", help="numbers of learners")
    transport.add_argument("--models", default="resnet20,resnet18", help="vector sizes, by model")
    transport.add_argument("--tasks", type=int, default=8)
    transport.add_argument("--steps", type=int, default=200, help="steps per measurement (fewer for large vectors)")
    transport.add_argument("--rounds", type=int, default=5)
    transport.add_argument("--no-delay", dest="delay", action="store_false", help="leave out the slowed network")

    scale = commands.add_parser(
        "scale", help="cost of a step against tasks and learners, and the time to the first step"
    )
    scale.add_argument("--tasks", default="2,4,8,16,32,64", metavar="T,T", help="numbers of tasks, on the first W")
    scale.add_argument("--workers", default="2,1,4,8", metavar="W,W", help="numbers of learners, for the largest T")
    scale.add_argument("--work-ms", type=float, default=2.0, help="work of one task's inner step")
    scale.add_argument("--floats", type=int, help="parameters of the shared backbone; ResNet-20's 269072")
    scale.add_argument("--steps", type=int, default=50, help="steps per round")
    scale.add_argument("--rounds", type=int, default=5)
    scale.add_argument("--start-rounds", type=int, default=3, help="starts of a whole run; 0 leaves them out")
    scale.add_argument("--start-workers", type=int, default=2)
    scale.add_argument("--only-start", action="store_true", help="nothing but the starts")

    plan = commands.add_parser("plan", help="predict a run on a cluster that is not here")
    plan.add_argument("--config", metavar="F.yaml", help="the run; the paper's image experiment when absent")
    plan.add_argument("--workers", default="8", metavar="W,W", help="numbers of learners")
    plan.add_argument(
        "--gpus", type=int, default=0, metavar="N", help="GPUs per node; 0: CPU learners as measured here"
    )
    plan.add_argument("--cores", type=int, default=8, metavar="N", help="CPU learners per node")
    plan.add_argument("--bandwidth", default="10", metavar="G,G", help="Gbit/s of a node's link")
    plan.add_argument("--node-gigabytes", type=float, default=10.0, help="GB/s between the GPUs of a node (PCIe: 10)")
    plan.add_argument("--latency-us", type=float, default=20.0, help="of one message between nodes")
    plan.add_argument("--gpu-gflops", type=float, default=5000.0, help="what one GPU achieves, not its peak")
    plan.add_argument("--launch-ms", type=float, default=5.0, help="of a step on a GPU whatever its size")
    plan.add_argument(
        "--tasks", type=int, metavar="T", help="repeat the config's tasks up to T; at least one a learner"
    )
    plan.add_argument("--markdown", action="store_true", help="print the predictions as a table too")
    plan.add_argument("--check", action="store_true", help="compare predictions with runs that are possible here")
    plan.add_argument("--rounds", type=int, default=5, help="of --check")

    packing = commands.add_parser("packing", help="how near the packing of the paper's sizes is to the best one")
    packing.add_argument("--model", choices=["resnet20", "demo"], default="resnet20")
    packing.add_argument("--sizes", metavar="P,P", help="image sizes, one task each; the paper's eight (or the demo's)")
    packing.add_argument("--batch-size", type=int, help="128 (or the demo's 32)")
    packing.add_argument("--workers", default="2,3,4", metavar="W,W", help="numbers of learners")
    packing.add_argument("--steps", type=int, default=3, help="steps of the run on two learners")
    packing.add_argument("--rounds", type=int, default=3)

    accelerator = commands.add_parser("accelerator", help="check on this machine's GPU what is promised of GPUs")
    accelerator.add_argument("--model", choices=["resnet20", "demo"], default="resnet20")
    accelerator.add_argument("--sizes", metavar="P,P", help="image sizes, one task each; the paper's eight")
    accelerator.add_argument("--batch-size", type=int, help="128 (or the demo's 32)")
    accelerator.add_argument("--steps", type=int, default=50, help="steps per round")
    accelerator.add_argument("--rounds", type=int, default=5)
    accelerator.add_argument("--report", metavar="FILE.md", default="accelerator.md", help="where the report goes")

    for command in (accelerator, step, packing, plan, scale, inner, data, chaos, drivers, network, same, transport):
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
