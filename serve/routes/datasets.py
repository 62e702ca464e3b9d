"""Which datasets a job may name."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request

from serve.problems import documented
from serve.schemas import DatasetList
from serve.service import Service, service_of
from serve.uploads import SEPARATOR, is_visible, owner_of

router = APIRouter(tags=["datasets"])


@router.get("/datasets", responses=documented())
def list_datasets(service: Annotated[Service, Depends(service_of)], request: Request) -> DatasetList:
    """All that are known; `prepared` ones can be used now. Uploaded ones are shown to their owner alone."""
    known, owner = service.datasets.all(), owner_of(request)
    shown = [document for stored, document in known.items() if is_visible(stored, owner)]
    return DatasetList(data=[each.model_copy(update={"name": each.name.partition(SEPARATOR)[0]}) for each in shown])
