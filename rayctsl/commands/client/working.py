"""Doing: send images, fine-tune, follow, compare, predict."""

from __future__ import annotations

import argparse
import os
import sys
import time

from rayctsl.client import Client
from rayctsl.client.sending import find_images
from rayctsl.commands.client.reading import fetch
from rayctsl.contract import JsonObject
from rayctsl.jobs.flags import given_recipe


def upload(client: Client, options: argparse.Namespace) -> int:
    from rayctsl.progress import Progress

    bar: Progress | None = None

    def on_bytes(done: int, total: int) -> None:
        nonlocal bar
        if bar is None:
            bar = Progress(total, options.name, unit="B")
        bar.advance(done - bar.done)

    try:
        made = client.upload(options.name, options.source, size=options.size, seed=options.seed, on_bytes=on_bytes)
    finally:
        if bar:
            bar.close()
    of = made["dataset"]
    print(f"{options.name}: {of['num_train']} training and {of['num_test']} test images of {of['num_classes']} classes")
    return 0


def finetune(client: Client, options: argparse.Namespace) -> int:
    names = ("initialization", "seed", "label")
    wanted = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    wanted |= given_recipe(options)
    if options.webhook:
        wanted["webhook"] = {"url": options.webhook, "secret": os.environ.get("RAYCTSL_WEBHOOK_SECRET", "")}
    job = client.finetune(options.dataset, compare_with_scratch=options.compare_with_scratch, **wanted)
    if options.no_wait:
        print(job["id"])
        return 0
    code = _report(client, job)
    if code == 0 and options.out:
        print(fetch(client, job["id"], options.out))
    return code


def follow(client: Client, options: argparse.Namespace) -> int:
    return _report(client, client.job(options.id))


def _report(client: Client, job: JsonObject) -> int:
    """Watch with a progress bar, then say how it ended."""
    from rayctsl.progress import Progress

    bar = Progress(job["progress"]["steps"], job["id"])
    latest: dict[str, float] = {}

    def on_event(event: JsonObject) -> None:
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


def compare(client: Client, options: argparse.Namespace) -> int:
    from rayctsl.progress import Progress

    names = [name for name in options.initializations.split(",") if name]
    made = client.compare(options.dataset, names, seeds=options.seeds, **given_recipe(options))
    if options.no_wait:
        print(made["id"])
        return 0
    total = sum(job["progress"]["steps"] for jobs in made["jobs"].values() for job in jobs)
    bar = Progress(total, made["id"])
    try:
        while made["status"] == "running":
            time.sleep(1.0)
            made = client.comparison(made["id"])
            done = sum(job["progress"]["step"] for jobs in made["jobs"].values() for job in jobs)
            bar.advance(max(0, done - bar.done))
    finally:
        bar.close()
    print(leaderboard(made["leaderboard"]))
    print(f"comparison: {made['id']}")
    return 0 if all(place["finished"] for place in made["leaderboard"]) else 1


def leaderboard(places: list[JsonObject]) -> str:
    """The table for people, as `rayctsl compare` prints it."""
    width = max(len("start"), *(len(place["initialization"]) for place in places))
    lines = [f"{'start':{width}}  {'accuracy':>16}  {'behind the best':>18}  seeds"]
    for number, place in enumerate(places):
        accuracy = _with_interval(place["accuracy"], place["interval"])
        behind = "" if number == 0 else _with_interval(place["behind"], place["behind_interval"])
        lines.append(f"{place['initialization']:{width}}  {accuracy:>16}  {behind:>18}  {place['finished']}")
    return "\n".join(lines)


def _with_interval(share: float | None, half: float | None) -> str:
    if share is None:
        return "–"
    return f"{100 * share:.2f} %" if half is None else f"{100 * share:.2f} ± {100 * half:.2f} %"


def predict(client: Client, options: argparse.Namespace) -> int:
    failed = 0
    for row in client.predict_many(options.id, find_images(options.images)):
        classes = "  ".join(f"{one['name']} {100 * one['probability']:.1f} %" for one in row["classes"][: options.top])
        failed += row["error"] is not None
        print(f"{row['name']}: {row['error'] or classes}", file=sys.stderr if row["error"] else sys.stdout)
    return 1 if failed else 0
