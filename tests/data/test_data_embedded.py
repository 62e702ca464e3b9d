"""The embedded suite: what it promises of every dataset, checked in full on the two that are quickest to make."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rayctsl.data.embedded import EMBEDDED, EMBEDDED_VERSION, SOURCES, TARGETS, make_dataset
from rayctsl.data.embedded.drawings import grow
from rayctsl.data.embedded.glyphs import ALPHABETS, Alphabet, render_masters
from rayctsl.data.embedded.suite import draw_split
from rayctsl.data.embedded.textures import QUILTS, make_quilts
from rayctsl.data.store import Split, open_split, verify_split

QUICK = ("georgian", "fractals")  # one of letters, one of drawings


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("embedded")
    for name in QUICK:
        make_dataset(name, root / name)
    return root


def opened(root: Path, name: str) -> tuple[Split, Split]:
    return open_split(root / name / "train.arrow"), open_split(root / name / "test.arrow")


def pixels(split: Split) -> np.ndarray:
    return split.images(np.arange(len(split)))


def file_digests(folder: Path) -> list[str]:
    return [hashlib.sha256((folder / f"{split}.arrow").read_bytes()).hexdigest() for split in ("train", "test")]


def test_the_suite_is_large_and_varied():
    assert len(SOURCES) >= 8
    assert len(TARGETS) >= 5
    assert not set(SOURCES) & set(TARGETS)
    assert set(SOURCES) | set(TARGETS) == set(EMBEDDED)
    shapes = {dataset.shape for dataset in EMBEDDED.values()}
    assert {channels for *_, channels in shapes} == {1, 3}
    assert min(height for height, *_ in shapes) == 28
    assert max(height for height, *_ in shapes) == 64
    for names in (SOURCES, TARGETS):
        assert {EMBEDDED[name].shape[2] for name in names} == {1, 3}


@pytest.mark.parametrize("name", EMBEDDED)
def test_every_entry_keeps_the_promised_bounds(name: str):
    dataset = EMBEDDED[name]
    assert dataset.name == name
    assert 10 <= dataset.num_classes <= 100
    assert len(set(dataset.class_names)) == dataset.num_classes
    assert 2000 <= dataset.num_train + dataset.num_test <= 10000
    assert min(dataset.num_train, dataset.num_test) >= 10 * dataset.num_classes
    assert dataset.description


@pytest.mark.parametrize("name", EMBEDDED)
def test_every_generator_draws_what_its_entry_says(name: str):
    dataset = EMBEDDED[name]
    labels = np.arange(2 * dataset.num_classes) % dataset.num_classes
    images = dataset.make(np.random.default_rng(5), labels)
    assert images.shape == (len(labels), *dataset.shape)
    assert images.dtype == np.uint8
    assert images.reshape(len(images), -1).std(1).min() > 4, "an image is blank"
    again = dataset.make(np.random.default_rng(5), labels)
    np.testing.assert_array_equal(images, again)


@pytest.mark.parametrize("name", QUICK)
def test_files_hold_all_classes_evenly(root: Path, name: str):
    dataset = EMBEDDED[name]
    for split, count in zip(opened(root, name), (dataset.num_train, dataset.num_test), strict=True):
        verify_split(split)
        assert len(split) == count
        assert split.info.shape == dataset.shape
        assert split.info.class_names == dataset.class_names
        assert split.info.source.startswith("made by rayctsl")
        assert f"version {EMBEDDED_VERSION}" in split.info.source
        assert "CC0" in split.info.licence
        per_class = np.bincount(split.labels, minlength=dataset.num_classes)
        assert per_class.max() - per_class.min() <= 1
        assert np.any(np.diff(split.labels) < 0), "labels are sorted"


@pytest.mark.parametrize("name", QUICK)
def test_no_image_is_blank_or_repeated(root: Path, name: str):
    train, test = (pixels(split) for split in opened(root, name))
    both = np.concatenate([train, test])
    assert both.reshape(len(both), -1).std(1).min() > 4
    assert len({image.tobytes() for image in both}) == len(both)


def test_another_process_writes_the_same_bytes(root: Path, tmp_path: Path):
    program = "import sys, pathlib, rayctsl.data.embedded as e\n"
    program += "for name in sys.argv[2:]: e.make_dataset(name, pathlib.Path(sys.argv[1]) / name)"
    for name in QUICK:
        (tmp_path / name).mkdir()
    subprocess.run([sys.executable, "-c", program, str(tmp_path), *QUICK], check=True, timeout=120)
    for name in QUICK:
        assert file_digests(tmp_path / name) == file_digests(root / name)
        assert sorted(path.name for path in (tmp_path / name).iterdir()) == ["test.arrow", "train.arrow"]


def test_a_class_can_be_told_from_others_by_its_mean_image(root: Path):
    """Labels belong to their images: centred letters have class means that beat chance on unseen images."""
    train, test = opened(root, "georgian")
    images, unseen = pixels(train).astype(np.float32), pixels(test).astype(np.float32)
    means = np.stack([images[train.labels == label].mean(0) for label in range(train.info.num_classes)])
    distance = ((unseen[:, None] - means[None]) ** 2).sum((2, 3, 4))
    accuracy = (distance.argmin(1) == test.labels).mean()
    assert accuracy > 3 / train.info.num_classes
    assert accuracy < 0.4, "pixels alone must not solve it"


def test_sources_and_targets_share_no_glyph():
    characters = {name: set(alphabet.characters) for name, alphabet in ALPHABETS.items()}
    sources = set().union(*(characters[name] for name in SOURCES if name in characters))
    targets = set().union(*(characters[name] for name in TARGETS if name in characters))
    assert sources
    assert targets
    assert not sources & targets
    for name, alphabet in ALPHABETS.items():
        assert len(characters[name]) == len(alphabet.characters), name


def test_drawn_classes_of_sources_and_targets_differ():
    drawn = [name for name in EMBEDDED if name not in ALPHABETS]
    sources = {label for name in SOURCES if name in drawn for label in EMBEDDED[name].class_names}
    targets = {label for name in TARGETS if name in drawn for label in EMBEDDED[name].class_names}
    assert not sources & targets


@pytest.mark.parametrize("name", ALPHABETS)
def test_every_font_has_every_character(name: str):
    """A missing character would be drawn as the font's box, the same for all of them."""
    alphabet = ALPHABETS[name]
    for face in alphabet.faces:
        masks = render_masters(alphabet.characters, (face,), alphabet.size)
        missing = render_masters("\uffff", (face,), alphabet.size)[0]
        assert masks.reshape(len(masks), -1).max(1).min() > 0.5, face
        for character, mask in zip(alphabet.characters, masks, strict=True):
            assert np.abs(mask - missing).max() > 0.1, f"{face} has no {character!r}"


