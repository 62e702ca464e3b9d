"""The process that classifies: image bombs are refused by their header, answers fit their requests, it ends quietly."""

from __future__ import annotations

import asyncio
import io
import resource
from pathlib import Path

import pytest
from PIL import Image

from rayctsl.jobs.predictor import ImageTooLargeError, read_image
from serve.predictions import Predictor
from serve.problems import HttpProblem


def png(width: int, height: int) -> bytes:
    sink = io.BytesIO()
    Image.new("1", (width, height)).save(sink, "PNG")
    return sink.getvalue()


@pytest.mark.parametrize(("width", "height"), [(1, 24_999_999), (24_999_999, 1), (30_000, 30_000), (5001, 5000)])
def test_image_bombs_cost_nothing(width: int, height: int) -> None:
    content = png(width, height)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ImageTooLargeError):
        read_image(content, (28, 28), 1)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # kilobytes


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
