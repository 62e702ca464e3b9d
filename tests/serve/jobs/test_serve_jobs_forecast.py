"""How long a job will take, by what similar ones took."""

from __future__ import annotations

import pytest

from serve.jobs.forecast import Forecast


def test_the_prediction_is_by_images_trained_on_jobs_like_it(stage):
    service = stage()
    forecast = Forecast(service.store)
    asked = service.job(service.add(steps=40, batch_size=16)).spec
    assert forecast.seconds(asked) is None, "nothing has ended yet"
    for seconds in (1.0, 2.0, 30.0):  # the median counts: one slow job does not make all slow
        job = service.add(steps=10, batch_size=16)
        row = service.job(job)
        service.store.change(row, status="starting", attempt=1, started_at=100.0)
        service.store.change(service.job(job), status="succeeded", finished_at=100.0 + seconds)
    for _ in range(4):  # what was interrupted waited for a worker too
        job = service.add(steps=10, batch_size=16)
        service.store.change(service.job(job), status="starting", attempt=2, started_at=100.0)
        service.store.change(service.job(job), status="succeeded", finished_at=500.0)
    forecast._looked = float("-inf")
    assert forecast.seconds(asked) == pytest.approx(8.0)
    twice = asked.model_copy(update={"compare_with_scratch": True})
    assert forecast.seconds(twice) == pytest.approx(16.0)
    assert forecast.seconds(asked.model_copy(update={"dataset": "other"})) is None
