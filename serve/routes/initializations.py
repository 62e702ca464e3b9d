"""Initializations: list, card, weights."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Path, Query
from starlette.responses import JSONResponse, Response

from rayctsl.words import suggest
from serve.files import FileAnswer
from serve.index import BrokenCard, IndexEntry
from serve.problems import HttpProblem, Responses, documented
from serve.schemas import ID, InitializationDocument, InitializationList
from serve.service import Service, service_of

router = APIRouter(tags=["initializations"])
Here = Annotated[Service, Depends(service_of)]
Id = Annotated[str, Path(pattern=ID, description="An initialization's id")]
Name = Annotated[str | None, Query(max_length=100)]
Sort = Literal["-created", "created", "id", "-id", "size", "-size", "method", "-method", "model", "-model"]

LATEST = "latest"
SUGGESTED = 50  # ids that a wrong one is compared with, which takes its time
KEYS: dict[str, Callable[[IndexEntry], str | int]] = {
    "created": lambda entry: entry.card.created,
    "id": lambda entry: entry.id,
    "size": lambda entry: entry.card.size,
    "method": lambda entry: entry.card.method.name,
    "model": lambda entry: entry.card.model.name,
}
WEIGHTS_RESPONSES: Responses = {
    200: {
        "description": "The safetensors file",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    },
    206: {
        "description": "The part asked for",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    },
    304: {"description": "The client has it already"},
    **documented(404, 409, 416, 422, 503),
}


async def fresh(service: Here) -> Service:
    """The service, its index looked at within the last seconds."""
    if service.index.is_stale:
        await asyncio.to_thread(service.index.refresh)
    return service


Fresh = Annotated[Service, Depends(fresh)]


def find(service: Service, identifier: str) -> IndexEntry:
    """The initialization of this id; `latest` is the newest."""
    entry = service.index.by_id.get(identifier)
    if entry is None and identifier == LATEST:
        if not service.index.newest_first:
            raise HttpProblem(409, "The storage holds no initialization yet: train one first.", "no-initialization")
        return service.index.newest_first[0]
    if entry is None:
        newest = [entry.id for entry in service.index.newest_first[:SUGGESTED]]
        hint = suggest(identifier, newest)
        raise HttpProblem(404, f"There is no initialization '{identifier}'{hint}", "unknown-initialization")
    return entry


def find_start(service: Service, identifier: str) -> IndexEntry:
    """What a job starts from; `latest` is the newest whose model this service can build."""
    if identifier == LATEST and identifier not in service.index.by_id:
        entry = next((entry for entry in service.index.newest_first if entry.card.own_class is None), None)
        if entry is None:
            raise HttpProblem(409, "The storage holds no initialization to start from: train one.", "no-initialization")
        return entry
    entry = find(service, identifier)
    if own := entry.card.own_class:
        why = f"'{entry.id}' is of {own}, a model that this service does not have"
        raise HttpProblem(409, f"{why}: fine-tune it where it is, by rayctsl.finetune(…, model=…).", "own-model")
    return entry


@router.get("/initializations", responses=documented(404, 422), response_model=InitializationList)
async def list_initializations(
    service: Fresh,
    broken: Annotated[bool, Query(description="Only the cards that cannot be read, each with the reason")] = False,
    method: Name = None,
    model: Name = None,
    task: Name = None,
    q: Annotated[str | None, Query(max_length=200, description="Words that must all occur")] = None,
    sort: Sort = "-created",
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    after: Annotated[str | None, Query(max_length=1000, description="The last id of the page before")] = None,
) -> Response:
    """A page of cards, newest first; long metrics are left to the single card."""
    if broken:
        left = [card for card in _broken(service) if after is None or card.folder > after]
        data = [{"object": "broken", "id": card.folder, "reason": card.reason} for card in left[:limit]]
        return JSONResponse({"object": "list", "data": data, "has_more": len(left) > limit})
    entries = service.index.newest_first
    if method is not None:
        entries = [entry for entry in entries if entry.card.method.name == method]
    if model is not None:
        entries = [entry for entry in entries if entry.card.model.name == model]
    if task is not None:
        entries = [entry for entry in entries if task in entry.card.tasks]
    if q:
        words = q.lower().split()
        entries = [entry for entry in entries if all(word in entry.search for word in words)]
    if sort != "-created":
        entries = sorted(entries, key=KEYS[sort.removeprefix("-")], reverse=sort.startswith("-"))
    start = 0
    if after is not None:
        last = find(service, after)
        position = next((number for number, entry in enumerate(entries) if entry is last), None)
        if position is None:
            raise HttpProblem(404, f"Initialization '{after}' is not in this list.")
        start = position + 1
    page = entries[start : start + limit]
    more = b"true" if start + limit < len(entries) else b"false"
    cards = b", ".join(entry.summary for entry in page)
    return Response(b'{"object": "list", "data": [%b], "has_more": %b}' % (cards, more), media_type="application/json")


def _broken(service: Service) -> list[BrokenCard]:
    return sorted(service.index.broken.values(), key=lambda card: card.folder)


@router.get("/initializations/{id}", responses=documented(404, 409, 422), response_model=InitializationDocument)
async def get_initialization(service: Fresh, id: Id) -> Response:
    """The card."""
    return Response(find(service, id).document, media_type="application/json")


async def weights(service: Fresh, id: Id) -> Response:
    """The backbone's parameters (safetensors); ETag is the sha256, so downloads can be resumed and verified."""
    entry = find(service, id)
    file = await asyncio.to_thread(service.index.open, entry)
    return FileAnswer(file, entry.card.sha256, f"{entry.id}.safetensors", metrics=service.metrics)


router.get("/initializations/{id}/weights", response_class=Response, responses=WEIGHTS_RESPONSES)(weights)
