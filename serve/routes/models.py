"""Published models: give a job's model a name, list, look at a card, take it back. Files come by the hub's paths."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Path, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse, Response

from rayctsl.contract import JsonObject
from rayctsl.data.names import shown_name
from rayctsl.jobs.files import attempt_folder, job_folder
from serve.models import Model
from serve.problems import HttpProblem, documented
from serve.routes.finetune import find_model, prefix_of, require_json
from serve.routes.initializations import Fresh
from serve.routes.lookup import Here, JobName, own_job
from serve.schemas import ID
from serve.service import Service, caller_of

router = APIRouter(tags=["models"])
ModelName = Annotated[str, Path(pattern=ID, description="A published model's name")]


class PublishRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    name: Annotated[str, Field(pattern=ID, description="What to call it; it becomes the repository rayctsl/NAME")]


class ModelDocument(BaseModel):
    object: Literal["model"] = "model"
    name: str
    repository: str = Field(description="For Hugging Face clients with this service as endpoint")
    job: str
    created_at: float
    card: JsonObject = Field(description="Classes, preprocessing, accuracy with interval, confusion matrix, origin")


class ModelList(BaseModel):
    object: Literal["list"] = "list"
    data: list[ModelDocument]


@router.post(
    "/finetune/{id}/publish",
    status_code=201,
    operation_id="publish_model",
    response_model=ModelDocument,
    responses=documented(404, 409, 410, 413, 415, 422, 503),
    dependencies=[Depends(require_json)],
)
def publish(service: Fresh, request: Request, id: JobName, body: PublishRequest) -> Response:
    """Give a model a name under which everybody who may read here finds it, also after its job has gone."""
    job, _ = find_model(service, request, id)
    own_job(service, request, job.id)
    if service.models.find(body.name) is not None or body.name in service.index.by_id:
        raise HttpProblem(409, f"The name '{body.name}' is taken.", "name-taken")
    source = service.storage.inside(job_folder(job.id)).inside(attempt_folder(job.attempt))
    dataset = shown_name(job.spec.dataset)
    model = service.models.publish(body.name, caller_of(request).name, job.id, source, dataset)
    return JSONResponse(_show(model).model_dump(), 201, {"location": f"{prefix_of(request)}/models/{body.name}"})


@router.get("/models", operation_id="list_models", responses=documented())
def list_models(service: Here) -> ModelList:
    """Every published model with its card."""
    newest_first = sorted(service.models.all(), key=lambda model: -model.record.created_at)
    return ModelList(data=[_show(model) for model in newest_first])


@router.get("/models/{name}", operation_id="get_model", responses=documented(404, 422))
def get_model(service: Here, name: ModelName) -> ModelDocument:
    """One model's card."""
    return _show(_find(service, name))


@router.delete(
    "/models/{name}",
    status_code=204,
    operation_id="unpublish_model",
    response_class=Response,
    responses=documented(404, 422),
)
def delete_model(service: Here, request: Request, name: ModelName) -> Response:
    """Take a published model back; its job is not touched."""
    if not caller_of(request).owns(_find(service, name).record.owner):
        raise HttpProblem(403, "Only the key that published a model, or an admin's, may delete it.", "not-yours")
    service.models.delete(name)
    return Response(status_code=204)


def _find(service: Service, name: str) -> Model:
    model = service.models.find(name)
    if model is None:
        raise HttpProblem(404, f"There is no published model '{name}'; GET /models lists all.", "unknown-model")
    return model


def _show(model: Model) -> ModelDocument:
    record = model.record
    return ModelDocument(
        name=record.name,
        repository=f"rayctsl/{record.name}",
        job=record.job,
        created_at=record.created_at,
        card=model.card.to_json(),
    )
