"""Is it alive, is it ready, what do its figures say."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

from fastapi import APIRouter, Depends
from sqlalchemy.exc import SQLAlchemyError
from starlette.responses import Response

from serve.problems import HttpProblem, documented
from serve.schemas import Health
from serve.service import Service, service_of

router = APIRouter(tags=["health"])
Here = Annotated[Service, Depends(service_of)]


@router.get("/livez", responses=documented(), response_model_exclude_none=True)
async def alive() -> Health:
    """The process answers."""
    return Health(status="ok")


@router.get("/readyz", responses=documented(503))
async def ready(service: Here) -> Health:
    """Lists, downloads and new jobs work. Without Ray they still do, and jobs wait: that is `degraded`."""
    try:
        await asyncio.to_thread(service.store.counts)
    except SQLAlchemyError:
        raise HttpProblem(503, "The job store does not answer.") from None
    if not service.dispatches:
        raise HttpProblem(503, "The dispatcher does not run.")
    up = service.pool.up
    role: Literal["running", "standby"] = "running" if service.leadership.leads else "standby"
    return Health(status="ok" if up else "degraded", ray="up" if up else "down", dispatcher=role)


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **documented()},
)
async def metrics(service: Here) -> Response:
    """Figures for Prometheus."""
    return Response(service.metrics.render(), media_type="text/plain; version=0.0.4; charset=utf-8")
