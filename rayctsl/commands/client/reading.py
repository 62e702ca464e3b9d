"""Looking: lists, one thing as JSON, logs, downloads."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from rayctsl.client import Client


def list_initializations(client: Client, options: argparse.Namespace) -> int:
    filters = {key: getattr(options, key) for key in ("method", "model", "task") if getattr(options, key)}
    for card in client.initializations(**filters):
        size = f"{card.get('size', 0) / 2**20:8.2f} MiB"
        print(f"{card['id']:40}  {size}  {len(card.get('tasks', [])):3} tasks  {card['created']}")
    return 0


def list_datasets(client: Client, options: argparse.Namespace) -> int:
    for dataset in client.datasets():
        state = "ready" if dataset["prepared"] else "not prepared"
        print(f"{dataset['name']:24}  {dataset['num_classes']:5} classes  {state:12}  {dataset['source']}")
    return 0


def list_jobs(client: Client, options: argparse.Namespace) -> int:
    for job in client.jobs():
        accuracy = f"{100 * job['result']['accuracy']:.1f} %" if job["result"] else ""
        progress = f"{job['progress']['step']}/{job['progress']['steps']}"
        print(f"{job['id']}  {job['status']:10}  {progress:>13}  {job['dataset']:20}  {accuracy:>7}  {job['label']!a}")
    return 0


def list_models(client: Client, options: argparse.Namespace) -> int:
    for model in client.models():
        card = model["card"]
        print(f"{model['name']:32}  {card['dataset']:20}  {100 * card['accuracy']:6.2f} %  {model['job']}")
    return 0


def show(client: Client, options: argparse.Namespace) -> int:
    kinds = {"ft-": client.job, "cmp-": client.comparison}
    look = next((look for start, look in kinds.items() if options.id.startswith(start)), client.initialization)
    print(json.dumps(look(options.id), indent=2))
    return 0


def log(client: Client, options: argparse.Namespace) -> int:
    print(client.log(options.id), end="")
    return 0


def download(client: Client, options: argparse.Namespace) -> int:
    print(fetch(client, options.id, options.out))
    return 0


def fetch(client: Client, identifier: str, out: str | None) -> Path:
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
