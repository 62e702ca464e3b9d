"""Fine-tuning: it learns, its schedule and statistics are right, and it continues bit for bit."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch

from rayctsl.commands.finetune import main
from rayctsl.config import FinetuneConfig, ModelConfig
from rayctsl.data.library import Dataset
from rayctsl.data.store import SplitInfo, open_split, write_split
from rayctsl.jobs.training import finetune_seeds
from rayctsl.learning.finetune import CurvePoint, Diverged, Finetuner, check_point, subsample
from rayctsl.learning.start import Start
from rayctsl.statistics import mean_and_interval

RANDOM = Start("none", ModelConfig(name="resnet8", width=4))
CONFIG = FinetuneConfig(steps=30, batch_size=32, alpha=0.05, crop_padding=1, flip=False, seeds=2, evaluate_every=10)
SHORT = CONFIG.model_copy(update={"steps": 12, "batch_size": 16, "evaluate_every": 4, "train_size": 40})


@pytest.fixture(scope="module")
def stripes(tmp_path_factory):
    """Four kinds of noisy stripes: easy for a convolution."""
    root = tmp_path_factory.mktemp("stripes")
    random = np.random.default_rng(0)
    for split, count in (("train", 160), ("test", 80)):
        labels = np.arange(count) % 4
        y, x = np.mgrid[:12, :12]
        kinds = np.stack([y % 4 < 2, x % 4 < 2, (x + y) % 4 < 2, (x - y) % 4 < 2]) * 120 + 60
        images = np.clip(kinds[labels] + random.normal(0, 25, (count, 12, 12)), 0, 255).astype(np.uint8)[..., None]
        info = SplitInfo("stripes", split, (12, 12, 1), ("rows", "columns", "falling", "rising"))
        write_split(root / "stripes" / f"{split}.arrow", images, labels, info)
    folder = root / "stripes"
    return Dataset("stripes", open_split(folder / "train.arrow"), open_split(folder / "test.arrow"))


def module(num_classes: int = 4, seed: int = 0) -> torch.nn.Module:
    return RANDOM.build(num_classes, seed)


def test_learns_and_reports(stripes):
    seen = []
    result = finetune_seeds(RANDOM, stripes, CONFIG, on_point=lambda seed, point: seen.append((seed, point.step)))
    assert result.mean > 60
    assert seen == [(0, 10), (0, 20), (0, 30), (1, 10), (1, 20), (1, 30)]
    assert result.accuracies == [100 * run.accuracy for run in result.runs]
    assert (result.train_size, result.steps) == (160, 30)
    assert json.loads(json.dumps(result.to_json()))["runs"][0]["curve"][0]["step"] == 10


def test_evaluation_by_hand_and_it_leaves_the_model_alone(shifted):
    """Training statistics for test images, running statistics in batch norm, and no trace in the model."""
    tuner = Finetuner(module(), shifted, SHORT, seed=0)
    tuner.run(8)
    before = {name: value.clone() for name, value in tuner.flat.buffers().items()}
    accuracy = tuner.evaluate()
    assert all(torch.equal(value, before[name]) for name, value in tuner.flat.buffers().items())
    mean, std = np.array(shifted.train.info.mean), np.array(shifted.train.info.std)
    pixels = ((shifted.test.images(np.arange(48)) - mean) / std).transpose(0, 3, 1, 2)
    with torch.no_grad():
        logits = tuner.module.eval()(torch.tensor(pixels, dtype=torch.float32))
    assert accuracy == (logits.argmax(1).numpy() == shifted.test.labels).mean()
    assert torch.equal(tuner.normalize.offset, tuner.batches.normalize.offset)


def test_every_seed_is_that_seeds_own_run(shifted):
    result = finetune_seeds(RANDOM, shifted, SHORT)
    for seed in range(2):
        alone = Finetuner(module(4, seed), shifted, SHORT, seed=seed)
        alone.run()
        assert result.runs[seed].curve == alone.curve


def test_images_are_mirrored_where_that_keeps_their_class(shifted, letters):
    recipe = SHORT.model_copy(update={"flip": True})
    drawn = [Finetuner(module(), dataset, recipe, seed=0).batches.draw(0) for dataset in (shifted, letters)]
    assert [draw.mirrored.any() for draw in drawn] == [True, False]


def test_batches_are_made_as_the_recipe_says(shifted):
    """Without crops and mirror images a batch is the images themselves."""
    tuner = Finetuner(module(), shifted, SHORT.model_copy(update={"batch_size": 5, "crop_padding": 0}), seed=0)
    images, labels = tuner.batches(0)
    chosen = tuner.batches.choose(0)
    assert torch.equal(images, tuner.normalize(shifted.train.images(chosen)))
    assert labels.tolist() == shifted.train.labels[chosen].tolist()
    assert len(labels) == 5


def test_how_often_is_measured_follows_from_the_images_that_are_measured_on(shifted, monkeypatch):
    """A fifth of the training, which 16 images a step make 10 images a step."""
    recipe = SHORT.model_copy(update={"evaluate_every": None})
    monkeypatch.setattr(Finetuner, "_train_step", lambda tuner: torch.zeros(()))
    all_of_them = Finetuner(module(), shifted, recipe, seed=0)
    few = Finetuner(module(), shifted, recipe, seed=0, test_indices=np.arange(19))
    for tuner in (all_of_them, few):
        tuner.run()
    assert [point.step for point in all_of_them.curve] == [5, 10, 12]  # 48 images
    assert [point.step for point in few.curve] == [2, 4, 6, 8, 10, 12]


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_no_number_ends_the_training_with_what_to_do(loss):
    check_point(3, CurvePoint(10, 2.5, 0.5))
    with pytest.raises(Diverged, match=r"seed 3 diverged before step 20: .* choose a smaller alpha"):
        check_point(3, CurvePoint(20, loss, 0.5))


def test_a_points_loss_is_the_mean_since_the_last_point(shifted, monkeypatch):
    tuner = Finetuner(module(), shifted, SHORT, seed=0)
    monkeypatch.setattr(tuner, "_train_step", lambda: torch.tensor(float(tuner.step)))
    tuner.run()
    assert [point.loss for point in tuner.curve] == [1.5, 5.5, 9.5]


def test_stopped_and_continued_is_the_same_to_the_bit(stripes):
    whole = Finetuner(module(), stripes, CONFIG, seed=0)
    whole.run()
    first = Finetuner(module(), stripes, CONFIG, seed=0)
    first.run(13)
    second = Finetuner(module(seed=5), stripes, CONFIG, seed=0)
    second.load_state(first.state())
    second.run()
    assert torch.equal(second.flat.vector, whole.flat.vector)
    assert second.curve == whole.curve


def test_learning_rate_schedule(stripes):
    tuner = Finetuner(module(), stripes, CONFIG.model_copy(update={"steps": 1000, "alpha": 0.1}), seed=0)
    rates = {}
    for step in (0, 399, 400, 699, 700, 899, 900, 999):
        tuner.step = step
        rates[step] = round(tuner.learning_rate(), 10)
    assert rates == {0: 0.1, 399: 0.1, 400: 0.02, 699: 0.02, 700: 0.004, 899: 0.004, 900: 0.0008, 999: 0.0008}


def test_phi_is_loaded_and_the_head_is_fresh(stripes):
    donor = module(seed=9)
    phi = {name: value.detach() for name, value in donor.named_parameters() if not name.startswith("head.")}
    tuner = Finetuner(module(seed=1), stripes, CONFIG, seed=0, phi=phi)
    parameters = dict(tuner.module.named_parameters())
    assert all(torch.equal(parameters[name], value) for name, value in phi.items())
    assert torch.equal(parameters["head.weight"], dict(module(seed=1).named_parameters())["head.weight"])


def test_subsamples_are_balanced_seeded_and_nested_in_the_indices(stripes):
    chosen = subsample(stripes, np.arange(100), 22, seed=0)
    assert len(chosen) == len(set(chosen)) == 22
    assert max(chosen) < 100
    counts = np.bincount(stripes.train.labels[chosen])
    assert counts.max() - counts.min() <= 1
    assert not np.array_equal(chosen, subsample(stripes, np.arange(100), 22, seed=1))
    assert len(subsample(stripes, np.arange(100), 1000, seed=0)) == 100


def test_validation_on_held_out_training_images(stripes):
    held_out = np.arange(120, 160)
    tuner = Finetuner(module(), stripes, CONFIG, seed=0, train_indices=np.arange(120), test_indices=held_out)
    assert tuner.batches.choose(0).max() < 120
    tuner.run()
    with torch.no_grad():
        images = tuner.normalize(stripes.train.images(held_out))
        right = tuner.module.eval()(images).argmax(1).numpy() == stripes.train.labels[held_out]
    assert tuner.curve[-1].accuracy == right.mean()


def test_interval_against_a_hand_computed_one():
    mean, half = mean_and_interval([1.0, 2.0, 3.0])
    assert mean == 2.0
    assert half == pytest.approx(4.302653 * 1.0 / math.sqrt(3), rel=1e-6)
    assert math.isnan(mean_and_interval([1.0])[1])


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (["--init", "none", "--dataset", "stripe"], "did you mean 'stripes'?"),
        (["--init", "nothing-here", "--dataset", "stripes"], "there is no initialization"),
        (["--init", "none", "--dataset", "stripes", "--steps", "0"], "finetune.steps"),
        (["--init", "none", "--dataset", "stripes", "--out", "no/such/folder/x.json"], "does not exist"),
    ],
)
def test_command_refuses_bad_input(stripes, tmp_path, capsys, wrong, sentence):
    root = str(stripes.train.path.parent.parent)
    assert main([*wrong, "--data-root", root, "--storage", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1


def test_command(stripes, tmp_path, capsys):
    root, out, plot = str(stripes.train.path.parent.parent), tmp_path / "r.json", tmp_path / "p.png"
    config = tmp_path / "c.yaml"
    config.write_text("model: {name: resnet8, width: 4}")
    arguments = [
        "--init",
        "none",
        "--dataset",
        "stripes",
        "--config",
        str(config),
        "--data-root",
        root,
        "--steps",
        "12",
    ]
    arguments += ["--seeds", "2", "--jobs", "1", "--batch-size", "32"]  # side by side: tests/jobs/test_jobs_training.py
    assert main([*arguments, "--out", str(out), "--plot", str(plot)]) == 0
    printed = capsys.readouterr().out
    result = json.loads(out.read_text())
    assert f"{result['mean']:.2f} ± {result['interval']:.2f} %" in printed
    assert printed.startswith("seed 0: ")
    assert plot.read_bytes().startswith(b"\x89PNG")
