"""What the documents print is true: commands parse, Python runs, links lead somewhere, references are current."""

from __future__ import annotations

import contextlib
import importlib
import io
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from rayctsl.commands.console import COMMANDS
from rayctsl.config.reference import as_markdown, config_keys

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *ROOT.glob("configs/*.md"), *ROOT.glob("k8s/*.md")])
LAUNCHERS = {"python -m serve": "serve", **{f"python -m rayctsl.{name}": name for name in COMMANDS}}


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(), re.M | re.S)


def command_lines(path: Path) -> Iterator[str]:
    """The rayctsl commands of a page's shell blocks, one line each, without comments."""
    for block in blocks(path, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            words = re.sub(r"\s#.*", "", line).strip()
            for launcher, name in LAUNCHERS.items():
                words = re.sub(rf"^{launcher}\b(?!\.)", f"rayctsl {name}", words)
            if words.startswith("rayctsl "):
                yield words


PRINTED = [(page, line) for page in PAGES for line in command_lines(page)]


@pytest.mark.parametrize(("page", "line"), PRINTED, ids=[f"{page.name}: {line}" for page, line in PRINTED])
def test_printed_commands_are_understood(page: Path, line: str) -> None:
    _, name, *arguments = shlex.split(line.replace("…", "x"))
    module = importlib.import_module(COMMANDS[name][0])
    if arguments[:1] == ["keys"]:  # `serve keys` has a parser of its own
        module, arguments = importlib.import_module("serve.keys_command"), arguments[1:]
    parser = getattr(module, "parser", None) or module.build_parser
    complaint, code = io.StringIO(), 0
    with contextlib.redirect_stderr(complaint):
        try:
            parser().parse_args(arguments)
        except SystemExit as stopped:
            code = int(stopped.code or 0)
    assert code == 0, complaint.getvalue()


def test_the_readme_prints_commands() -> None:
    assert len([page for page, _ in PRINTED if page.name == "README.md"]) >= 10


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text())
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert missing == []


def test_the_readmes_python_runs(data_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    block, _ = blocks(ROOT / "README.md", "python")  # the other one: tests/models/test_models_resnet.py
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "README.md", "exec"), {"__name__": "readme"})
    assert re.fullmatch(r"\d+\.\d % on digits\n", capsys.readouterr().out)


def test_the_services_page_opens_a_downloaded_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    from PIL import Image

    from rayctsl.config import ModelConfig
    from rayctsl.data.store import SplitInfo
    from rayctsl.jobs.model import save_finetuned
    from rayctsl.models import build_model

    monkeypatch.chdir(tmp_path)
    statistics = {"mean": (0.5,) * 3, "std": (0.2,) * 3}
    info = SplitInfo("digits", "train", (28, 28, 3), tuple("abcd"), **statistics)
    model = ModelConfig(name="resnet8", width=4)
    Path("digits.safetensors").write_bytes(save_finetuned(build_model(model, 4, 0), model, info))
    Image.new("L", (40, 30)).save("seven.png")
    (block,) = [block for block in blocks(ROOT / "docs" / "SERVICE.md", "python") if "Finetuned.load" in block]
    exec(compile(block, "SERVICE.md", "exec"), {})
    assert re.fullmatch(r"([abcd]: \d+\.\d %\n){3}", capsys.readouterr().out)


def test_the_configs_reference_is_current() -> None:
    """After a change of the config: rayctsl config --markdown > docs/CONFIG.md"""
    assert (ROOT / "docs" / "CONFIG.md").read_text() == as_markdown(config_keys())


def test_the_readme_is_short() -> None:
    before_details = (ROOT / "README.md").read_text().partition("## On a cluster")[0]
    assert len(before_details.splitlines()) <= 2 * 40
