"""Which datasets a job may name."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends

from serve.problems import documented
from serve.schemas import DatasetList
from serve.service import Service, service_of

router = APIRouter(tags=["datasets"])


@router.get("/datasets", responses=documented())
def list_datasets(service: Annotated[Service, Depends(service_of)]) -> DatasetList:
    """All that are known; `prepared` ones can be used now."""
    return DatasetList(data=list(service.datasets.all().values()))
