"""Own datasets: send an archive of images, look at what became of it, delete it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request
from pydantic import BaseModel, Field
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response

from rayctsl.data.embedded import EMBEDDED
from rayctsl.data.roots import open_root
from serve.problems import HttpProblem, documented
from serve.schemas import DatasetDocument
from serve.service import Service, service_of
from serve.uploads import SEPARATOR, Upload, UploadStatus, owner_of, stored_name

router = APIRouter(tags=["datasets"])
Here = Annotated[Service, Depends(service_of)]
OWN_NAME = r"^[a-z0-9][a-z0-9_-]{0,47}$"
Name = Annotated[str, Path(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$", description="A dataset's name")]
RANGE = re.compile(r"bytes (\d{1,15})-(\d{1,15})/(\d{1,15})")
BODY = {
    "required": True,
    "description": "A zip or tar of class folders (<class>/… or train/<class>/… and test/<class>/…), or an npz",
    "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
}


class UploadedDataset(BaseModel):
    """A dataset and where its upload stands; one that was there before has no upload."""

    name: str
    status: UploadStatus = Field(description="receiving, importing, ready or failed")
    received: int | None = Field(default=None, description="Bytes that have arrived; send on from there")
    total: int | None = None
    stage: str = Field(default="", description="What the import is at")
    error: str | None = Field(default=None, description="Why it failed, by the names of the files")
    sha256: str | None = Field(default=None, description="Of the archive")
    class_names: list[str] = []
    dataset: DatasetDocument | None = None


@router.post(
    "/datasets",
    status_code=202,
    operation_id="create_dataset",
    response_model=UploadedDataset,
    responses=documented(409, 413, 422),
    openapi_extra={"requestBody": BODY},
)
async def create_dataset(
    service: Here,
    request: Request,
    name: Annotated[str, Query(pattern=OWN_NAME, description="What to call it")],
    size: Annotated[int | None, Query(ge=8, le=512, description="Pixels a side; 64, or an npz's own")] = None,
    seed: Annotated[int, Query(ge=0, lt=2**31, description="Of the split, when the folder has none")] = 0,
) -> Response:
    """Send images. With `Content-Range: bytes A-B/TOTAL` in pieces, to go on after a cut connection."""
    if SEPARATOR in name:
        raise HttpProblem(422, f"name: '{SEPARATOR}' may not be in it")
    stored = stored_name(name, owner_of(request))
    known = await asyncio.to_thread(service.datasets.all)
    upload = service.uploads.find(stored)
    if stored in known and (upload is None or upload.status == "ready"):
        raise HttpProblem(409, f"There is a dataset '{name}' already: choose another name or delete it.", "name-taken")
    if upload is not None and upload.status == "importing":
        raise HttpProblem(409, f"Dataset '{name}' is being imported.", "upload-busy")
    start, total = _range_of(request)
    length = request.headers.get("content-length", "")
    if max(total or 0, int(length) if length.isdigit() else 0) > service.uploads.max_bytes:
        detail = f"An archive may have {service.uploads.max_bytes // 2**20} MiB."
        raise HttpProblem(413, detail, headers={"connection": "close"})
    upload = await service.uploads.receive(name, stored, _blocks(request), start, total)
    if upload.received == 0:
        service.uploads.forget(stored)
        raise HttpProblem(422, "There is nothing in the request: send a zip, a tar or an npz.")
    if upload.sha256 is not None:
        upload = service.uploads.start_import(upload, size, seed)
    return JSONResponse(_show(service, name, upload).model_dump(), 202, {"location": f"/datasets/{name}"})


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


@router.get("/datasets/{name}", operation_id="get_dataset", responses=documented(404, 422))
def get_dataset(service: Here, request: Request, name: Name) -> UploadedDataset:
    """Counts and classes, and how far its import is."""
    stored = _stored(service, request, name)
    return _show(service, name, service.uploads.find(stored))


@router.get(
    "/datasets/{name}/sheet",
    operation_id="dataset_sheet",
    response_class=Response,
    responses={200: {"content": {"image/png": {}}}, **documented(404, 409, 422)},
)
def get_sheet(service: Here, request: Request, name: Name) -> Response:
    """Images of every class at a glance (PNG)."""
    from rayctsl.data.library import open_dataset
    from rayctsl.data.sheet import write_sheet

    stored = _stored(service, request, name)
    service.datasets.require(stored)
    dataset = open_dataset(stored, service.uploads.root)
    path = service.settings.folder / "cache" / "sheets" / f"{dataset.train.info.checksum}.png"
    if not path.exists():
        write_sheet(dataset, path)
    return Response(path.read_bytes(), media_type="image/png", headers={"cache-control": "no-cache"})


@router.delete(
    "/datasets/{name}",
    status_code=204,
    operation_id="delete_dataset",
    response_class=Response,
    responses=documented(404, 409, 422),
)
async def delete_dataset(service: Here, request: Request, name: Name) -> Response:
    """Delete a dataset that was uploaded, once no job needs it."""
    stored = _stored(service, request, name)
    upload = service.uploads.find(stored)
    if upload is None:
        raise HttpProblem(409, f"Dataset '{name}' was not uploaded here: only its operator can delete it.", "not-own")
    waiting = await asyncio.to_thread(lambda: [*service.store.active(), *service.store.queued(10_000)])
    if any(job.spec.dataset == stored for job in waiting):
        raise HttpProblem(409, f"A job still needs dataset '{name}': cancel it first.", "dataset-in-use")
    await service.uploads.delete(upload)
    service.datasets.look_again()
    return Response(status_code=204)


def _stored(service: Service, request: Request, name: str) -> str:
    """The name in the data root that a caller's name stands for; their own first, then everybody's."""
    stored = service.uploads.resolve(name, owner_of(request))
    if service.uploads.find(stored) is not None or stored in service.datasets.all():
        return stored
    raise HttpProblem(404, f"Dataset '{name}' is unknown; GET /datasets lists all.", "unknown-dataset")


def _show(service: Service, name: str, upload: Upload | None) -> UploadedDataset:
    stored = upload.stored if upload else name
    if upload is not None and upload.status != "ready":
        fields = upload.model_dump(include={"status", "received", "total", "stage", "error", "sha256"})
        return UploadedDataset(name=name, **fields)
    if upload is not None and stored not in service.datasets.all():
        service.datasets.look_again()
    document = service.datasets.all().get(stored)
    classes: tuple[str, ...] = ()
    if stored in EMBEDDED:
        classes = EMBEDDED[stored].class_names
    elif document is not None and document.prepared:
        classes = open_root(service.uploads.root).describe(stored).train.class_names
    shown = document.model_copy(update={"name": name}) if document else None
    checksum = upload.sha256 if upload else None
    return UploadedDataset(name=name, status="ready", sha256=checksum, class_names=list(classes), dataset=shown)
