"""What a new user gets wrong: every case ends with one sentence that says what to do, and with the right exit code."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from rayctsl.commands.console import COMMANDS
from rayctsl.config import load_config
from rayctsl.data.store import SplitInfo, write_split
from rayctsl.learning.run import run_local
from rayctsl.learning.run_folder import RunFolder

RUN = "--run-dir {tmp}/new"
SMALL = "--set model.name=resnet8 --set model.width=4 --set batch_size=8 --inner-steps 2 --trajectories 1"

# command line -> the sentence (a part of it); exit code 2 unless said otherwise below
WRONG = {
    # The console script
    "trian": "command 'trian' is unknown; did you mean 'train'?",
    "fine-tune": "did you mean 'finetune'?",
    # Config keys and values
    f"train {RUN} --method reptil": "method 'reptil' is unknown; did you mean 'reptile'?",
    f"train {RUN} --method xyz": "method 'xyz' is unknown; known: accurate, anil",
    f"train {RUN} --set inner.alpa=3": "config key 'inner.alpa' is unknown; did you mean 'alpha'?",
    f"train {RUN} --set alpa=3": "config key 'alpa' is unknown; did you mean 'alpha'?",
    f"train {RUN} --set bta=3": "did you mean 'beta'?",
    f"train {RUN} --set topology.workrs=3": "did you mean 'workers'?",
    f"train {RUN} --set method.pul=3": "config key 'method.pul' is unknown; did you mean 'pull'?",
    f"train {RUN} --set novalue": "--set takes key=value",
    f"train {RUN} --set =3": "--set takes key=value",
    f"train {RUN} --set alpha=[1": "is not a value",
    f"train {RUN} --set alpha=fast": "inner.alpha",
    f"train {RUN} --set alpha=-1": "inner.alpha: input should be greater than or equal to 0 (got -1)",
    f"train {RUN} --beta -1": "method.beta: input should be greater than or equal to 0",
    f"train {RUN} --beta nan": "method.beta",
    f"train {RUN} --beta much": "argument --beta: invalid float value: 'much'",
    f"train {RUN} --inner-steps 0": "inner_steps: input should be greater than or equal to 1",
    f"train {RUN} --inner-steps 1.5": "argument --inner-steps: invalid int value: '1.5'",
    f"train {RUN} --trajectories 0": "trajectories",
    f"train {RUN} --seed -1": "seed: input should be greater than or equal to 0",
    f"train {RUN} --workers 0": "topology.workers",
    f"train {RUN} --set precision=fp16": "precision: input should be 'fp32', 'tf32' or 'bf16'",
    f"train {RUN} --set topology.transport=mail": "topology.transport",
    f"train {RUN} --set model.name=resnet9": "model 'resnet9' is unknown; did you mean 'resnet",
    f"train {RUN} --set model=3": "model",
    f"train {RUN} --tasks ,": "data.tasks is empty",
    f"train {RUN} --tasks latin,latin": "data.tasks names a dataset twice",
    f"train {RUN} --tasks latn": "dataset 'latn' is unknown; did you mean 'latin'?",
    f"train {RUN} --tasks Latin": "'Latin' is not a dataset name",
    f"train {RUN} --tasks latin@": "'latin@' has no usable size",
    f"train {RUN} --tasks cub": "dataset 'cub' is known but not prepared: run python -m rayctsl.data prepare cub",
    f"train {RUN} --tasks latin --method single --set source=greek": "method.source 'greek' is not one of data.tasks",
    f"train {RUN} --config nowhere.yaml": "there is no config file nowhere.yaml",
    f"train {RUN} --config configs/dmeo.yaml": "there is no config file configs/dmeo.yaml",
    f"train {RUN} --config {{tmp}}": "is not readable YAML",
    f"train {RUN} --config {{tmp}}/list.yaml": "must hold keys and values, not a list",
    f"train {RUN} --config {{tmp}}/broken.yaml": "is not readable YAML",
    f"train {RUN} --data-root s4://bucket": "s4",
    f"train {RUN} --tasks small {SMALL} --set gpus_per_learner=abc": "topology.gpus_per_learner",
    f"train {RUN} --wrkers 2": "unrecognized arguments: --wrkers 2",
    # Run folders
    f"train --tasks small {SMALL} --run-dir {{tmp}}/used": "is already used; choose another --run-dir",
    f"train --tasks small {SMALL} --run-dir {{tmp}}/file": "is a file, not a folder",
    f"train --tasks small {SMALL} --run-dir {{tmp}}/file/below": "cannot write to the run folder",
    "train --resume {tmp}/nowhere": "is not a run folder: it has no config.yaml",
    "train --resume {tmp}/used": "is not a run folder",
    "train --resume {tmp}/run --beta 7": "only its topology and its data root may change",
    "train --resume-if-exists": "--resume-if-exists needs --run-dir",
    "train --restart": "--restart needs --resume DIR",
    # Fine-tuning
    "finetune --dataset small": "the following arguments are required: --init",
    "finetune --init none": "the following arguments are required: --dataset",
    "finetune --init none --dataset smal": "dataset 'smal' is unknown; did you mean 'small'?",
    "finetune --init shifting-resnet8-00 --dataset small": "there is no initialization 'shifting-resnet8-00'",
    "finetune --init Some/Where --dataset small": "neither a folder with an initialization nor an id",
    "finetune --init {tmp}/used --dataset small": "holds no initialization (no card.json in it)",
    "finetune --init none --dataset small --steps 0": "finetune.steps",
    "finetune --init none --dataset small --seeds 0": "finetune.seeds",
    "finetune --init none --dataset small --train-size 999999": "small has 32 training images",
    "finetune --init none --dataset small --out {tmp}": "is a folder; name a file in it",
    "finetune --init none --dataset small --out {tmp}/no/where.json": "the folder of",
    "finetune --init none --dataset small --plot {tmp}": "is a folder; name a file in it",
    "finetune --init none --dataset small --threads -1": "argument --threads: '-1' is not a positive number",
    "finetune --init none --dataset small --jobs -1": "argument --jobs: '-1' is not a positive number",
    "compare --init none --dataset small --threads 0": "argument --threads: '0' is not a positive number",
    "compare --init none --dataset small --jobs two": "argument --jobs: 'two' is not a positive number",
    # Sweeps
    "tune": "give either --config F.yaml to begin a sweep or --resume DIR",
    "tune --config a.yaml --resume b": "give either --config",
    "tune --config nowhere.yaml": "there is no config file nowhere.yaml",
    "tune --config {tmp}/sweep.yaml --run-dir {tmp}/new": "sweep key 'serch' is unknown; did you mean 'search'?",
    "tune --resume {tmp}/used": "is not the folder of a sweep",
    "tune --config configs/sweeps/smoke.yaml --resume-if-exists": "--resume-if-exists needs --run-dir",
    # Data
    "data prepare cubb": "dataset 'cubb' is not in the catalog; did you mean 'cub'?",
    "data prepare flowers": "did you mean 'vgg_flowers'?",
    "data check nothing": "dataset 'nothing' is unknown",
    "data show nothing --out {tmp}/sheet.png": "dataset 'nothing' is unknown",
    "data import mine --from {tmp}/nowhere": "does not exist",
    "data import Mine --from {tmp}/pictures": "'Mine' is not a usable name",
    "data import mine--small --from {tmp}/pictures": "'mine--small' is not a usable name",
    "data import digits --from {tmp}/pictures": "'digits' is an embedded dataset; choose another name",
    "data import svhn --from {tmp}/pictures": "'svhn' is the catalog's name for",
    "data import small --from {tmp}/pictures": "'small' is already in",
    "data import mine --from {tmp}/one": "has one class only ('cat')",
    "data import mine --from {tmp}/empty": "has no class folders",
    "data import mine --from {tmp}/file": "is not a readable .npz file",
    "data import mine --from {tmp}/pictures --size 0": "'0' is not a positive number",
    "data import mine --from {tmp}/pictures --data-root {tmp}/file": "cannot be written",
    # Experiments, measurements, the client and the service
    "experiments image --out {tmp}/x --suite embeded": "there is no suite 'embeded'; did you mean 'embedded'?",
    "experiments image": "the following arguments are required: --out",
    "experiments synthetic run --start 0 0 --out {tmp}/x.json": "name a --method, or a --config that does",
    "experiments synthetic run --start 0 0 --out {tmp} --method reptile": "is a folder; name a file for the result",
    "experiments synthetic run --start inf 0 --out {tmp}/x.json --method reptile": "--start needs two finite numbers",
    "experiments synthetic run --start 0 0 --out {tmp}/x.json --method anil": "method 'anil' adapts the head alone",
    "experiments lengths --out {tmp}/x --seeds 0": "argument --seeds: '0' is not a positive number",
    "bench data --rounds 0": "argument --rounds: '0' is not a positive number",
    "client predict job picture.jpg --top -1": "argument --top: '-1' is not a positive number",
    "bench stp": "invalid choice: 'stp'",
    "client --url ftp://x list": "ftp",
    "serve --port 99999 --storage {tmp}": "port must be between 0 and 65535, not 99999",
    "serve --host 203.0.113.1 --storage {tmp}": "set RAYCTSL_TOKEN",
    "serve --storage {tmp}/typo": "there is no folder",
}
CODES = {"client --url ftp://x list": (1, 2)}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, data_root: Path) -> Path:
    """Files that are wrong in different ways, a small dataset and the folder of a run."""
    tmp, random = tmp_path_factory.mktemp("world"), np.random.default_rng(0)
    for split in ("train", "test"):
        info = SplitInfo("small", split, (12, 12, 1), tuple("abcd"))
        images = random.integers(0, 256, (32, 12, 12, 1), dtype=np.uint8)
        write_split(data_root / "small" / f"{split}.arrow", images, np.arange(32) % 4, info)
    for folder in ("used", "empty", "one/cat", "pictures/cat", "pictures/dog"):
        (tmp / folder).mkdir(parents=True)
    (tmp / "used" / "mine").touch()
    (tmp / "file").write_text("some text")
    (tmp / "list.yaml").write_text("[1, 2]")
    (tmp / "broken.yaml").write_text("a: [1")
    (tmp / "sweep.yaml").write_text("serch: {beta: {grid: [1]}}")
    for name in ("one/cat", "pictures/cat", "pictures/dog"):
        for number in range(3):
            Image.new("RGB", (10, 10), (number, 0, 0)).save(tmp / name / f"{number}.png")
    small = {"tasks": ["small"], "model.name": "resnet8", "model.width": 4, "inner_steps": 1, "trajectories": 1}
    config = load_config(None, {**small, "batch_size": 8})
    run_local(config, RunFolder.open(str(tmp / "run"), config))
    return tmp


@pytest.mark.timeout(60)
@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_input_is_one_sentence(
    world: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.setenv("RAYCTSL_STORAGE", str(world / "no-storage"))
    monkeypatch.chdir(world)
    code, said = answer(line.format(tmp=world).split(), capsys)
    assert WRONG[line] in said, said
    assert said.count("\n") == 1, said
    assert code in CODES.get(line, (2,))
    assert not (world / "new").exists()


def answer(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit code and complaint of a command, as the console script would run it."""
    capsys.readouterr()
    command, *rest = words
    try:
        if command in COMMANDS:
            code = importlib.import_module(COMMANDS[command][0]).main(rest)
        else:
            code = importlib.import_module("rayctsl.commands.console").main(words)
    except SystemExit as stopped:
        code = int(stopped.code or 0)
    return code, capsys.readouterr().err


def test_there_are_about_eighty_of_them() -> None:
    assert len(WRONG) >= 80
