"""Which datasets a job may name: all of them, and one with its classes and pictures."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path as FilePath
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from rayctsl.data.embedded import EMBEDDED
from rayctsl.data.library import Dataset, open_dataset
from rayctsl.data.names import shown_name
from rayctsl.data.roots import open_root
from serve.datasets import list_visible, unknown_dataset
from serve.inbox import Upload, UploadStatus
from serve.problems import Responses, documented
from serve.schemas import DATASET_NAME, DatasetDocument, DatasetList
from serve.service import Service, caller_of, service_of

router = APIRouter(tags=["datasets"])
Here = Annotated[Service, Depends(service_of)]
Name = Annotated[str, Path(pattern=DATASET_NAME, description="A dataset's name")]
SHEETS = 100  # pictures that are kept; others are drawn again when they are asked for
NO_PICTURE: Responses = {204: {"description": "There is no picture of it yet"}}
PICTURE: Responses = {200: {"content": {"image/png": {"schema": {"type": "string", "format": "binary"}}}}}


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


@router.get("/datasets", responses=documented())
def list_datasets(service: Here, request: Request) -> DatasetList:
    """All that are known; `prepared` ones can be used now. Uploaded ones are shown to their owner alone."""
    known, owner = service.datasets.all(), caller_of(request).name
    shown = [known[stored] for stored in list_visible(known, owner)]
    return DatasetList(data=[each.model_copy(update={"name": shown_name(each.name)}) for each in shown])


@router.get("/datasets/{name}", operation_id="get_dataset", responses=documented(404, 422))
def get_dataset(service: Here, request: Request, name: Name) -> UploadedDataset:
    """Counts and classes, and how far its import is."""
    return show(service, name, service.uploads.inbox.find(find_stored(service, request, name)))


@router.get(
    "/datasets/{name}/sheet",
    operation_id="dataset_sheet",
    response_class=Response,
    responses={**PICTURE, **NO_PICTURE, **documented(404, 409, 422)},
)
def get_sheet(service: Here, request: Request, name: Name) -> Response:
    """Images of every class at a glance (PNG)."""
    stored = service.uploads.resolve_ready(name, caller_of(request).name)
    service.datasets.require(stored)
    if stored in EMBEDDED and stored not in open_root(service.uploads.root).names():
        return Response(status_code=204)  # whoever needs it first makes it, which takes a while
    try:
        dataset = open_dataset(stored, service.uploads.root)
    except (ValueError, FileNotFoundError):  # deleted a moment ago
        raise unknown_dataset(name) from None
    sheet = _sheet(dataset, service.settings.folder / "cache" / "sheets")
    return Response(sheet, media_type="image/png", headers={"cache-control": "no-cache"})


def _sheet(dataset: Dataset, folder: FilePath) -> bytes:
    """The picture, kept by the images' checksum; the newest ones stay."""
    from rayctsl.data.sheet import write_sheet

    path = folder / f"{dataset.train.info.checksum}.png"
    with contextlib.suppress(FileNotFoundError):
        return path.read_bytes()
    drawn = folder / f"{path.stem}-{secrets.token_hex(4)}.png"
    write_sheet(dataset, drawn)
    picture = drawn.read_bytes()
    os.replace(drawn, path)
    with contextlib.suppress(FileNotFoundError):  # somebody else may be at it
        kept = sorted(folder.iterdir(), key=lambda each: each.stat().st_mtime, reverse=True)
        for old in kept[SHEETS:]:
            old.unlink()
    return picture


@router.get(
    "/datasets/{name}/thumbnail",
    response_class=Response,
    responses={**PICTURE, **NO_PICTURE, **documented(404, 409, 422)},
)
def thumbnail(service: Here, request: Request, name: Name) -> Response:
    """One training image of each of the first classes, side by side (PNG)."""
    picture = service.datasets.thumbnail(service.uploads.resolve_ready(name, caller_of(request).name))
    if picture is None:
        return Response(status_code=204)
    return Response(picture, 200, {"cache-control": "private, max-age=3600"}, "image/png")


def find_stored(service: Service, request: Request, name: str) -> str:
    """The name in the data root that a caller's name stands for; their own first, then everybody's."""
    stored = service.uploads.resolve(name, caller_of(request).name)
    if service.uploads.inbox.find(stored) is not None or stored in service.datasets.all(wanted=stored):
        return stored
    raise unknown_dataset(name)


def show(service: Service, name: str, upload: Upload | None) -> UploadedDataset:
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
        try:
            classes = open_root(service.uploads.root).describe(stored).train.class_names
        except (ValueError, FileNotFoundError):  # deleted a moment ago
            raise unknown_dataset(name) from None
    shown = document.model_copy(update={"name": name}) if document else None
    checksum = upload.sha256 if upload else None
    return UploadedDataset(name=name, status="ready", sha256=checksum, class_names=list(classes), dataset=shown)
