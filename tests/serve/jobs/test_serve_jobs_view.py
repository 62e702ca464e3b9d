"""A job's document: whose curve is whose."""

from __future__ import annotations

from pathlib import Path

import pytest

from rayctsl.config import FinetuneConfig
from rayctsl.jobs.contracts import JobSpec, Source
from rayctsl.jobs.files import EventLog, job_folder
from rayctsl.storage import Storage
from serve.jobs.rows import JobRow
from serve.jobs.view import show_job


@pytest.mark.parametrize("compared", [True, False])
def test_each_run_has_a_curve_of_its_own(compared: bool, tmp_path: Path) -> None:
    spec = JobSpec(
        dataset="stripes",
        data_root="/data",
        initialization=Source(id="y", sha256="", path="/y"),
        seed=0,
        compare_with_scratch=compared,
        config=FinetuneConfig(steps=10, seeds=1),
    )
    job = JobRow(1, "ft-1", "running", "", None, spec, 0.0, 0.0, None, 1, 0, "w", 10, None, None)
    log = EventLog(Storage(tmp_path).inside(job_folder(job.id)), 1)
    for run, accuracy in (("initialization", 0.5), ("scratch", 0.25)):
        for step in (5, 10):
            log.reach(run, step, 1.0, accuracy)
    curves = show_job(job, Storage(tmp_path)).metrics
    assert curves is not None
    assert [(point.step, point.accuracy) for point in curves.initialization] == [(5, 0.5), (10, 0.5)]
    scratch = curves.scratch and [(point.step, point.accuracy) for point in curves.scratch]
    assert scratch == ([(5, 0.25), (10, 0.25)] if compared else None)
