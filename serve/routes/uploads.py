"""Own datasets: send an archive of images, and delete what became of it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response

from serve.datasets import stored_name
from serve.inbox import Upload
from serve.keys import OPERATOR
from serve.problems import HttpProblem, documented
from serve.routes.datasets import Here, Name, UploadedDataset, find_stored, show
from serve.routes.finetune import prefix_of
from serve.service import Service, caller_of

router = APIRouter(tags=["datasets"])
OWN_NAME = r"^[a-z0-9](-?[a-z0-9_])*$"  # two dashes are the mark of a private one: no name has them, nor one at its end
RANGE = re.compile(r"bytes (\d{1,15})-(\d{1,15})/(\d{1,15})")
BODY = {
    "required": True,
    "description": "A zip or tar of class folders (<class>/… or train/<class>/… and test/<class>/…), or an npz",
    "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary", "minLength": 1}}},
}


@router.post(
    "/datasets",
    status_code=202,
    operation_id="create_dataset",
    response_model=UploadedDataset,
    responses=documented(408, 409, 413, 422),
    openapi_extra={"requestBody": BODY},
)
async def create_dataset(
    service: Here,
    request: Request,
    name: Annotated[str, Query(pattern=OWN_NAME, max_length=48, description="What to call it")],
    size: Annotated[int | None, Query(ge=8, le=512, description="Pixels a side; their own, at most 128")] = None,
    seed: Annotated[int, Query(ge=0, lt=2**31, description="Of the split, when the folder has none")] = 0,
) -> Response:
    """Send images. With `Content-Range: bytes A-B/TOTAL` in pieces, to go on after a cut connection."""
    start, total = _range_of(request)
    owner = caller_of(request).name
    bounded = owner != OPERATOR
    upload = Upload(name=name, stored=stored_name(name, owner), owner=owner, total=total)
    room = await asyncio.to_thread(_check, service, request, upload, bounded)
    upload = await service.uploads.receive(upload, _blocks(request), start, room)
    if upload.received == 0:
        await service.uploads.delete(upload)
        raise HttpProblem(422, "There is nothing in the request: send a zip, a tar or an npz.")
    if upload.sha256 is not None:
        upload = await service.uploads.start_import(upload, size, seed, bounded)
    shown = await asyncio.to_thread(show, service, name, upload)
    return JSONResponse(shown.model_dump(), 202, {"location": f"{prefix_of(request)}/datasets/{name}"})


def _check(service: Service, request: Request, upload: Upload, bounded: bool) -> int:
    """Whether the name is free and the announced size within bounds, before anything is read; how much may come."""
    name, earlier = upload.name, service.uploads.inbox.find(upload.stored)
    if (earlier is None or earlier.status == "ready") and service.datasets.is_taken(upload.stored):
        raise HttpProblem(409, f"There is a dataset '{name}' already: choose another name or delete it.", "name-taken")
    if earlier is not None and earlier.status == "importing":
        raise HttpProblem(409, f"Dataset '{name}' is being imported.", "upload-busy")
    length = request.headers.get("content-length", "")
    announced = max(upload.total or 0, int(length) if length.isdigit() else 0)
    return service.uploads.room_for(upload, announced, bounded)


async def _blocks(request: Request) -> AsyncIterator[bytes]:
    try:
        async for block in request.stream():
            yield block
    except ClientDisconnect:
        raise HttpProblem(400, "The connection was cut.") from None


def _range_of(request: Request) -> tuple[int, int | None]:
    text = request.headers.get("content-range")
    if text is None:
        return 0, None
    match = RANGE.fullmatch(text)
    if match is None or not int(match[1]) <= int(match[2]) < int(match[3]):
        raise HttpProblem(422, "Content-Range must be 'bytes FIRST-LAST/TOTAL'.")
    return int(match[1]), int(match[3])


@router.delete(
    "/datasets/{name}",
    status_code=204,
    operation_id="delete_dataset",
    response_class=Response,
    responses=documented(404, 409, 422),
)
async def delete_dataset(service: Here, request: Request, name: Name) -> Response:
    """Delete a dataset that was uploaded, once no job needs it."""
    await service.uploads.delete(await asyncio.to_thread(_deletable, service, request, name))
    await asyncio.to_thread(service.datasets.look_again)  # somebody may be looking just now
    return Response(status_code=204)


def _deletable(service: Service, request: Request, name: str) -> Upload:
    upload = service.uploads.inbox.find(find_stored(service, request, name))
    if upload is None or not caller_of(request).owns(upload.owner):
        raise HttpProblem(409, f"Dataset '{name}' is not yours: only its operator can delete it.", "not-own")
    if service.store.needs_dataset(upload.stored):
        raise HttpProblem(409, f"A job still needs dataset '{name}': cancel it first.", "dataset-in-use")
    return upload
