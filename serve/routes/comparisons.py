"""One dataset, many initializations: ask for a comparison, watch its leaderboard, cancel it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import JSONResponse, Response

from rayctsl.config import RecipeConfig
from serve.comparisons import Comparison, Rows, leaderboard, new_comparison, rows_of
from serve.jobs.view import dump_job, show_job
from serve.keys import Caller
from serve.problems import HttpProblem, documented
from serve.routes.finetune import accept_all, cancel, prefix_of, require_json
from serve.routes.initializations import Fresh
from serve.schemas import DATASET_NAME, ID, FinetuneRequest, RecipeRequest
from serve.service import Service, caller_of, service_of

router = APIRouter(tags=["comparisons"])
Here = Annotated[Service, Depends(service_of)]
COMPARISON_ID = r"^cmp-[0-9a-f]{16}$"
ComparisonId = Annotated[str, Path(pattern=COMPARISON_ID, description="A comparison's id")]
MAX_JOBS = 60


class ComparisonRequest(RecipeRequest):
    """Which initializations to compare on which dataset; the recipe is the same for all."""

    dataset: Annotated[str, Field(pattern=DATASET_NAME)]
    """A dataset's name, see GET /datasets."""
    initializations: Annotated[tuple[Annotated[str, Field(pattern=ID)], ...], Field(min_length=2, max_length=20)]
    """Their ids."""
    seeds: Annotated[int, Field(ge=1, le=20)] = 3
    """Independent runs of each, paired by seed."""
    compare_with_scratch: bool = True
    """Train from random weights too, beside the first initialization and on the same batches."""


class PlaceDocument(BaseModel):
    """A line of the leaderboard: shares of 1, intervals as half widths at 95 %."""

    initialization: str
    accuracy: float | None
    interval: float | None
    behind: float | None = Field(description="Behind the best, seed by seed")
    behind_interval: float | None
    finished: int = Field(description="Seeds that have ended well")


class ComparisonDocument(BaseModel):
    """A comparison; the jobs of each initialization are in the order of the seeds, with their curves so far."""

    id: str
    dataset: str
    seeds: int
    created_at: float
    status: str = Field(description="running or ended")
    leaderboard: list[PlaceDocument]
    jobs: dict[str, list[dict[str, object]]]


@router.post(
    "/comparisons",
    status_code=202,
    operation_id="create_comparison",
    response_model=ComparisonDocument,
    responses=documented(404, 409, 413, 415, 422, 429),
    dependencies=[Depends(require_json)],
)
def create_comparison(service: Fresh, request: Request, body: ComparisonRequest) -> Response:
    """Run every initialization on the dataset with the same recipe, seeds and batches."""
    names = tuple(dict.fromkeys(body.initializations))
    caller = caller_of(request)
    _check_size(service, caller, len(names), body.seeds)
    recipe = body.model_dump(include=set(RecipeConfig.model_fields))
    asked = [
        FinetuneRequest(
            **recipe,
            dataset=body.dataset,
            initialization=name,
            seed=seed,
            compare_with_scratch=body.compare_with_scratch and name == names[0],
            label=f"comparison, seed {seed}",
        )
        for seed in range(body.seeds)  # seed by seed, so that early numbers compare everybody
        for name in names
    ]
    made = accept_all(service, asked, caller)
    jobs = {name: tuple(job.id for job in made[place :: len(names)]) for place, name in enumerate(names)}
    comparison = new_comparison(caller.name, body.dataset, names, body.seeds, jobs)
    service.comparisons.save(comparison)
    document, prefix = _show(service, request, comparison), prefix_of(request)
    return JSONResponse(document.model_dump(mode="json"), 202, {"location": f"{prefix}/comparisons/{comparison.id}"})


def _check_size(service: Service, caller: Caller, names: int, seeds: int) -> None:
    """What never fits is told so at once: trying again later would not help."""
    limits = (
        (MAX_JOBS, f"A comparison may have {MAX_JOBS} jobs"),
        (caller.queue_share, f"{caller.queue_share} jobs of this key may wait"),
        (caller.jobs_per_day, f"This key may ask for {caller.jobs_per_day} jobs in 24 hours"),
        (service.settings.max_queued, f"{service.settings.max_queued} jobs may wait here"),
    )
    for most, limit in limits:
        if most is not None and names * seeds > most:
            raise HttpProblem(409, f"{limit}: {names} x {seeds} are more.", "too-many-jobs")


@router.get("/comparisons", operation_id="list_comparisons", responses=documented(404, 422))
def list_comparisons(
    service: Here,
    request: Request,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    after: Annotated[str | None, Query(pattern=COMPARISON_ID, description="The last id of the page before")] = None,
) -> list[ComparisonDocument]:
    """A page of your comparisons, newest first, without their jobs."""
    caller = caller_of(request)
    own = [each for each in service.comparisons.all() if caller.owns(each.owner)]
    start = 0
    if after is not None:
        start = 1 + next((number for number, each in enumerate(own) if each.id == after), -1)
        if not start:
            raise HttpProblem(404, f"There is no comparison '{after}'.", "unknown-comparison")
    page = own[start : start + limit]
    return [_describe(each, rows) for each, rows in zip(page, rows_of(service.store, page), strict=True)]


@router.get("/comparisons/{id}", operation_id="get_comparison", responses=documented(404, 422))
def get_comparison(service: Here, request: Request, id: ComparisonId) -> ComparisonDocument:
    """The leaderboard as it stands, and the jobs with their curves."""
    return _show(service, request, find_comparison(service, request, id))


@router.post("/comparisons/{id}/cancel", operation_id="cancel_comparison", responses=documented(404, 422))
def cancel_comparison(service: Here, request: Request, id: ComparisonId) -> ComparisonDocument:
    """Cancel whatever of it has not ended."""
    comparison = find_comparison(service, request, id)
    (rows,) = rows_of(service.store, [comparison])
    for row in [row for of in rows.values() for row in of]:
        if row is not None and not row.ended:
            cancel(service, row)
    return _show(service, request, comparison)


def find_comparison(service: Service, request: Request, identifier: str) -> Comparison:
    found = service.comparisons.find(identifier)
    if found is None or not caller_of(request).owns(found.owner):
        raise HttpProblem(404, f"There is no comparison '{identifier}'.", "unknown-comparison")
    return found


def _show(service: Service, request: Request, comparison: Comparison) -> ComparisonDocument:
    (rows,) = rows_of(service.store, [comparison])
    prefix = prefix_of(request)
    jobs = {
        name: [dump_job(show_job(row, service.storage, prefix=prefix)) for row in of if row]
        for name, of in rows.items()
    }
    return _describe(comparison, rows).model_copy(update={"jobs": jobs})


def _describe(comparison: Comparison, rows: Rows) -> ComparisonDocument:
    ended = all(row is None or row.ended for of in rows.values() for row in of)
    return ComparisonDocument(
        id=comparison.id,
        dataset=comparison.dataset,
        seeds=comparison.seeds,
        created_at=comparison.created_at,
        status="ended" if ended else "running",
        leaderboard=[PlaceDocument(**asdict(place)) for place in leaderboard(rows)],
        jobs={},
    )
