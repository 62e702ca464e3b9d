"""The command `python -m rayctsl.client`: list, send images, fine-tune, compare, follow, predict, delete."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from rayctsl.client import DEFAULT_URL, ENDED, Client
from rayctsl.command import OneLineParser, positive, program, run_command
from rayctsl.commands.client import ending, reading, working
from rayctsl.jobs.flags import add_recipe_flags

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[OneLineParser]


def build_parser() -> argparse.ArgumentParser:
    parser = OneLineParser(prog=program("rayctsl.client"), description="Talk to a rayctsl service.")
    url = os.environ.get("RAYCTSL_URL", DEFAULT_URL)
    parser.add_argument("--url", default=url, help=f"the service (default: RAYCTSL_URL, else {DEFAULT_URL})")
    commands = parser.add_subparsers(dest="command", required=True, parser_class=OneLineParser, metavar="COMMAND")

    listing = commands.add_parser("list", help="initializations, newest first")
    listing.add_argument("--method")
    listing.add_argument("--model")
    listing.add_argument("--task")
    commands.add_parser("datasets", help="datasets that a job can use")
    commands.add_parser("jobs", help="fine-tuning jobs, newest first")
    show = commands.add_parser("show", help="one initialization, job or comparison, as JSON")
    show.add_argument("id")
    download = commands.add_parser("download", help="weights of an initialization or a job, resumed and verified")
    download.add_argument("id")
    download.add_argument("--out", metavar="FILE|DIR", help="default: <id>.safetensors here")
    finetune = commands.add_parser("finetune", help="start a job and follow it")
    finetune.add_argument("dataset")
    finetune.add_argument("--init", dest="initialization", metavar="ID", help="default: the newest")
    finetune.add_argument("--seed", type=int, metavar="N", help="same request, same seed, same result")
    add_recipe_flags(finetune)
    finetune.add_argument("--label", help="any text, shown beside the job")
    finetune.add_argument("--compare-with-scratch", action="store_true", help="train from random weights too")
    finetune.add_argument(
        "--webhook", metavar="URL", help="who is told of its end, signed with what RAYCTSL_WEBHOOK_SECRET holds"
    )
    finetune.add_argument("--no-wait", action="store_true", help="print the job's id and leave")
    finetune.add_argument("--out", metavar="FILE|DIR", help="download the fine-tuned weights here")
    follow = commands.add_parser("follow", help="watch a job to its end")
    follow.add_argument("id")
    cancel = commands.add_parser("cancel", help="stop a job")
    cancel.add_argument("id")
    predict = commands.add_parser("predict", help="classify images with a finished job's model")
    predict.add_argument("id", help="also latest, latest@DATASET, best@DATASET")
    predict.add_argument("images", nargs="+", metavar="IMAGE", help="files and folders")
    predict.add_argument("--top", type=positive, default=3, metavar="N", help="classes shown on a line (3)")
    _add_own_images(commands)
    _add_life_cycle(commands)
    return parser


def _add_own_images(commands: Commands) -> None:
    upload = commands.add_parser("upload", help="send a folder of class folders, a zip, a tar or an npz as a dataset")
    upload.add_argument("name")
    upload.add_argument("source", metavar="FOLDER|ARCHIVE")
    upload.add_argument("--size", type=int, metavar="PIXELS", help="a side; default: the pictures' own, at most 128")
    upload.add_argument("--seed", type=int, default=0, metavar="N", help="of the split, when the folder has none")
    compare = commands.add_parser("compare", help="several initializations on one dataset, and the leaderboard")
    compare.add_argument("dataset")
    compare.add_argument("--init", dest="initializations", required=True, metavar="A,B,…", help="their ids")
    compare.add_argument("--seeds", type=int, default=3, metavar="N", help="runs of each, paired (3)")
    add_recipe_flags(compare)
    compare.add_argument("--no-wait", action="store_true", help="print the comparison's id and leave")


def _add_life_cycle(commands: Commands) -> None:
    log = commands.add_parser("log", help="what was said and printed while a job ran")
    log.add_argument("id")
    publish = commands.add_parser("publish", help="give a job's model a name, as the repository rayctsl/NAME")
    publish.add_argument("id")
    publish.add_argument("name")
    commands.add_parser("models", help="published models")
    delete = commands.add_parser("delete", help="jobs, comparisons, published models; or --dataset, --status")
    delete.add_argument("ids", nargs="*", metavar="ID")
    delete.add_argument("--weights", action="store_true", help="of the jobs named, their models alone")
    delete.add_argument("--dataset", metavar="NAME", help="an uploaded dataset")
    delete.add_argument("--status", choices=ENDED, help="all own jobs that ended so")
    delete.add_argument("--days", type=float, default=0.0, metavar="N", help="with --status: so long ago or more")


def main(argv: list[str] | None = None) -> int:
    return run_command(build_parser(), argv, run, "stopped; a job goes on without you: python -m rayctsl.client jobs")


def run(options: argparse.Namespace) -> int:
    with Client(options.url, os.environ.get("RAYCTSL_TOKEN") or None) as client:
        return COMMANDS[options.command](client, options)


COMMANDS = {
    "list": reading.list_initializations,
    "datasets": reading.list_datasets,
    "jobs": reading.list_jobs,
    "models": reading.list_models,
    "show": reading.show,
    "log": reading.log,
    "download": reading.download,
    "upload": working.upload,
    "finetune": working.finetune,
    "follow": working.follow,
    "compare": working.compare,
    "predict": working.predict,
    "cancel": ending.cancel,
    "publish": ending.publish,
    "delete": ending.delete,
}
