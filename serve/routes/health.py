"""Is it alive, is it ready, what do its figures say."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

from fastapi import APIRouter, Depends
from sqlalchemy.exc import SQLAlchemyError
from starlette.responses import Response

from serve.problems import FULL, HttpProblem, documented
from serve.schemas import Health
from serve.service import Service, service_of

router = APIRouter(tags=["health"])
STORE_SECONDS = 3.0
TURNS_FAIL = "The dispatcher's turns fail: the service's log says why."
Here = Annotated[Service, Depends(service_of)]


@router.get("/livez", responses=documented(), response_model_exclude_none=True)
async def alive() -> Health:
    """The process answers."""
    return Health(status="ok")


@router.get("/readyz", responses=documented(503))
async def ready(service: Here) -> Health:
    """Lists, downloads and new jobs work. Without Ray they still do, and jobs wait: that is `degraded`."""
    try:
        async with asyncio.timeout(STORE_SECONDS):
            await service.house.run(service.store.counts)
    except (SQLAlchemyError, TimeoutError):
        raise HttpProblem(503, "The job store does not answer.") from None
    if not service.dispatches:
        raise HttpProblem(503, "The dispatcher does not run.")
    up = service.pool.up
    reasons = [] if up else ["Ray does not answer: jobs wait."]
    reasons += [service.pool.mute] if service.pool.mute else []
    reasons += [TURNS_FAIL] if service.dispatcher.trouble and service.dispatcher.trouble != FULL else []
    if service.dispatcher.trouble == FULL or await service.house.run(service.is_full):
        reasons.append(FULL)
    role: Literal["running", "standby"] = "running" if service.leadership.leads else "standby"
    status: Literal["ok", "degraded"] = "degraded" if reasons else "ok"
    return Health(status=status, ray="up" if up else "down", dispatcher=role, reasons=reasons)


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **documented()},
)
async def metrics(service: Here) -> Response:
    """Figures for Prometheus."""
    text = await service.house.run(service.metrics.render)
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")
