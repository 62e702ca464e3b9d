"""Memory that stays, bf16 only where it is real, and compiled models that compute the same."""

from __future__ import annotations

import subprocess
import sys
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from rayctsl.config import build_config
from rayctsl.learning.engine import LocalEngine
from rayctsl.learning.problem import Problem
from rayctsl.learning.processor import advertises_bf16, keep_freed_memory, probe_fails, why_not_bf16
from rayctsl.learning.task_learner import InnerLearner

FAULTS = """
import resource, torch
from rayctsl.learning.processor import keep_freed_memory
torch.set_num_threads(1)
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(3):
        torch.ones(2**24)  # 64 MB: the C library maps and unmaps such blocks by default
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
plain = faults()
assert keep_freed_memory()
print(plain, min(faults() for _ in range(8)))  # it takes some rounds until what is freed lies as it is asked for
"""


class LineTask:
    """A small regression, fast to compile."""

    name = "line"

    def build_module(self) -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))

    def head_name(self, module: nn.Module) -> str | None:
        return "2"

    def loss(self, module: nn.Module, index: int, *, held_out: bool = False) -> Tensor:
        generator = torch.Generator().manual_seed(index)
        points = torch.randn(16, 4, generator=generator)
        return (module(points) - points.sum(1, keepdim=True)).square().mean()


@pytest.mark.skipif(not keep_freed_memory(), reason="this C library cannot be told")
def test_kept_memory_spares_the_kernel():
    said = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True).stdout
    plain, kept = map(int, said.split())
    assert kept < plain / 20


def test_what_a_processor_advertises():
    assert advertises_bf16("processor\t: 0\nflags\t\t: fpu avx512_bf16 amx_bf16\n")
    assert advertises_bf16("Features\t: fp asimd bf16\n")
    assert not advertises_bf16("model name\t: bf16 special\nflags\t\t: fpu avx2\n")
    assert not advertises_bf16("")


def test_a_probe_that_dies_is_survived_and_named():
    reason = probe_fails("import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    assert reason is not None
    assert "SIGILL" in reason
    assert "exit code 3" in (probe_fails("raise SystemExit(3)") or "")
    assert probe_fails("pass") is None


def test_bf16_is_used_or_its_absence_explained():
    config = build_config({"precision": "bf16", "data": {"tasks": ["line"]}})
    engine = LocalEngine(Problem.of(config, tasks={"line": LineTask()}))
    engine.run(0, 2)
    reason = why_not_bf16("cpu")
    assert ("bf16" in engine.describe()) == (reason is not None)
    assert engine.describe().count(reason or "in this process") == 1


def test_bf16_autocasts_the_forward_pass_alone():
    learner = InnerLearner(LineTask(), build_config({}))
    exact = learner.compute_gradient(0), learner.theta_grad.clone()
    learner._bf16 = True  # what this processor may not have in hardware, torch still computes
    rounded = learner.compute_gradient(0), learner.theta_grad.clone()
    assert rounded[0] != exact[0]
    assert rounded[0].item() == pytest.approx(exact[0].item(), rel=0.05)
    torch.testing.assert_close(rounded[1], exact[1], rtol=0.1, atol=0.05)
    assert rounded[1].dtype == torch.float32


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.long)])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler imports what torch deprecates
def test_compiled_models_learn_the_same_and_compile_once(backend, monkeypatch):
    """Traced as ever; `aot_eager` leaves out the C++ compiler, which takes most of the time."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    plain, compiled, again = (
        InnerLearner(LineTask(), build_config({"compile": choice})) for choice in (False, True, True)
    )
    for index in range(5):
        losses = []
        for learner in (plain, compiled, again):
            losses.append(learner.compute_gradient(index).item())
            learner.apply_gradient()
        assert losses[1] == pytest.approx(losses[0], rel=1e-4)
        assert losses[2] == losses[1]
    torch.testing.assert_close(compiled.theta, plain.theta, rtol=1e-4, atol=1e-5)
    assert torch.equal(again.theta, compiled.theta)
    assert set(compiled.state()) == set(plain.state()), "a snapshot fits both"
