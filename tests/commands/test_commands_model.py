"""From finetune --save to answers, by the commands: predict, evaluate, export, compare."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest

import rayctsl
from rayctsl.commands import compare, evaluate, export, finetune, predict
from rayctsl.config import load_config
from rayctsl.data.store import SplitInfo, write_split
from rayctsl.flat import FlatModule
from rayctsl.models import build_model
from rayctsl.registry import save_initialization
from rayctsl.storage import Storage
from tests.stripes import CLASSES, write_pictures, write_stripes

SMALL = "model: {name: resnet8, width: 4}\nfinetune: {steps: 20, batch_size: 32, alpha: 0.05, crop_padding: 1}\n"


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("commands")
    write_stripes(folder / "data")
    (folder / "small.yaml").write_text(SMALL)
    write_pictures(folder / "pictures", count=8, side=12, colour=False)
    (folder / "pictures/rows/broken.jpg").write_bytes(b"not a picture")
    return folder


@pytest.fixture(scope="module")
def model(root: Path) -> str:
    target = root / "model"
    assert finetune.main([*where(root), "--init", "none", "--seeds", "2", "--jobs", "1", "--save", str(target)]) == 0
    return str(target)


def where(root: Path) -> list[str]:
    return ["--dataset", "stripes", "--data-root", str(root / "data"), "--config", str(root / "small.yaml")]


def test_random_weights_are_of_the_configs_model(model):
    card = json.loads(Path(model, "model.json").read_text())
    assert (card["model"]["name"], card["model"]["width"]) == ("resnet8", 4)


def test_predict_files_folders_and_a_list(root, model, tmp_path, capsys, monkeypatch):
    one = str(root / "pictures/rows/000.jpg")
    assert predict.main([model, one, "--top", "1"]) == 0
    line = capsys.readouterr().out
    assert line.startswith(f"{one}: ")
    assert line.count("%") == line.count("\n") == 1
    assert predict.main([f"{model}/model.safetensors", str(root / "pictures"), "--out", str(tmp_path / "p.csv")]) == 1
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 8
    assert "broken.jpg cannot be read: cannot identify image file\n" in said.err
    rows = list(csv.DictReader((tmp_path / "p.csv").read_text().splitlines()))
    assert len(rows) == 9
    good = [row for row in rows if not row["error"]]
    for row in good:
        shares = {name: float(row[name]) for name in CLASSES}
        assert sum(shares.values()) == pytest.approx(1, abs=1e-4)
        assert row["class"] == max(shares, key=lambda name: shares[name])
        assert row["probability"] == row[row["class"]]
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{one}\n\n{one}\n"))
    assert predict.main([model]) == 0
    assert capsys.readouterr().out.count(one) == 2


def test_a_list_goes_on_past_what_is_missing(root, model, capsys, monkeypatch):
    one = str(root / "pictures/rows/000.jpg")
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{root}/gone.jpg\n{one}\n"))
    assert predict.main([model, "-"]) == 1
    said = capsys.readouterr()
    assert said.out.startswith(f"{one}: ")
    assert "gone.jpg cannot be read: there is no such file" in said.err


def test_a_corrupt_picture_among_good_ones_is_named(root, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("RAYCTSL_DATA", str(tmp_path))
    assert finetune.main(["--init", "none", "--dataset", str(root / "pictures")]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.endswith("1 image cannot be read: rows/broken.jpg (cannot identify image file)"), said
    assert list(tmp_path.glob("pictures*")) == []


def test_two_commands_from_a_folder_to_predictions(root, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("RAYCTSL_DATA", str(tmp_path / "data"))
    pictures = write_pictures(tmp_path / "pictures", count=40, side=12)
    words = ["--config", str(root / "small.yaml"), "--seeds", "1", "--save", str(tmp_path / "model")]
    assert finetune.main(["--init", "none", "--dataset", str(pictures), *words]) == 0
    assert predict.main([str(tmp_path / "model"), str(pictures / "rows")]) == 0
    said = capsys.readouterr().out
    assert "pictures from none, 20 steps of 32 images" in said
    assert said.count("rows/") == 10
    assert [row.path for row in rayctsl.predict(tmp_path / "model", pictures / "rows/000.jpg")] == [
        str(pictures / "rows/000.jpg")
    ]


def test_evaluate_agrees_with_the_card(root, model, tmp_path, capsys):
    out = tmp_path / "e.json"
    assert evaluate.main([model, "--dataset", "stripes", "--data-root", str(root / "data"), "--out", str(out)]) == 0
    card, result = json.loads(Path(model, "model.json").read_text()), json.loads(out.read_text())
    assert result["confusion"] == card["confusion"]
    assert result["accuracy"] == card["accuracy"]
    assert f"accuracy: {100 * card['accuracy']:.2f} %" in capsys.readouterr().out


def test_evaluate_tells_how_many_of_a_class_were_found(root, model, capsys, monkeypatch):
    counts = np.array([[6, 2, 0, 0], [0, 5, 0, 0], [1, 0, 3, 0], [0, 0, 0, 0]])  # [true class, predicted class]
    monkeypatch.setattr("rayctsl.learning.evaluation.confusion_matrix", lambda *asked: counts)
    assert evaluate.main([model, "--dataset", "stripes", "--data-root", str(root / "data")]) == 0
    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    shares = ["75.00 % of 8", "100.00 % of 5", "75.00 % of 4", "no images of 0"]
    assert lines[:4] == [[name, share] for name, share in zip(CLASSES, shares, strict=True)]
    assert lines[4][1] == "82.35 % (58.97 to 93.81) of 17 images"


@pytest.mark.parametrize(("split", "images"), [("test", 80), ("train", 160)])
def test_evaluate_takes_the_images_of_the_split_that_is_asked_for(root, model, capsys, split, images):
    where_and_what = ["--dataset", "stripes", "--data-root", str(root / "data"), "--split", split]
    assert evaluate.main([model, *where_and_what]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith(f"of {images} images")


def test_evaluate_refuses_images_of_another_shape(model, tmp_path, capsys):
    for split in ("train", "test"):
        info = SplitInfo("stripes", split, (16, 16, 1), CLASSES)
        write_split(tmp_path / "stripes" / f"{split}.arrow", np.zeros((4, 16, 16, 1), np.uint8), np.arange(4), info)
    assert evaluate.main([model, "--dataset", "stripes", "--data-root", str(tmp_path)]) == 2
    assert "has images of (16, 16, 1), the model takes (12, 12, 1)" in capsys.readouterr().err


def test_compare_ranks_and_draws(root, tmp_path, capsys):
    config = load_config(root / "small.yaml")
    flat = FlatModule(build_model(config.model, 2, seed=3), "head")
    phi = flat.name_backbone(flat.backbone)
    made = save_initialization(Storage(tmp_path / "made"), phi, config, spent={}, metrics={})
    out, plot = tmp_path / "c.json", tmp_path / "c.png"
    words = ["--init", f"none,{made.path}", "--seeds", "2", "--steps", "4", "--jobs", "1"]
    assert compare.main([*where(root), *words, "--out", str(out), "--plot", str(plot)]) == 0
    table, written = capsys.readouterr().out.splitlines(), json.loads(out.read_text())
    assert [row["name"] for row in written["standings"]] == [line.split()[0] for line in table[1:]]
    assert set(written["results"]) == {"none", made.path}  # as they were typed
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("run", "init"), [(finetune.main, "none"), (compare.main, "none,zoo/glyphs")])
def test_a_dataset_is_found_in_the_configs_data_root(run, init, root, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("RAYCTSL_DATA", str(tmp_path))
    config = tmp_path / "there.yaml"
    config.write_text(f"data: {{root: {root}/data}}\n")
    assert run(["--init", init, "--dataset", "stripes", "--config", str(config), "--train-size", "999"]) == 2
    assert "stripes has 160 training images" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([predict.main, "{root}/nothing", "{root}/pictures"], "holds no fine-tuned model"),
        ([predict.main, "{model}", "{root}/nothing.jpg"], "there is no file"),
        ([predict.main, "{model}", "{root}/data"], "has no images"),
        ([predict.main, "{model}", "{root}/pictures", "--out", "{root}/no/p.csv"], "the folder of"),
        ([predict.main, "{model}", "{root}/pictures", "--top", "0"], "--top must be at least 1"),
        ([predict.main, "{root}/small.yaml", "{root}/pictures"], "this is not a fine-tuned model's file"),
        ([evaluate.main, "{model}", "--dataset", "./nothing"], "there is no folder or file"),
        ([evaluate.main, "{model}", "--dataset", "digits", "--out", "{root}"], "is a folder; name a file"),
        ([finetune.main, "--init", "none", "--dataset", "{root}/small.yaml"], "is not a readable .npz"),
        ([finetune.main, "--init", "zoo/glyph", "--dataset", "digits"], "did you mean 'glyphs'"),
        ([finetune.main, "--init", "none", "--dataset", "digits", "--time-limit", "0"], "time_limit must be more"),
        ([evaluate.main, "{model}", "--dataset", "digits"], "has other classes"),
        ([export.main, "{model}", "--to", "torch", "--out", "{root}/no/x.pt2"], "does not exist"),
        ([compare.main, "--init", "none", "--dataset", "digits"], "two or more"),
        ([compare.main, "--init", "none, none", "--dataset", "digits"], "two or more"),
        ([compare.main, "--init", "none,{root}/nothing", "--dataset", "digits"], "neither a folder"),
        ([finetune.main, "--init", "none", "--dataset", "digits", "--each"], "--each needs --save"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(root, model, data_root, capsys, arguments, sentence):
    run, *words = arguments
    assert run([word.format(root=root, model=model) for word in words]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1


@pytest.mark.usefixtures("timm_library", "data_root")
@pytest.mark.parametrize(
    ("name", "sentence"), [("nothing", "timm has no model 'nothing'"), ("test_resnet@gone.pth", "does not exist")]
)
def test_a_model_that_timm_does_not_have_is_one_line_and_exit_2(capsys, name, sentence):
    assert finetune.main(["--init", f"timm/{name}", "--dataset", "digits"]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1
