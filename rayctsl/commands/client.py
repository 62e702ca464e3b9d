"""The command `python -m rayctsl.client`: list, download, fine-tune, follow, cancel, predict."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from rayctsl.client import DEFAULT_URL, Client
from rayctsl.command import OneLineParser, program, run_command
from rayctsl.jobs.flags import add_recipe_flags, given_recipe


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
    show = commands.add_parser("show", help="one initialization or job, as JSON")
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
    finetune.add_argument("--no-wait", action="store_true", help="print the job's id and leave")
    finetune.add_argument("--out", metavar="FILE|DIR", help="download the fine-tuned weights here")
    follow = commands.add_parser("follow", help="watch a job to its end")
    follow.add_argument("id")
    cancel = commands.add_parser("cancel", help="stop a job")
    cancel.add_argument("id")
    predict = commands.add_parser("predict", help="classify an image with a finished job's model")
    predict.add_argument("id")
    predict.add_argument("image", type=Path)
    return parser


def main(argv: list[str] | None = None) -> int:
    return run_command(build_parser(), argv, run, "stopped; a job goes on without you: python -m rayctsl.client jobs")


def run(options: argparse.Namespace) -> int:
    with Client(options.url, os.environ.get("RAYCTSL_TOKEN") or None) as client:
        return COMMANDS[options.command](client, options)


def _list(client: Client, options: argparse.Namespace) -> int:
    filters = {key: getattr(options, key) for key in ("method", "model", "task") if getattr(options, key)}
    for card in client.initializations(**filters):
        size = f"{card.get('size', 0) / 2**20:8.2f} MiB"
        print(f"{card['id']:40}  {size}  {len(card.get('tasks', [])):3} tasks  {card['created']}")
    return 0


def _datasets(client: Client, options: argparse.Namespace) -> int:
    for dataset in client.datasets():
        state = "ready" if dataset["prepared"] else "not prepared"
        print(f"{dataset['name']:24}  {dataset['num_classes']:5} classes  {state:12}  {dataset['source']}")
    return 0


def _jobs(client: Client, options: argparse.Namespace) -> int:
    for job in client.jobs():
        accuracy = f"{100 * job['result']['accuracy']:.1f} %" if job["result"] else ""
        progress = f"{job['progress']['step']}/{job['progress']['steps']}"
        print(f"{job['id']}  {job['status']:10}  {progress:>13}  {job['dataset']:20}  {accuracy:>7}  {job['label']!a}")
    return 0


def _show(client: Client, options: argparse.Namespace) -> int:
    one = client.job(options.id) if options.id.startswith("ft-") else client.initialization(options.id)
    print(json.dumps(one, indent=2))
    return 0


def _download(client: Client, options: argparse.Namespace) -> int:
    print(_fetch(client, options.id, options.out))
    return 0


def _fetch(client: Client, identifier: str, out: str | None) -> Path:
    from rayctsl.progress import Progress

    bar: Progress | None = None

    def on_bytes(done: int, total: int) -> None:
        nonlocal bar
        if bar is None:
            bar = Progress(total, identifier, unit="B")
        bar.advance(done - bar.done)

    try:
        return client.download(identifier, out, on_bytes)
    finally:
        if bar:
            bar.close()


def _finetune(client: Client, options: argparse.Namespace) -> int:
    names = ("initialization", "seed", "label")
    wanted = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    wanted |= given_recipe(options)
    job = client.finetune(options.dataset, compare_with_scratch=options.compare_with_scratch, **wanted)
    if options.no_wait:
        print(job["id"])
        return 0
    code = _report(client, job)
    if code == 0 and options.out:
        print(_fetch(client, job["id"], options.out))
    return code


def _follow(client: Client, options: argparse.Namespace) -> int:
    return _report(client, client.job(options.id))


def _report(client: Client, job: dict[str, Any]) -> int:
    """Watch with a progress bar, then say how it ended."""
    from rayctsl.progress import Progress

    bar = Progress(job["progress"]["steps"], job["id"])
    latest: dict[str, float] = {}

    def on_event(event: dict[str, Any]) -> None:
        if event["event"] == "point":
            latest[event["run"]] = event["accuracy"]
        step = event.get("step", bar.done)
        if event["event"] in ("status", "point"):
            note = ", ".join(f"{run} {100 * accuracy:.1f} %" for run, accuracy in latest.items())
            bar.advance(max(0, step - bar.done), note or str(event.get("status", "")))

    try:
        job = client.wait(job["id"], on_event)
    finally:
        bar.close()
    if job["status"] != "succeeded":
        reason = f": {job['error']['message']}" if job["error"] else ""
        print(f"{job['id']} {job['status']}{reason}", file=sys.stderr)
        return 1
    result = job["result"]
    print(f"accuracy: {100 * result['accuracy']:.2f} %")
    if result["scratch_accuracy"] is not None:
        print(f"from scratch: {100 * result['scratch_accuracy']:.2f} %")
    print(f"job: {job['id']}")
    return 0


def _cancel(client: Client, options: argparse.Namespace) -> int:
    job = client.cancel(options.id)
    print(f"{job['id']} {job['status']}")
    return 0


def _predict(client: Client, options: argparse.Namespace) -> int:
    for row in client.predict(options.id, options.image)[:10]:
        print(f"{100 * row['probability']:6.2f} %  {row['name']}")
    return 0


COMMANDS = {
    "list": _list,
    "datasets": _datasets,
    "jobs": _jobs,
    "show": _show,
    "download": _download,
    "finetune": _finetune,
    "follow": _follow,
    "cancel": _cancel,
    "predict": _predict,
}
