"""The command `python -m rayctsl.experiments`: what it writes, and how it refuses."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from rayctsl.commands.experiments import main
from rayctsl.commands.experiments.synthetic import FIGURE_NAMES
from rayctsl.config import load_config
from rayctsl.experiments.synthetic.run import meta_train, synthetic_config
from rayctsl.experiments.synthetic.surfaces import Environment

RUN = ["synthetic", "run", "--method", "shifting", "--start", "-5", "5"]


def test_run_as_a_process_writes_the_contract(tmp_path: Path) -> None:
    out = tmp_path / "new" / "result.json"
    command = [sys.executable, "-m", "rayctsl.experiments", *RUN, "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    result = json.loads(out.read_text())
    assert set(result) == {"trajectory", "inner_steps", "loss_after"}
    assert result["trajectory"][0] == [-5.0, 5.0]
    assert len(result["trajectory"]) == 301
    assert result["inner_steps"] == 2400
    expected = meta_train(Environment.draw(0), [(-5, 5)], synthetic_config())
    np.testing.assert_allclose(result["trajectory"], expected.trajectory[:, 0], rtol=0, atol=1e-12)
    assert result["loss_after"] == pytest.approx(expected.loss_after[0])


def test_help_needs_nothing_heavy() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "rayctsl.experiments", "error", "--help"], capture_output=True, text=True
    )
    assert done.returncode == 0
    assert "--draws" in done.stdout
    heavy = "bool({'torch', 'ray', 'matplotlib', 'numpy'} & set(sys.modules))"
    probe = f"import sys, rayctsl.commands.experiments as m; m.parser(); sys.exit({heavy})"
    assert subprocess.run([sys.executable, "-c", probe]).returncode == 0


def test_flags_reach_the_run(tmp_path: Path) -> None:
    environment = Environment.draw(5)
    np.savez(
        tmp_path / "env.npz", angles=environment.angles[:, None], targets=environment.targets, coeff=environment.coeff
    )
    flags = ["--env", str(tmp_path / "env.npz"), "--alpha", "0.02", "--beta", "0.3", "--inner-steps", "7"]
    flags += ["--trajectories", "2", "--optimizer", "adam", "--out", str(tmp_path / "r.json")]
    assert main(["synthetic", "run", "--method", "reptile", "--start", "-1e0", "-.5", *flags]) == 0
    result = json.loads((tmp_path / "r.json").read_text())
    config = synthetic_config("reptile", alpha=0.02, beta=0.3, inner_steps=7, trajectories=2, optimizer="adam")
    expected = meta_train(environment, [(-1, -0.5)], config)
    assert result["trajectory"] == expected.trajectory[:, 0].tolist()
    assert result["inner_steps"] == 8 * 7 * 14
    assert result["loss_after"] == expected.loss_after[0]


def _bad_files(folder: Path) -> dict[str, list[str]]:
    (folder / "text.npz").write_text("not an archive")
    (folder / "empty.npz").write_bytes(b"")
    (folder / "cut.npz").write_bytes(b"PK\x03\x04 cut off")
    np.save(folder / "array.npz.npy", np.zeros(3))
    np.savez(folder / "lacks.npz", angles=np.zeros(8))
    np.savez(folder / "shape.npz", angles=np.zeros(8), targets=np.zeros((7, 2)), coeff=np.zeros(4))
    np.savez(folder / "nan.npz", angles=np.full(8, np.nan), targets=np.zeros((8, 2)), coeff=np.zeros(4))
    np.savez(folder / "words.npz", angles=np.array(["a"]), targets=np.zeros((1, 2)), coeff=np.zeros(4))
    names = ["text.npz", "empty.npz", "cut.npz", "array.npz.npy", "lacks.npz", "shape.npz", "nan.npz", "words.npz"]
    return {name: ["--env", str(folder / name)] for name in names}


def test_bad_environments_are_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cases = {
        **_bad_files(tmp_path),
        "missing": ["--env", str(tmp_path / "nowhere.npz")],
        "folder": ["--env", str(tmp_path)],
    }
    for name, flags in cases.items():
        assert main([*RUN, *flags, "--out", str(tmp_path / "r.json")]) == 2, name
        message = capsys.readouterr().err
        assert message.count("\n") == 1, message
        assert "Traceback" not in message
    assert not (tmp_path / "r.json").exists()


@pytest.mark.parametrize(
    "flags",
    [
        ["--method", "shiftin"],
        ["--inner-steps", "0"],
        ["--trajectories", "0"],
        ["--alpha", "-1"],
        ["--beta", "nan"],
        ["--seed", "-1"],
        ["--start", "nan", "0"],
        ["--start", "inf", "0"],
    ],
    ids=" ".join,
)
def test_bad_values_are_refused_in_one_line(
    flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*RUN, *flags, "--out", str(tmp_path / "r.json")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [[], ["synthetic"], [*RUN], [*RUN, "--out", "r.json", "--optimizer", "lion"], ["synthetic", "run", "--start", "1"]],
)
def test_bad_command_lines_are_refused_in_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_out_that_is_a_folder_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*RUN, "--out", str(tmp_path)]) == 2
    assert "folder" in capsys.readouterr().err


def test_divergence_is_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*RUN, "--alpha", "50", "--out", str(tmp_path / "r.json")]) == 2
    message = capsys.readouterr().err
    assert "diverged" in message
    assert "smaller --alpha" in message
    assert message.count("\n") == 1


def test_figures_are_kept_and_belong_to_one_environment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["synthetic", "figures", "--out", str(tmp_path), "--only", "shifting"]
    assert main(command) == 0
    first = (tmp_path / "shifting.png").stat().st_mtime_ns
    assert {"shifting.png", "shifting.parquet", "environment.npz"} <= {p.name for p in tmp_path.iterdir()}
    assert main(command) == 0
    assert "shifting: kept" in capsys.readouterr().err
    assert (tmp_path / "shifting.png").stat().st_mtime_ns == first
    assert main([*command, "--seed", "1"]) == 2
    assert "another environment" in capsys.readouterr().err
    assert main([*command, "--seed", "1", "--force"]) == 0
    assert (tmp_path / "shifting.png").stat().st_mtime_ns > first


def test_figure_names_of_the_command_are_all_there_is() -> None:
    from rayctsl.experiments.synthetic.figures import FIGURES

    assert tuple(FIGURES) == FIGURE_NAMES


def test_ctrl_c_stops_cleanly_and_keeps_what_is_finished(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rayctsl.experiments", "synthetic", "figures", "--out", str(tmp_path)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert "surfaces" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, message = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "stopped" in message
    assert "Traceback" not in message
    assert (tmp_path / "surfaces.png").exists()


@pytest.mark.ray
def test_sigterm_stops_cells_on_ray_cleanly(one_cpu: str, tmp_path: Path) -> None:
    small = ["--small", "--batch-size", "8", "--lengths", "2", "--length", "2", "--dataset", "latin"]
    flags = [*small, "--address", one_cpu, "--out", str(tmp_path)]
    command = [sys.executable, "-m", "rayctsl.experiments", "error", *flags]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    while not list(tmp_path.glob("cells/*.json")):
        assert process.poll() is None
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    _, message = process.communicate(timeout=240)
    assert process.returncode == 143
    assert message.rstrip().endswith("stopped; the same command goes on with what is missing")
    assert "SIGTERM received" not in message
    assert "Traceback" not in message


@pytest.mark.parametrize("method", ["shifting", "accurate", "reptile"])
def test_the_paper_configs_are_the_defaults(method: str, tmp_path: Path) -> None:
    config = Path(__file__).parent.parent.parent / "configs" / "paper" / "synthetic" / f"{method}.yaml"
    assert load_config(config).model_dump() == synthetic_config(method).model_dump()
    if method != "shifting":
        return
    for flags in (["--config", str(config)], ["--method", method]):
        assert main(["synthetic", "run", "--start", "-5", "5", *flags, "--out", str(tmp_path / flags[0])]) == 0
    assert (tmp_path / "--config").read_text() == (tmp_path / "--method").read_text()


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ([], "name a --method"),
        (["--config", "F.yaml", "--inner-steps", "3"], "leave out --inner-steps"),
        (["--config", "none.yaml"], "there is no config file none.yaml"),
    ],
)
def test_a_config_takes_the_place_of_flags(flags: list[str], sentence: str, tmp_path: Path, capsys) -> None:
    assert main(["synthetic", "run", "--start", "1", "1", *flags, "--out", str(tmp_path / "r.json")]) == 2
    assert sentence in capsys.readouterr().err
