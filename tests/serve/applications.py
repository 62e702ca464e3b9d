"""The service's application in this process, without a server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fastapi import FastAPI

from serve.app import create_app
from serve.settings import Settings


@contextmanager
def opened(settings: Settings) -> Iterator[FastAPI]:
    """Closes its files at the end."""
    application = create_app(settings)
    yield application
    application.state.service.store.close()
    application.state.service.access.close()
