"""The read side of the Hugging Face Hub's protocol, so that its own clients download initializations from here.

An initialization is the model repository `rayctsl/<id>` with one commit: the hash of its card.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query
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
LISTED: Responses = {200: {"content": {"application/json": {"schema": {"type": "array", "items": {"type": "object"}}}}}}
DOCUMENT: Responses = {200: {"content": {"application/json": {"schema": {"type": "object"}}}}}


@router.get(
    "/api/models",
    operation_id="hub_models",
    response_class=Response,
    responses={**LISTED, **documented(422)},
)
async def models(
    service: Fresh,
    search: Annotated[str, Query(max_length=200)] = "",
    author: Annotated[str, Query(max_length=96)] = NAMESPACE,
    limit: Annotated[int, Query(ge=1, le=1000)] = 1000,
) -> Response:
    """The repositories."""
    entries = service.index.newest_first if author == NAMESPACE else []
    found = [entry for entry in entries if search.lower() in f"{NAMESPACE}/{entry.search}"]
    return JSONResponse([_describe(entry) for entry in found[:limit]])


@router.get(
    "/api/models/{namespace}/{repository}/refs",
    operation_id="hub_refs",
    response_class=Response,
    responses={**DOCUMENT, **documented(404, 422)},
)
async def refs(service: Fresh, namespace: Namespace, repository: Repository) -> Response:
    """The one branch."""
    entry = _find(service, namespace, repository, "main")
    branch = {"name": "main", "ref": "refs/heads/main", "targetCommit": entry.commit}
    return JSONResponse({"branches": [branch], "converts": [], "tags": []})


@router.get(
    "/api/models/{namespace}/{repository}/commits/{revision}",
    operation_id="hub_commits",
    response_class=Response,
    responses={**LISTED, **documented(404, 422)},
)
async def commits(service: Fresh, namespace: Namespace, repository: Repository, revision: Revision) -> Response:
    """The one commit."""
    entry = _find(service, namespace, repository, revision)
    made = {"id": entry.commit, "title": f"Publish {entry.id}", "message": "", "authors": []}
    return JSONResponse([{**made, "date": _hub_time(entry.card.created)}])


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
    responses={**LISTED, **documented(404, 422, 503)},
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
    file, checksum = await asyncio.to_thread(_open, service, entry, name)
    headers = {"x-repo-commit": entry.commit}
    if name == PHI:
        headers |= {"x-linked-etag": f'"{checksum}"', "x-linked-size": str(os.fstat(file).st_size)}
    return FileAnswer(file, checksum, name, headers=headers, metrics=service.metrics)


_PATH = "/{namespace}/{repository}/resolve/{revision}/{name}"
router.get(_PATH, operation_id="hub_file", response_class=Response, responses=WEIGHTS_RESPONSES)(resolve)


def _find(service: Service, namespace: str, repository: str, revision: str) -> IndexEntry:
    entry = service.index.by_id.get(repository) if namespace == NAMESPACE else None
    if entry is None:
        raise HttpProblem(404, "Repository not found.", headers={"x-error-code": "RepoNotFound"})
    if revision not in ("main", entry.commit):
        raise HttpProblem(404, "Revision not found.", headers={"x-error-code": "RevisionNotFound"})
    return entry


def _open(service: Service, entry: IndexEntry, name: str) -> tuple[int, str]:
    """A file and its checksum as the hub has it: large ones by their sha256, small ones by the name git gives them."""
    file = service.index.open(entry, name)
    if name == PHI:
        return file, entry.card.sha256
    content = os.pread(file, os.fstat(file).st_size, 0)
    return file, hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def _file(service: Service, entry: IndexEntry, name: str) -> JsonObject:
    file, checksum = _open(service, entry, name)
    size = os.fstat(file).st_size
    os.close(file)
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
        return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
    except (ValueError, OverflowError):
        return "1970-01-01T00:00:00.000Z"
