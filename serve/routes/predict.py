"""Classify an image with a fine-tuned model."""

from __future__ import annotations

import asyncio
import io
import warnings
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException

from rayctsl.data.images import decode
from serve.jobs.store import JobRow
from serve.problems import HttpProblem, documented
from serve.routes.finetune import JobId, model_file, require_job
from serve.schemas import ClassProbability, PredictionDocument
from serve.service import Service, service_of

router = APIRouter(tags=["finetune"])
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
MAX_PIXELS = 25_000_000
KEPT_MODELS = 4

_BINARY = {"schema": {"type": "string", "format": "binary"}}
BODY: dict[str, Any] = {
    "required": True,
    "description": "The image itself, or a form with it in the field `image`",
    "content": {
        "multipart/form-data": {
            "schema": {
                "type": "object",
                "properties": {"image": {"type": "string", "format": "binary"}},
                "required": ["image"],
                "additionalProperties": False,
            }
        },
        **{f"image/{kind}": _BINARY for kind in ("png", "jpeg", "webp", "gif", "bmp")},
    },
}


@router.post(
    "/finetune/{id}/predict",
    operation_id="predict",
    responses=documented(404, 409, 413, 415, 422, 503),
    openapi_extra={"requestBody": BODY},
)
async def predict(service: Annotated[Service, Depends(service_of)], id: JobId, request: Request) -> PredictionDocument:
    """Probabilities of the classes, likeliest first, for a PNG, JPEG, WebP, GIF or BMP image."""
    job = await asyncio.to_thread(require_job, service, id)
    if job.status != "succeeded" or job.result is None:
        raise HttpProblem(409, f"The job is {job.status}: it has no model.", "no-weights")
    content = await _image_of(request)
    classes = await asyncio.to_thread(_classify, service, job, content)
    shown = [ClassProbability(name=name, probability=value) for name, value in classes]
    return PredictionDocument(job=job.id, classes=shown)


async def _image_of(request: Request) -> bytes:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        try:
            async with request.form(max_files=1, max_fields=1) as form:
                image = form.get("image")
                content = await image.read() if isinstance(image, UploadFile) else b""
        except (MultiPartException, HTTPException):
            raise HttpProblem(422, "The form cannot be read: send one file in the field 'image'.") from None
    elif kind.startswith("image/") or kind == "application/octet-stream":
        content = await request.body()
    else:
        raise HttpProblem(415, "Send the image with its own Content-Type, or as a form with the field 'image'.")
    if not content:
        raise HttpProblem(422, "There is no image in the request.")
    return content


def _classify(service: Service, job: JobRow, content: bytes) -> list[tuple[str, float]]:
    model = _model(service, job)
    height, width, channels = model.facts.shape
    return model.predict(read_image(content, (height, width), channels))


def read_image(content: bytes, size: tuple[int, int], channels: int) -> Any:
    """The image as the model wants it; its header is checked before any pixel is decoded."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # odd metadata; the size is checked right here
            with Image.open(io.BytesIO(content), formats=FORMATS) as image:
                if image.width * image.height > MAX_PIXELS:
                    raise HttpProblem(413, f"The image may have {MAX_PIXELS:,} pixels.")
                image.verify()
            return decode(content, size, channels)
    except (OSError, ValueError, SyntaxError, EOFError, TypeError, IndexError, Image.DecompressionBombError):
        raise HttpProblem(422, "This is not a readable PNG, JPEG, WebP, GIF or BMP image.") from None


def _model(service: Service, job: JobRow) -> Any:
    """The job's model, from memory when it was used lately."""
    import hashlib

    from rayctsl.jobs.model import Finetuned

    assert job.result is not None
    checksum = job.result.weights.sha256
    if checksum in service.models:
        service.models.move_to_end(checksum)
        return service.models[checksum]
    data = model_file(service, job).read_bytes()
    if hashlib.sha256(data).hexdigest() != checksum:
        raise HttpProblem(503, f"The weights of job {job.id} are damaged in the storage.")
    model = service.models[checksum] = Finetuned.load(data)
    while len(service.models) > KEPT_MODELS:
        service.models.popitem(last=False)
    return model
