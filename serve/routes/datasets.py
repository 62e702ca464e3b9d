"""Which datasets a job may name."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request
from starlette.responses import Response

from serve.problems import documented
from serve.schemas import DATASET_NAME, DatasetList
from serve.service import Service, service_of
from serve.uploads import SEPARATOR, is_visible, owner_of

router = APIRouter(tags=["datasets"])
Name = Annotated[str, Path(pattern=DATASET_NAME, description="A dataset's name")]


@router.get("/datasets", responses=documented())
def list_datasets(service: Annotated[Service, Depends(service_of)], request: Request) -> DatasetList:
    """All that are known; `prepared` ones can be used now. Uploaded ones are shown to their owner alone."""
    known, owner = service.datasets.all(), owner_of(request)
    shown = [document for stored, document in known.items() if is_visible(stored, owner)]
    return DatasetList(data=[each.model_copy(update={"name": each.name.partition(SEPARATOR)[0]}) for each in shown])


@router.get(
    "/datasets/{name}/thumbnail",
    response_class=Response,
    responses={
        200: {"content": {"image/png": {"schema": {"type": "string", "format": "binary"}}}},
        204: {"description": "There is no picture of it yet"},
        **documented(404, 409, 422),
    },
)
def thumbnail(service: Annotated[Service, Depends(service_of)], request: Request, name: Name) -> Response:
    """One training image of each of the first classes, side by side (PNG)."""
    picture = service.datasets.thumbnail(service.uploads.resolve(name, owner_of(request)))
    if picture is None:
        return Response(status_code=204)
    return Response(picture, 200, {"cache-control": "private, max-age=3600"}, "image/png")
