"""`experiments image` and `ablation`: the real command on a tiny suite, all stages, stopped and changed on the way."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from PIL import Image

from rayctsl.commands.experiments import main
from rayctsl.data.importing import import_dataset
from rayctsl.experiments.image import compute as image_compute
from rayctsl.experiments.image.cells import choose, train_cells, tune_cells
from rayctsl.experiments.image.suite import load_suite
from rayctsl.learning.engine import LocalEngine
from rayctsl.learning.problem import Problem
from rayctsl.learning.run import Run
from rayctsl.storage import Storage

SUITE = Path(__file__).parents[1] / "tiny.yaml"
TINY = yaml.safe_load(SUITE.read_text())
SOURCES, TARGETS = TINY["base"]["data"]["tasks"], TINY["targets"]


def run(suite: str, out: Path, root: Path, *flags: str, command: str = "image", address: str = "none") -> int:
    words = [command, "--suite", suite, "--out", str(out), "--data-root", str(root), "--address", address]
    return main([*words, *flags])


def cell(out: Path, name: str) -> dict[str, Any]:
    return json.loads((out / "cells" / f"{name}.json").read_text())


def stamps(out: Path) -> dict[str, int]:
    return {path.stem: path.stat().st_mtime_ns for path in (out / "cells").iterdir()}


@pytest.fixture(scope="module")
def finished(packs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a whole experiment, run by the command. Tests that change it copy it first."""
    out = tmp_path_factory.mktemp("image")
    assert run(str(SUITE), out, packs) == 0
    return out


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "out", copy_function=shutil.copy2))


def test_every_stage_leaves_its_cells(finished):
    names = set(stamps(finished))
    methods = [method for method in TINY["methods"] if method != "scratch"]
    count = {stage: sum(name.startswith(f"{stage}-") for name in names) for stage in ("tune", "train", "test")}
    assert count["tune"] == 2 * len(methods)
    assert count["train"] == 2 * len(TINY["methods"]) + 2
    # every training's final phi, and two checkpoints of the first seed of every method that trains
    assert count["test"] == (count["train"] + 2 * len(methods)) * len(TARGETS)


def test_figures_tables_and_report(finished):
    for name in ("losses", "accuracy", "methods", "lengths"):
        picture = Image.open(io.BytesIO((finished / f"image_{name}.png").read_bytes()))
        assert min(picture.size) > 300
        assert len(picture.convert("RGB").getcolors(1 << 24)) > 20
    report = (finished / "report.md").read_text()
    for text in ("| shifting |", "± ", "beta 1e+30: diverged", "48 inner steps for every method", "image_lengths.png"):
        assert text in report
    summary = json.loads((finished / "image_summary.json").read_text())
    assert summary["chosen"]["shifting"] == {"beta": 0.1}
    assert set(summary["accuracy"]) == set(TINY["methods"])
    assert set(summary["accuracy_by_length"]["shifting"]) == {"4", "8"}


def test_results_hold_every_fine_tuning_with_its_cost(finished):
    rows = pq.read_table(finished / "results.parquet").to_pylist()
    assert len(rows) == sum(name.startswith("test-") for name in stamps(finished))
    spent = {(row["method"], row["spent"]) for row in rows if row["final"] and row["method"] != "scratch"}
    assert {steps for _, steps in spent} == {4 * 4 * len(SOURCES)}
    assert {row["spent"] for row in rows if row["method"] == "scratch"} == {0}
    on_the_way = {row["spent"] for row in rows if not row["final"]}
    assert on_the_way == {4 * 3, 8 * 3}
    assert all(0 <= row["accuracy"] <= 100 for row in rows)
    final = [row["accuracy"] for row in rows if row["method"] == "mtl" and row["final"]]
    shown = json.loads((finished / "image_summary.json").read_text())["accuracy"]["mtl"]["mean"][0]
    assert shown == pytest.approx(np.mean(final))


def test_trainings_took_equal_inner_steps_and_extras_are_counted(finished):
    for path in (finished / "cells").glob("train-*"):
        record = json.loads(path.read_text())
        spent, method = record["result"]["points"][-1]["spent"], record["arguments"]["config"]["method"]["name"]
        assert spent["inner"] == (0 if method == "scratch" else 48), path.stem
        assert spent["held_out"] == (4 * 3 if method == "fomaml" else 0)


def test_all_methods_start_from_one_phi_and_scratch_is_it(finished):
    from rayctsl.registry import open_initialization

    first = open_initialization(finished / "runs" / "scratch-k4-seed0").phi()
    other = open_initialization(finished / "runs" / "scratch-k4-seed1").phi()
    assert any(not np.array_equal(first[name], other[name]) for name in first)
    engine = LocalEngine(Problem.of(_config(finished, "train-shifting-k4-seed0")))
    for name, value in engine.name_phi(engine.meta.phi).items():
        np.testing.assert_array_equal(first[name], value)