@pytest.mark.parametrize("name", ALPHABETS)
def test_no_two_characters_are_alike_or_mirrored(name: str):
    """Training flips images, so the mirror image of a character must not be another one."""
    alphabet = ALPHABETS[name]
    masks = render_masters(alphabet.characters, alphabet.faces[:1], alphabet.size)
    flat = masks.reshape(len(masks), 1, -1)
    nearest = np.full((len(masks), len(masks)), np.inf)
    for shift in range(-2, 3):  # a glyph of even width is not centred on a pixel
        for other in (masks, masks[:, :, ::-1]):
            moved = np.roll(other, shift, 2).reshape(1, len(masks), -1)
            nearest = np.minimum(nearest, np.abs(flat - moved).sum(-1) / (flat + moved).sum(-1))
    np.fill_diagonal(nearest, 1)
    first, second = np.unravel_index(nearest.argmin(), nearest.shape)
    limit = 0.01 if name == "dominoes" else 0.06  # one pip of twelve is enough there
    assert nearest[first, second] > limit, (alphabet.characters[first], alphabet.characters[second])


def test_stray_pieces_are_of_every_glyph_of_the_alphabet():
    alphabet = Alphabet("|M", ("DejaVuSans", "DejaVuSans-Oblique"), 24, lambda rng, masks, clutter: clutter, stray=0)
    ink = alphabet.make(np.random.default_rng(0), np.zeros(32, int)).mean((1, 2))
    assert ink.min() < 0.1, "no thin bar lies beside another glyph"
    assert ink.max() > 0.2, "no broad letter does"


def test_plants_are_drawn_by_f_alone():
    plant = grow("X", {"X": "F[+X]F[-X]"}, 2, 25)  # F[+F[+X]F[-X]]F[-F[+X]F[-X]]
    assert plant.parent.tolist() == [-1, 0, 1, 0, 3, 4]
    assert plant.turns.tolist() == [0, 1, 1, 0, -1, -1]
    assert plant.depth.tolist() == [0, 1, 1, 0, 1, 1]
    assert np.flatnonzero(plant.tip).tolist() == [2, 5]


def test_both_hues_of_a_quilt_are_seen():
    red_and_green = np.arange(40) % 4
    assert all(QUILTS[label].startswith("red and green, ") for label in red_and_green)
    images = make_quilts(np.random.default_rng(0), red_and_green).astype(int)
    redder = images[..., 0] - images[..., 1]
    assert (redder > 12).mean((1, 2)).min() > 0.15
    assert (redder < -12).mean((1, 2)).min() > 0.15


def test_either_hue_of_a_quilt_may_be_its_motifs():
    log_cabins, petals = 2, 3  # motifs that cover more, and less, than half of a quilt
    for motif in (log_cabins, petals):
        images = make_quilts(np.random.default_rng(0), np.full(40, motif)).astype(int)
        redder = images[..., 0] - images[..., 1]
        mostly_red = (redder > 12).mean((1, 2)) > (redder < -12).mean((1, 2))
        assert 0.2 < mostly_red.mean() < 0.8, QUILTS[motif]


def test_splits_are_independent_draws():
    dataset = replace(EMBEDDED["quilts"], num_train=40, num_test=40)
    (train, train_labels), (test, test_labels) = draw_split(dataset, "train"), draw_split(dataset, "test")
    assert not np.array_equal(train_labels, test_labels)
    assert not np.array_equal(train, test)


def test_an_unknown_name_is_refused(tmp_path: Path):
    with pytest.raises(ValueError, match="'georgain' is unknown; did you mean 'georgian'"):
        make_dataset("georgain", tmp_path / "x")
    with pytest.raises(ValueError, match=r"known: .*latin"):
        make_dataset("qqqq", tmp_path / "x")
    assert not (tmp_path / "x").exists()
