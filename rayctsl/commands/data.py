"""The command `python -m rayctsl.data`: list, prepare, import, check and show datasets."""

from __future__ import annotations

import argparse
from pathlib import Path

from rayctsl.command import OneLineParser, positive, program, run_command


def build_parser() -> argparse.ArgumentParser:
    parser = OneLineParser(prog=program("rayctsl.data"), description="Datasets of a data root.")
    commands = parser.add_subparsers(dest="command", required=True, parser_class=OneLineParser, metavar="COMMAND")
    shared = OneLineParser(add_help=False)
    shared.add_argument("--data-root", help="folder or pyarrow URI such as s3://bucket/data (default: RAYCTSL_DATA)")
    work = OneLineParser(add_help=False)
    work.add_argument("--workers", type=positive, help="processes that decode images (default: one per core)")
    work.add_argument("--replace", action="store_true", help="put the new data in the place of the old")

    commands.add_parser("list", parents=[shared], help="what is known and what is prepared")
    prepare = commands.add_parser("prepare", parents=[shared, work], help="download and convert known datasets")
    prepare.add_argument("names", nargs="+", metavar="NAME", help="such as cub, or cub@224 for another size")
    prepare.add_argument("--downloads", type=Path, help="folder of the publishers' files (default: in the data root)")
    importing = commands.add_parser("import", parents=[shared, work], help="take in your own images")
    importing.add_argument("name", metavar="NAME")
    importing.add_argument("--from", dest="path", type=Path, required=True, metavar="PATH", help="folder or .npz file")
    importing.add_argument("--size", type=positive, help="pixels a side (default: the pictures' own, at most 128)")
    importing.add_argument("--seed", type=int, default=0, help="of the split of a folder without train/ and test/")
    importing.add_argument(
        "--no-flip", dest="flip", action="store_false", help="mirror images are of another class: letters, digits, maps"
    )
    importing.add_argument(
        "--published", action="store_true", help="these are the images that the catalog means by this name"
    )
    check = commands.add_parser("check", parents=[shared], help="verify counts, classes and checksums")
    check.add_argument("names", nargs="*", metavar="NAME", help="default: everything in the data root")
    show = commands.add_parser("show", parents=[shared], help="draw a contact sheet")
    show.add_argument("name", metavar="NAME")
    show.add_argument("--out", type=Path, required=True, metavar="SHEET.png")
    return parser


def main(argv: list[str] | None = None) -> int:
    return run_command(build_parser(), argv, run, "stopped; the data root is as it was")


def run(options: argparse.Namespace) -> int:
    command = {"list": _list, "prepare": _prepare, "import": _import, "check": _check, "show": _show}[options.command]
    return command(options)


def _list(options: argparse.Namespace) -> int:
    from rayctsl.data.listing import table

    print(table(options.data_root))
    return 0


def _prepare(options: argparse.Namespace) -> int:
    from rayctsl.data.catalog import find_entry, parse_reference

    references = [parse_reference(name) for name in options.names]
    for reference in references:
        find_entry(reference.name)  # refuse all before the first long download
    from rayctsl.data.prepare import prepare

    for reference in references:
        folder = prepare(reference, options.data_root, options.downloads, options.workers, options.replace)
        print(_summary(str(reference), folder), flush=True)
    return 0


def _import(options: argparse.Namespace) -> int:
    from rayctsl.data.importing import import_dataset
    from rayctsl.data.names import MARK

    if MARK in options.name:  # what follows it in stored names is never shown
        raise ValueError(f"'{options.name}' is not a usable name: it has {MARK}; write one -")
    folder = import_dataset(
        options.name,
        options.path,
        options.data_root,
        options.size,
        options.seed,
        options.workers,
        options.replace,
        options.flip,
        options.published,
    )
    print(_summary(options.name, folder))
    return 0


def _check(options: argparse.Namespace) -> int:
    from rayctsl.data.names import check_name
    from rayctsl.data.roots import data_root, open_root

    for name in options.names:
        check_name(name, options.data_root)
    from rayctsl.data.check import problems
    from rayctsl.data.library import open_dataset
    from rayctsl.data.store import UnreadableError

    place = open_root(data_root(options.data_root))
    names = options.names or place.names()
    if not names:
        raise ValueError(f"{place.where} holds no dataset")
    sound = True
    for name in names:
        try:
            dataset = open_dataset(name, options.data_root)
            found = problems(dataset)
        except UnreadableError as error:
            found = [str(error)]
        sound = sound and not found
        for problem in found:
            print(f"{name}: {problem}", flush=True)
        if not found:
            counts = f"{len(dataset.train):,} + {len(dataset.test):,} images, {dataset.num_classes} classes"
            print(f"{name}: good, {counts}", flush=True)
    return 0 if sound else 1


def _show(options: argparse.Namespace) -> int:
    from rayctsl.data.names import check_name

    check_name(options.name, options.data_root)
    from rayctsl.data.library import open_dataset
    from rayctsl.data.sheet import write_sheet

    write_sheet(open_dataset(options.name, options.data_root), options.out)
    print(options.out)
    return 0


def _summary(name: str, folder: Path) -> str:
    from rayctsl.data.store import open_split

    train, test = (open_split(folder / f"{split}.arrow") for split in ("train", "test"))
    height, width, _ = train.info.shape
    facts = f"{len(train):,} + {len(test):,} images of {height} x {width}, {train.info.num_classes} classes"
    return f"{name}: {facts}, in {folder}"
