"""Ending: cancel, publish, delete."""

from __future__ import annotations

import argparse

from rayctsl.client import Client


def cancel(client: Client, options: argparse.Namespace) -> int:
    job = client.cancel(options.id)
    print(f"{job['id']} {job['status']}")
    return 0


def publish(client: Client, options: argparse.Namespace) -> int:
    print(client.publish(options.id, options.name)["repository"])
    return 0


def delete(client: Client, options: argparse.Namespace) -> int:
    if not (options.ids or options.dataset or options.status):
        raise ValueError("say what to delete: ids, --dataset NAME or --status STATUS")
    for identifier in options.ids:
        (client.delete_weights if options.weights else client.delete)(identifier)
        print(f"{identifier} deleted")
    if options.dataset:
        client.delete_dataset(options.dataset)
        print(f"{options.dataset} deleted")
    if options.status:
        print(f"{len(client.delete_jobs(options.status, options.days))} jobs deleted")
    return 0
