"""The read side of the Hugging Face Hub's protocol, so that its own clients download initializations from here.

An initialization is the model repository `rayctsl/<id>`, a published model `rayctsl/<name>`, each with one commit: the
hash of its card.
"""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.responses import JSONResponse, Response

from rayctsl.contract import JsonObject
from serve.files import FileAnswer
from serve.problems import HttpProblem, Responses, documented
from serve.repositories import Repository, all_repositories, find_repository
from serve.routes.initializations import WEIGHTS_RESPONSES, Fresh
from serve.schemas import ID
from serve.service import Service

router = APIRouter(tags=["hugging face hub"])
NAMESPACE = "rayctsl"
NAME = re.compile(ID)
Namespace = Annotated[str, Path(max_length=96, description=f"Always {NAMESPACE}")]
RepositoryName = Annotated[str, Path(max_length=96, description="An initialization's id, or a published model's name")]
Revision = Annotated[str, Path(max_length=64, description="main, or the commit")]
LISTED: Responses = {200: {"content": {"application/json": {"schema": {"type": "array", "items": {"type": "object"}}}}}}
DOCUMENT: Responses = {200: {"content": {"application/json": {"schema": {"type": "object"}}}}}


@router.get(
    "/api/models",
    operation_id="hub_models",
    response_class=Response,
    responses={**LISTED, **documented(422)},
)
def models(
    service: Fresh,
    search: Annotated[str, Query(max_length=200)] = "",
    author: Annotated[str, Query(max_length=96)] = NAMESPACE,
    limit: Annotated[int, Query(ge=1, le=1000)] = 1000,
) -> Response:
    """The repositories."""
    repositories = all_repositories(service) if author == NAMESPACE else []
    found = [each for each in repositories if search.lower() in _searched(each)]
    return JSONResponse([_describe(each) for each in found[:limit]])


def _searched(repository: Repository) -> str:
    words = repository.entry.search if repository.entry else " ".join((repository.name, *repository.tags)).lower()
    return f"{NAMESPACE}/{words}"


@router.get(
    "/api/models/{namespace}/{repository}/refs",
    operation_id="hub_refs",
    response_class=Response,
    responses={**DOCUMENT, **documented(404, 422)},
)
def refs(service: Fresh, namespace: Namespace, repository: RepositoryName) -> Response:
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
def commits(service: Fresh, namespace: Namespace, repository: RepositoryName, revision: Revision) -> Response:
    """The one commit."""
    entry = _find(service, namespace, repository, revision)
    made = {"id": entry.commit, "title": f"Publish {entry.name}", "message": "", "authors": []}
    return JSONResponse([{**made, "date": _hub_time(entry.created)}])


@router.get(
    "/api/models/{namespace}/{repository}",
    operation_id="hub_model",
    response_class=Response,
    responses={**DOCUMENT, **documented(404, 422)},
)
def model(service: Fresh, namespace: Namespace, repository: RepositoryName) -> Response:
    """What the repository holds."""
    return JSONResponse(_describe(_find(service, namespace, repository, "main")))


@router.get(
    "/api/models/{namespace}/{repository}/revision/{revision}",
    operation_id="hub_revision",
    response_class=Response,
    responses={**DOCUMENT, **documented(404, 422)},
)
def revision(service: Fresh, namespace: Namespace, repository: RepositoryName, revision: Revision) -> Response:
    """What the repository holds at a revision."""
    return JSONResponse(_describe(_find(service, namespace, repository, revision)))


@router.get(
    "/api/models/{namespace}/{repository}/tree/{revision}",
    operation_id="hub_tree",
    response_class=Response,
    responses={**LISTED, **documented(404, 422, 503)},
)
def tree(service: Fresh, namespace: Namespace, repository: RepositoryName, revision: Revision) -> Response:
    """The files with their sizes and checksums."""
    entry = _find(service, namespace, repository, revision)
    return JSONResponse([_file(service, entry, name) for name in entry.files])


def resolve(
    service: Fresh, namespace: Namespace, repository: RepositoryName, revision: Revision, name: str
) -> Response:
    """One file of a repository."""
    entry = _find(service, namespace, repository, revision)
    if name not in entry.files:
        raise HttpProblem(
            404, "Entry not found.", headers={"x-error-code": "EntryNotFound", "x-repo-commit": entry.commit}
        )
    file, checksum = entry.open(service, name)
    headers = {"x-repo-commit": entry.commit}
    if name == entry.large:
        headers |= {"x-linked-etag": f'"{checksum}"', "x-linked-size": str(os.fstat(file).st_size)}
    return FileAnswer(file, checksum, name, headers=headers, metrics=service.metrics)


_PATH = "/{namespace}/{repository}/resolve/{revision}/{name}"
router.get(_PATH, operation_id="hub_file", response_class=Response, responses=WEIGHTS_RESPONSES)(resolve)


def _find(service: Service, namespace: str, repository: str, revision: str) -> Repository:
    found = find_repository(service, repository) if namespace == NAMESPACE and NAME.fullmatch(repository) else None
    if found is None:
        raise HttpProblem(404, "Repository not found.", headers={"x-error-code": "RepoNotFound"})
    if revision not in ("main", found.commit):
        raise HttpProblem(404, "Revision not found.", headers={"x-error-code": "RevisionNotFound"})
    return found


def _file(service: Service, repository: Repository, name: str) -> JsonObject:
    file, checksum = repository.open(service, name)
    size = os.fstat(file).st_size
    os.close(file)
    described = {"type": "file", "path": name, "size": size, "oid": checksum[:40]}
    if name != repository.large:
        return described
    return {**described, "lfs": {"oid": checksum, "size": size, "pointerSize": 134}}


def _describe(repository: Repository) -> JsonObject:
    name = f"{NAMESPACE}/{repository.name}"
    return {
        "_id": repository.commit[:24],
        "id": name,
        "modelId": name,
        "author": NAMESPACE,
        "sha": repository.commit,
        "lastModified": _hub_time(repository.created),
        "createdAt": _hub_time(repository.created),
        "private": False,
        "gated": False,
        "disabled": False,
        "downloads": 0,
        "likes": 0,
        "library_name": "rayctsl",
        "tags": ["image-classification", *repository.tags],
        "siblings": [{"rfilename": file} for file in repository.files],
    }


def _hub_time(text: str) -> str:
    """The one way of writing a time that the hub's clients read."""
    try:
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
    except (ValueError, OverflowError):
        return "1970-01-01T00:00:00.000Z"
