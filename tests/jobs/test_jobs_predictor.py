"""The process that classifies: image bombs are refused by their header, answers fit their requests, it ends quietly."""

from __future__ import annotations

import asyncio
import hashlib
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import ImageFile

from rayctsl.data.library import Dataset
from rayctsl.jobs import predictor
from rayctsl.jobs.model import save_finetuned
from rayctsl.jobs.predictor import ImageTooLargeError, Models, PredictRequest, read_image
from serve import predictions
from serve.predictions import Predictor
from serve.problems import HttpProblem
from tests.jobs.conftest import RANDOM


def png(width: int, height: int) -> bytes:
    """A black picture, made without the memory for its pixels."""
    left, packer, packed = height * (1 + (width + 7) // 8), zlib.compressobj(1), bytearray()
    while left:
        packed += packer.compress(bytes(min(left, 1 << 20)))
        left -= min(left, 1 << 20)
    head = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", bytes(packed + packer.flush())), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    )


@pytest.mark.parametrize(("width", "height"), [(1, 24_999_999), (24_999_999, 1), (30_000, 30_000), (5001, 5000)])
def test_image_bombs_cost_nothing(width: int, height: int, monkeypatch: pytest.MonkeyPatch) -> None:
    content = png(width, height)
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda image: pytest.fail("it was decoded"))
    with pytest.raises(ImageTooLargeError):
        read_image(content, (28, 28), 1)


def test_what_may_be_sent_is_read() -> None:
    assert read_image(png(12_000, 2000), (28, 28), 3).shape == (28, 28, 3)
    with pytest.raises(ValueError, match="readable"):
        read_image(b"no image", (28, 28), 1)


def test_only_so_many_wait(tmp_path: Path) -> None:
    async def run() -> None:
        predictor = Predictor(2)
        with predictor.place(), predictor.place():
            with pytest.raises(HttpProblem) as caught, predictor.place():
                pass
            assert (caught.value.status, "retry-after" in caught.value.headers) == (503, True)
        with predictor.place():
            pass

    asyncio.run(run())


def test_a_process_that_does_not_answer_in_time_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer would come to whoever asks next."""
    monkeypatch.setattr(predictions, "ANSWER_SECONDS", 0.01)

    async def run() -> None:
        predictor, pipe = Predictor(2), asyncio.subprocess.PIPE
        predictor._process = process = await asyncio.create_subprocess_exec("sleep", "600", stdin=pipe, stdout=pipe)
        with pytest.raises(HttpProblem, match="took too long"):
            await predictor.classify(tmp_path, "model", "0" * 64, b"")
        assert predictor._process is None
        assert process.returncode is not None

    asyncio.run(run())


def test_the_process_tells_what_is_wrong_and_goes_on(tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(b"no model")
    (tmp_path / "link").symlink_to(tmp_path / "model")

    async def run() -> list[str]:
        predictor, told = Predictor(2), []
        for name in ("nothing", "model", "link"):
            with pytest.raises(HttpProblem) as caught:
                await predictor.classify(tmp_path, name, "0" * 64, png(8, 8))
            told.append(caught.value.detail)
        process = predictor._process
        assert process is not None
        await predictor.close()
        assert process.returncode is not None
        return told

    missing, damaged, linked = asyncio.run(run())
    assert "missing" in missing
    assert "damaged" in damaged
    assert linked == missing, "a link is not a file of this storage"


@pytest.fixture(scope="module")
def files(stripes: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three models of one kind, by the seed of their weights."""
    folder = tmp_path_factory.mktemp("models")
    for seed in range(3):
        data = save_finetuned(RANDOM.build(4, seed), RANDOM.model, stripes.train.info)
        (folder / f"{seed}.safetensors").write_bytes(data)
    return folder


def asked_for(file: Path) -> PredictRequest:
    checksum = hashlib.sha256(file.read_bytes()).hexdigest()
    return PredictRequest(root=str(file.parent), name=file.name, sha256=checksum)


def test_the_models_used_last_are_kept(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predictor, "KEPT_MODELS", 2)
    requests = [asked_for(file) for file in sorted(files.iterdir())]
    models, loaded = Models(), {}
    for number in (0, 1, 0, 2):
        loaded[number] = models.get(requests[number])
    assert models.get(requests[0]) is loaded[0]
    assert models.get(requests[2]) is loaded[2]
    assert models.get(requests[1]) is not loaded[1]


def test_a_model_that_was_replaced_is_not_used(files: Path) -> None:
    request = asked_for(files / "0.safetensors")
    with pytest.raises(ValueError, match="checksum differs"):
        Models().get(request.changed(name="1.safetensors"))


def test_the_likeliest_class_comes_first_with_its_own_share(files: Path, stripes: Dataset) -> None:
    model = Models().get(asked_for(files / "0.safetensors"))
    image = stripes.test.images(np.arange(1))[0]
    answer = model.predict(image)
    shares = model.probabilities(image[None])[0].tolist()
    assert dict(answer) == dict(zip(stripes.train.info.class_names, shares, strict=True))
    assert [share for _, share in answer] == sorted(shares, reverse=True)


def test_an_answer_says_whether_the_image_or_the_model_is_at_fault(files: Path) -> None:
    request, models = asked_for(files / "0.safetensors"), Models()
    assert len(predictor.answer(request, png(8, 8), models).classes) == 4
    assert predictor.answer(request, png(5001, 5000), models).problem == "too_large"
    assert predictor.answer(request, b"no image", models).problem == "unreadable"
    assert predictor.answer(request.changed(name="none", sha256="0" * 64), png(8, 8), models).problem == "missing"
    assert predictor.answer(request.changed(sha256="0" * 64), png(8, 8), models).problem == "damaged"
