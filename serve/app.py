"""The application: routes, once plain and once under /v1, errors, and what every request passes."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import anyio.to_thread
from fastapi import FastAPI
from starlette.middleware import Middleware
from starlette.responses import JSONResponse

from rayctsl.contract import JsonObject
from serve import problems
from serve.middleware import BodyLimit, Guard, HeadAsGet, Observe
from serve.routes import (
    comparisons,
    datasets,
    events,
    finetune,
    health,
    hub,
    initializations,
    models,
    page,
    predict,
    removal,
    uploads,
)
from serve.service import Service
from serve.settings import Settings

DESCRIPTION = """Initializations to download and fine-tuning over HTTP.

Every path is also there under `/v1`. Errors are problem+json. Where the operator has set a token or made keys,
everything but the page, this document and the probes wants `Authorization: Bearer …`."""

# Routes compute more than they wait: more threads than this only take turns more often, and each answer comes later.
THREADS = 8


def create_app(settings: Settings) -> FastAPI:
    """Build the service; its database is opened here, its dispatcher starts with the application."""
    service = Service(settings)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
        await service.start()
        try:
            yield
        finally:
            await service.close()

    def limit_of(path: str) -> int | None:
        if path in ("/datasets", "/v1/datasets"):
            return None
        if path.endswith("/predictions"):
            return settings.batch_limit
        return settings.image_limit if path.endswith("/predict") else settings.body_limit

    app = FastAPI(
        title="rayctsl",
        version="1",
        description=DESCRIPTION,
        lifespan=lifespan,
        openapi_url=None,
        redirect_slashes=False,
        middleware=[
            Middleware(Observe, metrics=service.metrics, access=service.access),
            Middleware(Guard, settings=settings, keys=service.keys),
            Middleware(BodyLimit, limit_of=limit_of, seconds=3 * settings.request_seconds),
            Middleware(HeadAsGet),
        ],
    )
    app.state.service = service
    problems.install(app)
    for module in (initializations, finetune, events, predict, datasets, uploads, comparisons, removal, models, health):
        app.include_router(module.router)
        app.include_router(module.router, prefix="/v1", include_in_schema=False)
    app.include_router(page.build_router())
    app.include_router(hub.router)
    _describe(app, service)
    return app


def _describe(app: FastAPI, service: Service) -> None:
    """openapi.json as of now: which datasets are there changes while the service runs."""
    build_document = app.openapi

    def openapi() -> JsonObject:
        document = build_document()
        schemas = document["components"]["schemas"]
        schemas["Problem"] = problems.SCHEMA
        schemas["FinetuneRequest"]["properties"]["dataset"]["enum"] = service.datasets.ready()
        schemas["FinetuneRequest"]["properties"]["steps"]["maximum"] = service.settings.max_steps
        if service.keys.wanted:
            document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            document["security"] = [{"token": []}]
        return document

    # In a thread, as every route that is not async: the data root may be far away.
    @app.get("/openapi.json", include_in_schema=False)
    def document() -> JSONResponse:
        return JSONResponse(openapi())
