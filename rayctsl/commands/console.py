"""The console script `rayctsl COMMAND …`: every command by its name, loaded only when it is asked for."""

from __future__ import annotations

import sys
from importlib import import_module

from rayctsl.command import CONSOLE
from rayctsl.words import suggest

COMMANDS = {  # name -> module with main(argv), and what it does
    "demo": ("rayctsl.commands.demo", "meta-train on the embedded datasets and compare on unseen ones"),
    "train": ("rayctsl.commands.train", "meta-train an initialization"),
    "finetune": ("rayctsl.commands.finetune", "fine-tune an initialization on a dataset"),
    "predict": ("rayctsl.commands.predict", "classify images with a fine-tuned model"),
    "evaluate": ("rayctsl.commands.evaluate", "a fine-tuned model's accuracy, class by class"),
    "compare": ("rayctsl.commands.compare", "several initializations on one dataset, with paired intervals"),
    "export": ("rayctsl.commands.export", "a fine-tuned model as a program for torch or ONNX"),
    "push": ("rayctsl.commands.push", "an initialization or a model to a model hub"),
    "pull": ("rayctsl.commands.pull", "an initialization or a model from a model hub"),
    "tune": ("rayctsl.commands.tune", "search beta, K, the method or any other config key"),
    "config": ("rayctsl.commands.config", "every config key: type, default, meaning, the paper's value"),
    "data": ("rayctsl.commands.data", "list, prepare, import, check and show datasets"),
    "zoo": ("rayctsl.commands.zoo", "the initializations that come with the package"),
    "experiments": ("rayctsl.commands.experiments", "the paper's figures and tables"),
    "bench": ("rayctsl.commands.bench", "measure this machine and the program on it"),
    "serve": ("serve.__main__", "initializations and fine-tuning over HTTP"),
    "client": ("rayctsl.commands.client", "talk to a running service"),
}


def main(argv: list[str] | None = None) -> int:
    name, *rest = (sys.argv[1:] if argv is None else argv) or ["--help"]
    if name in ("-h", "--help"):
        print(usage())
        return 0
    if name not in COMMANDS:
        print(f"rayctsl: command {name!r} is unknown{suggest(name, COMMANDS)}", file=sys.stderr)
        return 2
    CONSOLE.append(name)
    try:
        return int(import_module(COMMANDS[name][0]).main(rest))
    finally:
        CONSOLE.pop()


def usage() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {what}" for name, (_, what) in COMMANDS.items()]
    return "\n".join(["usage: rayctsl COMMAND …  (rayctsl COMMAND --help says more)", "", *lines])
