"""schemathesis over the OpenAPI document of a real service: no 5xx, no answer that is not documented."""

from __future__ import annotations

import math
import subprocess
from pathlib import Path

import httpx
import pytest

from serve.bench.fuzz import prove
from serve.bench.instance import Instance

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("phases", "examples"),
    [("examples,coverage", 1), pytest.param("examples,coverage,fuzzing,stateful", 50, marks=pytest.mark.long)],
)
def test_every_answer_is_documented(
    waiting_service: Instance, python: str, tmp_path: Path, phases: str, examples: int
) -> None:
    schemathesis = Path(python).parent / "schemathesis"
    command = [schemathesis, "run", f"{waiting_service.url}/openapi.json", "--seed", "1", "--no-color"]
    command += ["--phases", phases, "--max-examples", str(examples)]
    # On a busy machine nothing here is a matter of time.
    command += ["--request-timeout", "60", "--suppress-health-check", "all"]
    # An event stream of a job that waits has no end.
    command += ["--exclude-path", "/finetune/{id}/events"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[:20_000]
    assert httpx.get(f"{waiting_service.url}/readyz", trust_env=False).status_code == 200


@pytest.mark.long
@pytest.mark.ray
def test_no_guest_hurts_the_service(tmp_path: Path) -> None:
    # How long probes take is for the command on a quiet machine; here other lanes have the processor too.
    figures = prove(minutes=1, folder=tmp_path, most_probe_ms=math.inf)
    assert figures["wrong"] == []
