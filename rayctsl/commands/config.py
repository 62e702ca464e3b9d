"""`rayctsl config`: every config key with its type, default, meaning and the paper's value."""

from __future__ import annotations

import argparse

from rayctsl.command import OneLineParser, program, run_command


def parser() -> argparse.ArgumentParser:
    parser = OneLineParser(prog=program("rayctsl.config"), description=__doc__)
    parser.add_argument("words", nargs="*", metavar="WORD", help="only keys with these words in name or meaning")
    parser.add_argument("--markdown", action="store_true", help="the whole reference as docs/CONFIG.md has it")
    return parser


def main(argv: list[str] | None = None) -> int:
    return run_command(parser(), argv, show)


def show(arguments: argparse.Namespace) -> None:
    from rayctsl.config.reference import as_markdown, as_text, config_keys

    keys = config_keys()
    if arguments.markdown:
        print(as_markdown(keys), end="")
        return
    words = [word.lower() for word in arguments.words]
    found = [key for key in keys if all(word in f"{key.name} {key.meaning}".lower() for word in words)]
    if not found:
        raise ValueError(f"no config key has {' and '.join(words)} in its name or meaning")
    print(as_text(found))
