"""A job's events as they happen (server-sent events).

Numbered events come from the job's own log, so `Last-Event-ID` works across restarts of the service and of the job.
Unnumbered `status` events tell of progress in between; a last `end` event carries the job and closes the stream.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from rayctsl.contract import JsonObject
from rayctsl.jobs.files import job_folder
from rayctsl.jobs.log import read_log
from serve.jobs.rows import JobRow
from serve.jobs.view import dump_job, job_events, show_job
from serve.problems import HttpProblem, Responses, documented
from serve.routes.finetune import prefix_of
from serve.routes.lookup import Here, JobName, find_job
from serve.service import Service

router = APIRouter(tags=["finetune"])
POLL_SECONDS = 0.3
LOOKS_PER_SECOND = 60.0  # of all streams together: those who listen may not keep the service busy
KEEP_ALIVE_SECONDS = 15.0

RESPONSES: Responses = {
    200: {
        "description": "The stream, or the list so far",
        "content": {
            "text/event-stream": {"schema": {"type": "string"}},
            "application/json": {"schema": {"type": "object"}},
        },
    },
    204: {"description": "The job has ended and the client has seen everything"},
    **documented(404, 422, 429),
}


@router.get("/finetune/{id}/events", operation_id="job_events", response_class=Response, responses=RESPONSES)
async def stream_events(
    service: Here,
    request: Request,
    id: JobName,
    last_event_id: Annotated[str | None, Header(pattern="^[0-9]{1,9}$")] = None,
    accept: Annotated[str, Header(include_in_schema=False)] = "",
) -> Response:
    """`started`, `point` (step, loss, accuracy of a run), `resumed`, `status`, and at last `end` with the job."""
    job = await asyncio.to_thread(find_job, service, request, id)
    if accept.partition(";")[0].strip() == "application/json":
        events = await asyncio.to_thread(job_events, job, service.storage)
        return JSONResponse({"object": "list", "data": [event.to_json() for event in events]})
    seen = int(last_event_id or 0)
    if job.ended and seen > len(await asyncio.to_thread(job_events, job, service.storage)):
        return Response(status_code=204)  # tells a browser not to come again
    headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
    if request.scope.get("is_head"):
        return Response(None, 200, headers, "text/event-stream")
    if service.streams >= service.settings.max_streams:
        raise HttpProblem(
            429, "Too many event streams are open; ask for the job itself.", headers={"retry-after": "15"}
        )
    return CountedStream(service, _stream(service, job, seen, prefix_of(request)), headers)


@router.get(
    "/finetune/{id}/log",
    operation_id="job_log",
    response_class=PlainTextResponse,
    responses=documented(404, 422),
)
def get_log(service: Here, request: Request, id: JobName) -> PlainTextResponse:
    """What was said and printed while the job ran, attempt by attempt; without the machine's paths."""
    job = find_job(service, request, id)
    folder = service.storage.inside(job_folder(job.id))
    parts = (read_log(folder, number) for number in range(1, job.attempt + 1))
    return PlainTextResponse("".join(parts))


class CountedStream(StreamingResponse):
    """Counts from the moment it is accepted, before anything of it is sent."""

    def __init__(self, service: Service, content: AsyncIterator[bytes], headers: dict[str, str]):
        super().__init__(content, 200, headers, "text/event-stream")
        self._service = service
        service.streams += 1
        service.metrics.streams.inc()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._service.streams -= 1
            self._service.metrics.streams.dec()


async def _stream(service: Service, job: JobRow, seen: int, prefix: str) -> AsyncIterator[bytes]:
    yield b"retry: 2000\n\n"
    shown, last_sent = None, time.monotonic()
    while not service.closing.is_set():
        # The job first: once it has ended its log is complete, so the events read after it are all there are.
        current = await asyncio.to_thread(service.store.get, job.id)
        if current is None:  # it was deleted
            return
        job = current
        events = await asyncio.to_thread(job_events, job, service.storage)
        for event in events[seen:]:
            yield _block(event.type, event.to_json(), event.id)
        news = len(events) > seen
        seen = max(seen, len(events))
        status = {"status": job.status, "step": job.step, "steps": job.spec.config.steps, "attempt": job.attempt}
        if status != shown:
            yield _block("status", status)
            shown, news = status, True
        if job.ended:
            document = await asyncio.to_thread(show_job, job, service.storage, prefix=prefix)
            yield _block("end", dump_job(document), len(events) + 1)
            return
        if news:
            last_sent = time.monotonic()
        elif time.monotonic() - last_sent > KEEP_ALIVE_SECONDS:
            yield b": still here\n\n"
            last_sent = time.monotonic()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(service.closing.wait(), pause(service.streams))


def pause(streams: int) -> float:
    """Seconds between two looks of one stream: the more there are, the longer."""
    return max(POLL_SECONDS, streams / LOOKS_PER_SECOND)


def _block(kind: str, data: JsonObject, number: int | None = None) -> bytes:
    identity = f"id: {number}\n" if number is not None else ""
    return f"event: {kind}\n{identity}data: {json.dumps(data)}\n\n".encode()
