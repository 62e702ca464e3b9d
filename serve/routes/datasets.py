"""Which datasets a job may name: all of them, and one with its classes and pictures."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from rayctsl.data.embedded import EMBEDDED
from rayctsl.data.library import open_dataset
from rayctsl.data.roots import open_root
from serve.datasets import is_visible, shown_name
from serve.problems import HttpProblem, Responses, documented
from serve.schemas import DATASET_NAME, DatasetDocument, DatasetList
from serve.service import Service, caller_of, service_of
from serve.uploads import Upload, UploadStatus

router = APIRouter(tags=["datasets"])
Here = Annotated[Service, Depends(service_of)]
Name = Annotated[str, Path(pattern=DATASET_NAME, description="A dataset's name")]
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
    shown = [document for stored, document in known.items() if is_visible(stored, owner)]
    return DatasetList(data=[each.model_copy(update={"name": shown_name(each.name)}) for each in shown])


@router.get("/datasets/{name}", operation_id="get_dataset", responses=documented(404, 422))
def get_dataset(service: Here, request: Request, name: Name) -> UploadedDataset:
    """Counts and classes, and how far its import is."""
    return show(service, name, service.uploads.find(find_stored(service, request, name)))


@router.get(
    "/datasets/{name}/sheet",
    operation_id="dataset_sheet",
    response_class=Response,
    responses={**PICTURE, **documented(404, 409, 422)},
)
def get_sheet(service: Here, request: Request, name: Name) -> Response:
    """Images of every class at a glance (PNG)."""
    from rayctsl.data.sheet import write_sheet

    stored = service.uploads.resolve_ready(name, caller_of(request).name)
    service.datasets.require(stored)
    dataset = open_dataset(stored, service.uploads.root)
    path = service.settings.folder / "cache" / "sheets" / f"{dataset.train.info.checksum}.png"
    if not path.exists():
        write_sheet(dataset, path)
    return Response(path.read_bytes(), media_type="image/png", headers={"cache-control": "no-cache"})


@router.get(
    "/datasets/{name}/thumbnail",
    response_class=Response,
    responses={**PICTURE, 204: {"description": "There is no picture of it yet"}, **documented(404, 409, 422)},
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
    if service.uploads.find(stored) is not None or stored in service.datasets.all():
        return stored
    raise HttpProblem(404, f"Dataset '{name}' is unknown; GET /datasets lists all.", "unknown-dataset")


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
        classes = open_root(service.uploads.root).describe(stored).train.class_names
    shown = document.model_copy(update={"name": name}) if document else None
    checksum = upload.sha256 if upload else None
    return UploadedDataset(name=name, status="ready", sha256=checksum, class_names=list(classes), dataset=shown)
