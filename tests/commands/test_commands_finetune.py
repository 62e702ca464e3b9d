"""The fine-tune command: fair pairs, a record that is whole, and a divergence that is not taken for a result."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from rayctsl.commands.finetune import main, parser, report, shown_on
from rayctsl.config import FinetuneConfig, load_config
from rayctsl.learning.finetune import CurvePoint, FinetuneResult
from rayctsl.learning.run import run_local
from rayctsl.learning.run_folder import RunFolder
from rayctsl.progress import Progress
from tests.stripes import write_stripes

TINY = {"tasks": ["stripes"], "model.name": "resnet8", "model.width": 4, "inner_steps": 2, "trajectories": 1}
RECIPE = {"steps": 3, "batch_size": 12, "alpha": 0.03, "seeds": 2, "evaluate_every": 3}


def test_progress_counts_the_steps_of_all_seeds():
    progress = Progress(12, "finetune", stream=io.StringIO())
    show = shown_on(progress)
    for seed, step in ((0, 3), (1, 3), (0, 6), (1, 6)):
        show(seed, CurvePoint(step, 1.0, 0.5))
    assert progress.done == 12


@pytest.mark.parametrize(
    ("accuracies", "interval", "told"),
    [([50.0, 54.0], 25.4, "52.00 ± 25.40 %"), ([50.0], float("nan"), "50.00 %")],
)
def test_what_came_out_is_told_seed_by_seed_and_as_a_mean(accuracies, interval, told, tmp_path, capsys):
    mean, recipe = sum(accuracies) / len(accuracies), FinetuneConfig.model_validate(RECIPE)
    result = FinetuneResult("stripes", "mine", 3, 160, accuracies, mean, interval, [], recipe)
    report(result, parser().parse_args(["--init", "mine", "--dataset", "stripes", "--out", str(tmp_path / "r.json")]))
    *seeds, mean_line = capsys.readouterr().out.splitlines()
    assert seeds == ["seed 0: 50.00 %", "seed 1: 54.00 %"][: len(accuracies)]
    assert mean_line == f"stripes from mine, 3 steps of 12 images, alpha 0.03: {told}"
    written = json.loads((tmp_path / "r.json").read_text())
    assert (written["mean"], written["interval"]) == (mean, 25.4 if len(accuracies) > 1 else None)


@pytest.fixture(scope="module")
def run_dir(data_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose config has a fine-tuning recipe of its own, beside that config as a file."""
    write_stripes(data_root)
    folder = tmp_path_factory.mktemp("runs")
    changes = {**TINY, "batch_size": 8, **{f"finetune.{key}": value for key, value in RECIPE.items()}}
    config = load_config(None, changes)
    run_local(config, RunFolder.open(str(folder / "one"), config))
    return folder / "one"


def test_the_readmes_pair_is_fair_and_its_record_is_whole(run_dir: Path, tmp_path: Path, capsys) -> None:
    """Both lines take the recipe that the run names, and the files say all of it."""
    pair = {"init": ["--init", str(run_dir)], "none": ["--init", "none", "--config", str(run_dir / "config.yaml")]}
    recipes = {}
    for name, start in pair.items():
        out = tmp_path / f"{name}.json"
        assert main([*start, "--dataset", "stripes", "--jobs", "1", "--out", str(out)]) == 0
        assert "3 steps of 12 images, alpha 0.03" in capsys.readouterr().out
        recipes[name] = json.loads(out.read_text())["recipe"]
    assert recipes["init"] == recipes["none"]
    assert FinetuneConfig.model_validate(recipes["init"]) == load_config(run_dir / "config.yaml").finetune
    assert set(recipes["init"]) == set(FinetuneConfig.model_fields)


def test_a_configs_recipe_goes_before_the_initializations(run_dir: Path, tmp_path: Path) -> None:
    config, out = tmp_path / "other.yaml", tmp_path / "out.json"
    config.write_text("finetune: {steps: 2, batch_size: 7, alpha: 0.02, seeds: 1}\n")
    words = ["--config", str(config), "--batch-size", "5", "--jobs", "1", "--out", str(out)]
    assert main(["--init", str(run_dir), "--dataset", "stripes", *words]) == 0
    recipe = json.loads(out.read_text())["recipe"]
    assert (recipe["steps"], recipe["alpha"]) == (2, 0.02)
    assert recipe["batch_size"] == 5, "and a flag before both"


def test_flags_change_the_cards_recipe_one_by_one(run_dir: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    flags = ["--batch-size", "5", "--seeds", "1", "--jobs", "1", "--out", str(out)]
    assert main(["--init", str(run_dir), "--dataset", "stripes", *flags]) == 0
    recipe = json.loads(out.read_text())["recipe"]
    assert (recipe["batch_size"], recipe["alpha"], recipe["steps"]) == (5, 0.03, 3)


def test_a_divergence_is_a_failure_and_leaves_no_record(run_dir: Path, tmp_path: Path, capsys) -> None:
    out, picture = tmp_path / "out.json", tmp_path / "out.png"
    flags = ["--alpha", "1e12", "--jobs", "1", "--out", str(out), "--plot", str(picture)]
    assert main(["--init", str(run_dir), "--dataset", "stripes", *flags]) == 1
    said = capsys.readouterr()
    assert said.err.splitlines()[-1].endswith(
        "diverged before step 3: its loss is no longer a number; choose a smaller alpha"
    )
    assert said.out == ""
    assert not out.exists()
    assert not picture.exists()


def test_a_plot_of_one_point_shows_it(run_dir: Path, tmp_path: Path) -> None:
    """In the colours of seeds and mean, not only in the words around it."""
    picture = tmp_path / "one.png"
    flags = ["--seeds", "1", "--jobs", "1", "--plot", str(picture)]
    assert main(["--init", str(run_dir), "--dataset", "stripes", *flags]) == 0
    pixels = np.asarray(Image.open(picture).convert("RGB")).astype(int)
    height, width, _ = pixels.shape
    inside = pixels[height // 8 : -height // 5, width // 8 : -width // 20]  # the axes, without the legend above
    accent = np.abs(inside - np.array([0xC2, 0x41, 0x0C])).sum(-1) < 30
    assert accent.sum() > 20
