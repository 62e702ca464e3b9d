"""The command `python -m serve keys add | list | revoke`."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from rayctsl.command import OneLineParser, run_command

if TYPE_CHECKING:
    from serve.keys import KeyStore


def build_parser() -> argparse.ArgumentParser:
    parser = OneLineParser(prog="python -m serve keys", description="Make, list and revoke API keys of a service.")
    commands = parser.add_subparsers(dest="command", required=True, parser_class=OneLineParser, metavar="COMMAND")
    add = commands.add_parser("add", help="make a key and print it, for the only time")
    add.add_argument("name", help="who it is for; stands in the logs and beside jobs")
    add.add_argument("--scope", default="read,finetune", metavar="A,B", help="of read, finetune, admin")
    add.add_argument("--queue-share", type=int, metavar="N", help="jobs of this key that may wait")
    add.add_argument("--jobs-per-day", type=int, metavar="N", help="jobs it may ask for in 24 hours")
    add.add_argument("--requests-per-minute", type=int, metavar="N", help="requests it may send")
    revoke = commands.add_parser("revoke", help="take a key back; a running service refuses it within two seconds")
    revoke.add_argument("name")
    listing = commands.add_parser("list", help="every key: name, scopes, limits, when it was made and revoked")
    for command in (add, revoke, listing):
        command.add_argument("--storage", metavar="DIR|URI", help="the service's storage (default: RAYCTSL_STORAGE)")
        command.add_argument("--database", metavar="URL", help="the service's database, where it has one of its own")
    return parser


def main(argv: list[str] | None = None) -> int:
    return run_command(build_parser(), argv, _run)


def open_keys(storage: str | None, database: str | None) -> KeyStore:
    """The keys of a service, whether it runs or not."""
    from rayctsl.registry import storage_root
    from serve.jobs.tables import open_database
    from serve.keys import KeyStore
    from serve.settings import Settings

    return KeyStore(open_database(Settings(storage=storage_root(storage), database=database).database_url))


def _run(options: argparse.Namespace) -> int:
    from serve.keys import Caller

    keys = open_keys(options.storage, options.database)
    if options.command == "add":
        limits = {name: getattr(options, name) for name in ("queue_share", "jobs_per_day", "requests_per_minute")}
        scopes = tuple(word.strip() for word in options.scope.split(",") if word.strip())
        print(keys.add(Caller(options.name, scopes, **limits)))
    elif options.command == "revoke":
        keys.revoke(options.name)
        print(f"revoked {options.name}")
    else:
        for caller, made, revoked in keys.all():
            bounds = (caller.queue_share, caller.jobs_per_day, caller.requests_per_minute)
            words = ["-" if bound is None else str(bound) for bound in bounds]
            state = f"revoked {_day(revoked)}" if revoked else "valid"
            print(f"{caller.name:24}  {','.join(caller.scopes):20}  {'  '.join(words):16}  {_day(made)}  {state}")
    return 0


def _day(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(at))