def _config(out: Path, name: str) -> Any:
    from rayctsl.config import build_config

    return build_config(cell(out, name)["arguments"]["config"])


def test_a_second_run_computes_nothing(copied, packs, tiny, capsys):
    before = stamps(copied)
    assert run(tiny(), copied, packs) == 0
    assert stamps(copied) == before
    assert "| shifting |" in capsys.readouterr().out


def test_lost_cells_are_computed_again_to_the_same_result(copied, packs, tiny):
    lost = ("tune-mtl-alpha0.05-beta0.05", "train-reptile-k4-seed1", "test-single-k4-seed0-at48-rings-0")
    kept = {name: cell(copied, name)["result"] for name in lost}
    for name in lost:
        (copied / "cells" / f"{name}.json").unlink()
    (copied / "cells" / "test-mtl-k4-seed0-at16-rings-0.json").write_text("{cut off")
    before = stamps(copied)
    assert run(tiny(), copied, packs, "--stage", "test") == 0
    assert {name: cell(copied, name)["result"] for name in lost} == kept
    changed = {name for name, stamp in stamps(copied).items() if before.get(name) != stamp}
    assert changed == {*lost, "test-mtl-k4-seed0-at16-rings-0"}


def test_a_killed_training_goes_on_from_its_snapshot_to_the_same_phi(finished, packs, tiny, tmp_path, monkeypatch):
    suite = load_suite(tiny())
    chosen = choose(
        suite, {path.stem: json.loads(path.read_text())["result"] for path in finished.glob("cells/tune-*")}
    )
    arguments = next(c for c in train_cells(suite, chosen, str(packs)) if c.name == "train-shifting-k4-seed0").arguments
    config = _config(finished, "train-shifting-k4-seed0")
    folder = image_compute._open_run(Storage(tmp_path).inside(arguments["run"]), config)
    problem = Problem.of(config)
    half = Run(LocalEngine(problem), problem, folder)
    half.begin()
    while half.step < 8:
        half.advance()
    half.close()
    steps: list[int] = []
    advance = Run.advance
    monkeypatch.setattr(Run, "advance", lambda run: (steps.append(run.step), advance(run)))
    result = image_compute.train(arguments, str(tmp_path))
    assert min(steps) == 8, "it began anew"
    wanted = cell(finished, "train-shifting-k4-seed0")["result"]
    assert result["points"][-1] == wanted["points"][-1]
    assert not (tmp_path / arguments["run"] / "checkpoints").exists()


def test_changed_arguments_compute_what_depends_on_them(copied, packs, tiny):
    before = stamps(copied)
    methods = {**TINY["methods"], "mtl": {"alpha, beta": [0.02, 0.03]}}
    assert run(tiny(methods=methods), copied, packs, "--stage", "test") == 0
    after = stamps(copied)
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {name for name in before if "-mtl-" in name and not name.startswith("tune-")}
    assert {name for name in after if name not in before} == {
        "tune-mtl-alpha0.02-beta0.02",
        "tune-mtl-alpha0.03-beta0.03",
    }


def test_a_changed_target_leaves_the_trainings_alone(copied, packs, tiny):
    before = stamps(copied)
    assert run(tiny(targets=["rings"], checkpoint_seeds=2), copied, packs, "--stage", "test") == 0
    after = stamps(copied)
    assert all(before[name] == after[name] for name in before)
    assert len(after) > len(before)


def test_targets_are_never_read_before_the_test_stage(packs, tiny, tmp_path, capsys):
    root = tmp_path / "sources"
    for name in SOURCES:
        shutil.copytree(packs / name, root / name)
    methods = {name: TINY["methods"][name] for name in ("shifting", "scratch")}
    suite = tiny(methods=methods, lengths={})
    assert run(suite, tmp_path / "out", root, "--stage", "train", "--seeds", "1") == 0
    assert not list((tmp_path / "out" / "cells").glob("test-*"))
    capsys.readouterr()
    assert run(suite, tmp_path / "out", root, "--seeds", "1") == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    command = f"python -m rayctsl.data import rings --from ../packs/rings.npz --data-root {root}"
    assert error == f"rayctsl.experiments: the suite needs dataset 'rings', which {root} lacks; run: {command}"


def test_the_search_does_not_see_the_sources_test_images(packs, tiny, tmp_path, make_pack):
    suite = load_suite(tiny())
    wanted = next(c for c in tune_cells(suite, str(packs)) if c.name == "tune-reptile-beta1").arguments
    for name in SOURCES:
        pack = dict(np.load(make_pack(tmp_path, name)))
        pack["x_test"] = 255 - pack["x_test"]
        np.savez(tmp_path / f"{name}.npz", **pack)
        import_dataset(name, tmp_path / f"{name}.npz", str(tmp_path / "other"), workers=1, published=True)
    other = next(c for c in tune_cells(suite, str(tmp_path / "other")) if c.name == "tune-reptile-beta1").arguments
    assert image_compute.tune(other) == image_compute.tune(wanted)


