"""Measurements that take a while even when they are as small as can be: `make test-all`, `make coverage`."""

from __future__ import annotations

import json
import os

import pytest

from rayctsl.commands.bench import main
from tests.bench.test_bench_command import run

pytestmark = pytest.mark.long


def test_data(capsys: pytest.CaptureFixture[str]):
    result = run(capsys, "data", "--batch-size", "8", "--size", "8", "--rounds", "1")
    assert result["ratio"] == pytest.approx(result["images_per_s"] / result["obvious_images_per_s"])
    one, four = (result["mapped_megabytes_by_processes"][count] for count in ("1", "4"))
    assert four < 2 * one, "processes that map one file share it"


@pytest.mark.parametrize("storage", ["local", "s3"])
def test_drivers(capsys: pytest.CaptureFixture[str], storage: str):
    result = run(capsys, "drivers", "--tries", "2", "--storage", storage)
    assert (result["one_wrote_one_refused"], result["whole_and_identical"]) == (2, 2)
    assert result["outcomes"] == ["refused and wrote"]


@pytest.mark.skipif(os.geteuid() != 0, reason="hosts with a link of their own are made by root")
def test_network(capfd: pytest.CaptureFixture[str]):
    assert main(["network", "--faults", "2", "--steps", "300", "--json"]) == 0
    result = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert result["kills"] == {"partition": 1, "slow link": 1}
    assert result["phi_identical"]
