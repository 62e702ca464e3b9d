"""Classify an image, or many, with a fine-tuned model."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException

from rayctsl.contract import JsonObject
from serve.problems import HttpProblem, documented
from serve.routes.finetune import find_model, model_place
from serve.routes.lookup import Here, JobName
from serve.schemas import ClassProbability, NamedPrediction, PredictionDocument, PredictionList

router = APIRouter(tags=["finetune"])
_BINARY = {"schema": {"type": "string", "format": "binary"}}
BODY: JsonObject = {
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
MOST_IMAGES = 100
MANY: JsonObject = {
    "required": True,
    "description": "A form with the field `image` once for every image",
    "content": {
        "multipart/form-data": {
            "schema": {
                "type": "object",
                "properties": {
                    "image": {
                        "type": "array",
                        "items": {"type": "string", "format": "binary"},
                        "minItems": 1,
                        "maxItems": MOST_IMAGES,
                    }
                },
                "required": ["image"],
                "additionalProperties": False,
            }
        }
    },
}


@router.post(
    "/finetune/{id}/predict",
    operation_id="predict",
    responses=documented(404, 409, 410, 413, 415, 422, 503),
    openapi_extra={"requestBody": BODY},
)
async def predict(service: Here, id: JobName, request: Request) -> PredictionDocument:
    """Probabilities of the classes, likeliest first, for a PNG, JPEG, WebP, GIF or BMP image."""
    with service.predictor.place():
        job, result = await asyncio.to_thread(find_model, service, request, id)
        content = await _image_of(request)
        root, name = await asyncio.to_thread(model_place, service, job)
        classes = await service.predictor.classify(root, name, result.weights.sha256, content)
    return PredictionDocument(job=job.id, classes=_shown(classes))


@router.post(
    "/finetune/{id}/predictions",
    operation_id="predict_many",
    responses=documented(404, 409, 410, 413, 415, 422, 503),
    openapi_extra={"requestBody": MANY},
)
async def predict_many(service: Here, id: JobName, request: Request) -> PredictionList:
    """The same for up to 100 images of a form, each with its file's name; one that cannot be read says so."""
    with service.predictor.place():
        job, result = await asyncio.to_thread(find_model, service, request, id)
        images = await _images_of(request)
        root, name = await asyncio.to_thread(model_place, service, job)
        rows = []
        for file, content in images:
            try:
                classes = await service.predictor.classify(root, name, result.weights.sha256, content)
                rows.append(NamedPrediction(name=file, classes=_shown(classes)))
            except HttpProblem as problem:
                if problem.status not in (413, 422):  # of this image alone
                    raise
                rows.append(NamedPrediction(name=file, error=problem.detail))
    return PredictionList(job=job.id, data=rows)


async def _images_of(request: Request) -> list[tuple[str, bytes]]:
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise HttpProblem(415, "Send the images as a form with a field 'image' for each.")
    try:
        async with request.form(max_files=MOST_IMAGES, max_fields=MOST_IMAGES) as form:
            files = [each for each in form.getlist("image") if isinstance(each, UploadFile)]
            found = [((each.filename or "")[:300], await each.read()) for each in files]
    except (MultiPartException, HTTPException):
        detail = f"The form cannot be read: send up to {MOST_IMAGES} files in the field 'image'."
        raise HttpProblem(422, detail) from None
    if not found:
        raise HttpProblem(422, "There is no image in the request.")
    return found


def _shown(classes: list[tuple[str, float]]) -> list[ClassProbability]:
    return [ClassProbability(name=name, probability=value) for name, value in classes]


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
