"""Cells: kept by their arguments, computed here or on Ray, and refused in one sentence."""

from __future__ import annotations

import json
import sys

import pytest
from ray import cloudpickle

from rayctsl.cluster.cells import run_cells as run_on_cluster
from rayctsl.config import build_config
from rayctsl.experiments.cells import Cell, run_cells
from rayctsl.experiments.output import Output
from rayctsl.learning.lease import InUse, Lease

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import a test's module


def square(arguments):
    if arguments["number"] < 0:
        raise ValueError("no negative numbers, please")
    return arguments["number"] ** 2


def crash(arguments):
    return 1 / arguments["number"]


def cells(*numbers):
    return [Cell(f"square-{number}", {"number": number}) for number in numbers]


def run(numbers, folder, compute=square, address="none", **options):
    command = options.pop("command", lambda cell: f"do {cell.name}")
    return run_cells(
        cells(*numbers), compute, Output(folder), label="squares", command=command, address=address, **options
    )


def test_finished_cells_are_kept_by_their_arguments(tmp_path):
    assert run([1, 2], tmp_path) == {"square-1": 1, "square-2": 4}
    path = tmp_path / "cells" / "square-2.json"
    record = json.loads(path.read_text())
    assert (record["command"], record["arguments"]) == ("do square-2", {"number": 2})
    path.write_text(json.dumps({**record, "result": 5}))
    assert run([1, 2, 3], tmp_path)["square-2"] == 5, "a finished cell was computed again"
    path.write_text(json.dumps({**record, "result": 5, "arguments": {"number": 9}}))
    assert run([1, 2, 3], tmp_path)["square-2"] == 4, "a cell of other arguments was kept"


def test_a_second_driver_of_an_experiment_is_refused(tmp_path):
    with Lease(Output(tmp_path).storage.inside("lease"), "it", refresh=0.05):
        with pytest.raises(InUse, match=rf"the experiment in {tmp_path} is being written by process"):
            run([1, 2], tmp_path)
        assert run([1, 2], tmp_path, only="square-2") == {"square-2": 4}, "one cell may be computed beside others"
    assert not (tmp_path / "cells" / "square-1.json").exists()


def test_one_cell_alone_is_computed_though_finished(tmp_path):
    run([1, 2], tmp_path)
    path = tmp_path / "cells" / "square-2.json"
    path.write_text(path.read_text().replace('"result": 4', '"result": 5'))
    assert run([1, 2, 3], tmp_path, only="square-2") == {"square-1": 1, "square-2": 4}
    with pytest.raises(ValueError, match="there is no cell 'square-7'; the first is 'square-1'"):
        run([1, 2], tmp_path, only="square-7")


def test_what_is_finished_before_an_error_stays(tmp_path):
    with pytest.raises(ValueError, match="no negative numbers, please"):
        run([2, -1, 3], tmp_path)
    assert [path.stem for path in (tmp_path / "cells").iterdir()] == ["square-2"]


@pytest.mark.ray
def test_on_ray_as_here(tmp_path, ray_cluster):
    assert run([1, 2, 3], tmp_path, square, ray_cluster) == {"square-1": 1, "square-2": 4, "square-3": 9}


@pytest.mark.ray
def test_errors_on_ray(tmp_path, ray_cluster):
    with pytest.raises(ValueError, match=r"^no negative numbers, please$"):
        run([-1, -2], tmp_path, square, ray_cluster)
    with pytest.raises(ZeroDivisionError, match=r"(?s)remote.*crash|crash.*division"):
        run([0, 0.0], tmp_path, crash, ray_cluster)


@pytest.mark.ray
def test_a_cell_that_fits_nowhere_is_refused(ray_cluster):
    with pytest.raises(ValueError, match="needs 1 CPU and 1 GPU on one node; the most GPUs on a node are 0"):
        list(run_on_cluster(square, {"a": ({"number": 1},)}, gpus_per_cell=1))


def test_a_cell_is_kept_wherever_the_data_lie_and_whatever_keys_have_come_since(tmp_path):
    config = build_config({"data": {"tasks": ["digits"], "root": "/here"}}).model_dump(mode="json")

    def run_one(**changes: object) -> dict[str, object]:
        asked = Cell("one", {"config": {**config, **changes}, "root": str(changes), "number": 3})
        return run_cells([asked], square, Output(tmp_path), label="one", command=str, address="none")

    run_one()
    path = tmp_path / "cells" / "one.json"
    record = json.loads(path.read_text())
    del record["arguments"]["config"]["topology"]  # as a file from before this section would be
    path.write_text(json.dumps({**record, "result": "kept"}))
    elsewhere = {"data": {**config["data"], "root": "/there"}}
    assert run_one(**elsewhere) == {"one": "kept"}
    assert run_one(seed=1) == {"one": 9}, "another seed is another cell"
    record["arguments"]["config"]["gone"] = 1
    path.write_text(json.dumps({**record, "result": "kept"}))
    assert run_one() == {"one": 9}
