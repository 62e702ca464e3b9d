"""The read side of the Hugging Face Hub's protocol, so that its own clients download initializations from here.

An initialization is the model repository `rayctsl/<id>` with one commit: the hash of its card.
"""

from __future__ import annotations

import asyncio
import hashlib
from datetime import UTC, datetime
from pathlib import Path as FilePath
from typing import Annotated

from fastapi import APIRouter, Path
from starlette.responses import JSONResponse, Response

from rayctsl.card import CARD, PHI, README
from rayctsl.contract import JsonObject
from serve.files import FileAnswer
from serve.index import IndexEntry
from serve.problems import HttpProblem, Responses, documented
from serve.routes.initializations import WEIGHTS_RESPONSES, Fresh
from serve.service import Service

router = APIRouter(tags=["hugging face hub"])
NAMESPACE = "rayctsl"
FILES = (CARD, README, PHI)
Namespace = Annotated[str, Path(max_length=96, description=f"Always {NAMESPACE}")]
Repository = Annotated[str, Path(max_length=96, description="An initialization's id")]
Revision = Annotated[str, Path(max_length=64, description="main, or the commit")]
DOCUMENT: Responses = {200: {"content": {"application/json": {"schema": {"type": "object"}}}}}


@router.get(
    "/api/models/{namespace}/{repository}",
    operation_id="hub_model",
    response_class=Response,
    responses={**DOCUMENT, **documented(404, 422)},
)
async def model(service: Fresh, namespace: Namespace, repository: Repository) -> Response:
    """What the repository holds."""
    return JSONResponse(_describe(_find(service, namespace, repository, "main")))


@router.get(
    "/api/models/{namespace}/{repository}/revision/{revision}",
    operation_id="hub_revision",
    response_class=Response,
    responses={**DOCUMENT, **documented(404, 422)},
)
async def revision(service: Fresh, namespace: Namespace, repository: Repository, revision: Revision) -> Response:
    """What the repository holds at a revision."""
    return JSONResponse(_describe(_find(service, namespace, repository, revision)))


@router.get(
    "/api/models/{namespace}/{repository}/tree/{revision}",
    operation_id="hub_tree",
    response_class=Response,
    responses={
        200: {"content": {"application/json": {"schema": {"type": "array", "items": {"type": "object"}}}}},
        **documented(404, 422, 503),
    },
)
async def tree(service: Fresh, namespace: Namespace, repository: Repository, revision: Revision) -> Response:
    """The files with their sizes and checksums."""
    entry = _find(service, namespace, repository, revision)
    return JSONResponse(await asyncio.to_thread(lambda: [_file(service, entry, name) for name in FILES]))


async def resolve(
    service: Fresh, namespace: Namespace, repository: Repository, revision: Revision, name: str
) -> Response:
    """One file of an initialization."""
    entry = _find(service, namespace, repository, revision)
    if name not in FILES:
        raise HttpProblem(
            404, "Entry not found.", headers={"x-error-code": "EntryNotFound", "x-repo-commit": entry.commit}
        )
    path = await asyncio.to_thread(service.index.file, entry, name)
    checksum = await asyncio.to_thread(_checksum, entry, path)
    headers = {"x-repo-commit": entry.commit}
    if name == PHI:
        headers |= {"x-linked-etag": f'"{checksum}"', "x-linked-size": str(path.stat().st_size)}
    return FileAnswer(path, checksum, name, headers=headers, metrics=service.metrics)


_PATH = "/{namespace}/{repository}/resolve/{revision}/{name}"
router.get(_PATH, operation_id="hub_file", response_class=Response, responses=WEIGHTS_RESPONSES)(resolve)
router.head(_PATH, include_in_schema=False)(resolve)


def _find(service: Service, namespace: str, repository: str, revision: str) -> IndexEntry:
    entry = service.index.by_id.get(repository) if namespace == NAMESPACE else None
    if entry is None:
        raise HttpProblem(404, "Repository not found.", headers={"x-error-code": "RepoNotFound"})
    if revision not in ("main", entry.commit):
        raise HttpProblem(404, "Revision not found.", headers={"x-error-code": "RevisionNotFound"})
    return entry


def _checksum(entry: IndexEntry, path: FilePath) -> str:
    """As the hub has it: large files by their sha256, small ones by the name that git gives them."""
    if path.name == PHI:
        return entry.card.sha256
    content = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def _file(service: Service, entry: IndexEntry, name: str) -> JsonObject:
    path = service.index.file(entry, name)
    size, checksum = path.stat().st_size, _checksum(entry, path)
    described = {"type": "file", "path": name, "size": size, "oid": checksum[:40]}
    return {**described, "lfs": {"oid": checksum, "size": size, "pointerSize": 134}} if name == PHI else described


def _describe(entry: IndexEntry) -> JsonObject:
    card = entry.card
    return {
        "_id": entry.commit[:24],
        "id": f"{NAMESPACE}/{entry.id}",
        "modelId": f"{NAMESPACE}/{entry.id}",
        "author": NAMESPACE,
        "sha": entry.commit,
        "lastModified": _hub_time(card.created),
        "createdAt": _hub_time(card.created),
        "private": False,
        "gated": False,
        "disabled": False,
        "downloads": 0,
        "likes": 0,
        "library_name": "rayctsl",
        "tags": ["meta-learning", "image-classification", *card.tasks],
        "siblings": [{"rfilename": name} for name in FILES],
    }


def _hub_time(text: str) -> str:
    """The one way of writing a time that the hub's clients read."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = datetime.fromtimestamp(0, UTC)
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
