"""The process that classifies images, `python -m rayctsl.jobs.predictor`: torch lives here, not in the service.

Whoever starts it writes requests to its input and reads answers from its output, one after the other: a request is a
`PredictRequest` and an image, an answer a `PredictAnswer`, each preceded by its length. It ends with its input.
"""

from __future__ import annotations

import hashlib
import io
import os
import struct
import sys
import warnings
from collections import OrderedDict
from typing import TYPE_CHECKING, BinaryIO, Literal

from rayctsl.contract import Contract, read_contract
from rayctsl.storage import open_regular

if TYPE_CHECKING:
    import numpy as np

    from rayctsl.jobs.model import Finetuned

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
MAX_SIDE, MAX_PIXELS = 12_000, 25_000_000
KEPT_MODELS = 4
LENGTHS = struct.Struct(">II")  # of the document and of the image
LENGTH = struct.Struct(">I")


class PredictRequest(Contract):
    """Which model is to classify the image that follows: a file below a folder, and its checksum."""

    root: str
    name: str
    sha256: str


class PredictAnswer(Contract):
    """Class names with probabilities, likeliest first; or what is wrong with the image or the model."""

    classes: tuple[tuple[str, float], ...] = ()
    problem: Literal["too_large", "unreadable", "missing", "damaged"] | None = None


class ImageTooLargeError(ValueError):
    """The image's header promises more pixels than may be decoded."""


class Models:
    """The models used last, by checksum."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Finetuned] = OrderedDict()

    def get(self, request: PredictRequest) -> Finetuned:
        from rayctsl.jobs.model import Finetuned

        if request.sha256 not in self._kept:
            with open(open_regular(request.root, request.name), "rb") as file:
                data = file.read()
            if hashlib.sha256(data).hexdigest() != request.sha256:
                raise ValueError("the model's checksum differs")
            self._kept[request.sha256] = Finetuned.load(data)
        self._kept.move_to_end(request.sha256)
        while len(self._kept) > KEPT_MODELS:
            self._kept.popitem(last=False)
        return self._kept[request.sha256]


def read_image(content: bytes, size: tuple[int, int], channels: int) -> np.ndarray:
    """The image as a model wants it; its header is checked before any pixel is decoded."""
    from PIL import Image

    from rayctsl.data.images import UNREADABLE, decode

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # odd metadata; the size is checked right here
            with Image.open(io.BytesIO(content), formats=FORMATS) as image:
                # Long thin images cost far more than their pixels: resizing keeps tables for every row.
                if max(image.size) > MAX_SIDE or image.width * image.height > MAX_PIXELS:
                    raise ImageTooLargeError
                image.verify()
            return decode(content, size, channels)
    except (ImageTooLargeError, Image.DecompressionBombError):
        raise ImageTooLargeError from None
    except UNREADABLE:
        raise ValueError("this is not a readable image") from None


def answer(request: PredictRequest, image: bytes, models: Models) -> PredictAnswer:
    """Classify one image."""
    try:
        model = models.get(request)
    except FileNotFoundError:
        return PredictAnswer(problem="missing")
    except (ValueError, OSError) as error:
        print(f"{request.name}: {error}", file=sys.stderr, flush=True)
        return PredictAnswer(problem="damaged")
    height, width, channels = model.facts.shape
    try:
        pixels = read_image(image, (height, width), channels)
    except ImageTooLargeError:
        return PredictAnswer(problem="too_large")
    except ValueError:
        return PredictAnswer(problem="unreadable")
    return PredictAnswer(classes=tuple(model.predict(pixels)))


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    """Answer requests until the input ends."""
    models = Models()
    while head := source.read(LENGTHS.size):
        document_size, image_size = LENGTHS.unpack(head)
        request = read_contract(PredictRequest, source.read(document_size), "the request")
        data = answer(request, source.read(image_size), models).to_bytes()
        sink.write(LENGTH.pack(len(data)) + data)
        sink.flush()


def main() -> int:
    import torch

    import rayctsl.jobs.model  # noqa: F401

    torch.set_num_threads(1)
    # What libraries print must not get between the answers.
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    sink.write(LENGTH.pack(0))  # ready
    sink.flush()
    serve(sys.stdin.buffer, sink)
    return 0


if __name__ == "__main__":
    sys.exit(main())