def test_a_candidate_is_trained_without_the_images_that_score_it(packs, tiny, monkeypatch):
    trained: list[int] = []

    class Watched(LocalEngine):
        def run(self, start: int, stop: int, then: int | None = None) -> Any:
            trained.extend(len(learner.task.dataset.train) for learner in self.group.learners.values())
            return super().run(start, stop)

    monkeypatch.setattr(image_compute, "LocalEngine", Watched)
    arguments = next(c for c in tune_cells(load_suite(tiny()), str(packs)) if c.name == "tune-reptile-beta1").arguments
    image_compute.tune({**arguments, "validation": {"steps": 1, "held_out": 0.2}})
    assert set(trained) == {24}  # of 30


def test_a_candidate_that_diverges_is_not_chosen(finished, tiny):
    assert cell(finished, "tune-shifting-beta1e+30")["result"]["accuracy"] is None
    suite = load_suite(tiny(methods={"shifting": {"beta": [1, 2]}}, lengths={}))
    with pytest.raises(ValueError, match="every candidate of shifting diverged"):
        choose(suite, {f"tune-shifting-beta{beta}": {"accuracy": None} for beta in (1, 2)})
    tuned = {"tune-shifting-beta1": {"accuracy": 0.0}, "tune-shifting-beta2": {"accuracy": None}}
    assert choose(suite, tuned) == {"shifting": {"beta": 1}}


def test_a_training_that_diverges_is_left_out_and_named(packs, tiny, tmp_path):
    methods = {"shifting": {"beta": 1e30}, "reptile": {"beta": 1}, "scratch": {}}
    suite = tiny(methods=methods, lengths={}, checkpoints=[1])
    assert run(suite, tmp_path / "out", packs) == 0
    report = (tmp_path / "out" / "report.md").read_text()
    assert "Diverged, and left out: train-shifting-k4-seed0, train-shifting-k4-seed1." in report
    assert "| shifting |" not in report


def test_one_cell_alone(copied, packs, tiny, capsys):
    before = stamps(copied)
    name = "train-mtl-k4-seed1"
    assert run(tiny(), copied, packs, "--cell", name) == 0
    assert capsys.readouterr().out.strip() == f"{name}: {copied}/cells/{name}.json"
    assert {n for n, stamp in stamps(copied).items() if before[n] != stamp} == {name}
    command = cell(copied, name)["command"]
    assert command.startswith("python -m rayctsl.experiments image --suite ")
    assert command.endswith(f"--cell {name}")


def test_one_cell_from_nothing_computes_what_it_needs(packs, tiny, tmp_path, finished):
    name = "test-reptile-k4-seed0-at16-waves-0"
    assert run(tiny(), tmp_path / "out", packs, "--cell", name) == 0
    assert cell(tmp_path / "out", name)["result"] == cell(finished, name)["result"]
    assert {n.split("-")[1] for n in stamps(tmp_path / "out")} == {"reptile"}


@pytest.mark.parametrize("name", ["train-shifting-k4-seed7", "train-leap-k4-seed0", "nonsense", "report-shifting-x"])
def test_unknown_cells(name, copied, packs, tiny, capsys):
    assert run(tiny(), copied, packs, "--cell", name) == 2
    assert f"there is no cell '{name}'" in capsys.readouterr().err


def test_ablation_takes_over_the_cells_of_image(copied, packs, tiny, capsys):
    before = stamps(copied)
    assert run(tiny(), copied, packs, command="ablation") == 0
    assert stamps(copied) == before
    table = capsys.readouterr().out
    assert {line.split("|")[1].strip() for line in table.splitlines()[2:] if line.startswith("|")} == {
        "shifting",
        "no_shifting",
        "random_shifting",
        "reptile",
        "scratch",
    }
    assert (copied / "ablation_accuracy.png").exists()
    assert not (copied / "ablation_lengths.png").exists()


def test_ablation_needs_its_methods(packs, tiny, tmp_path, capsys):
    suite = tiny(methods={"shifting": {"beta": [1, 2]}, "reptile": {"beta": [1, 2]}})
    assert run(suite, tmp_path, packs, command="ablation") == 2
    assert "has no 'no_shifting'" in capsys.readouterr().err


@pytest.mark.ray
def test_cells_in_parallel_on_ray_give_the_same(packs, tiny, tmp_path, two_cpus):
    methods = {name: TINY["methods"][name] for name in ("shifting", "reptile", "scratch")}
    suite = tiny(methods=methods, lengths={}, seeds=1, checkpoints=[])
    there, here = tmp_path / "there", tmp_path / "here"
    for out, address in ((there, two_cpus), (here, "none")):
        assert run(suite, out, packs, "--stage", "test", address=address) == 0
    assert stamps(there).keys() == stamps(here).keys()
    assert {name.split("-")[0] for name in stamps(here)} == {"tune", "train", "test"}
    for name in stamps(here):
        assert cell(there, name)["result"] == cell(here, name)["result"], name
