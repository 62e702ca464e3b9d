"""torchvision imports beside any torch build, once and for the whole process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def run_clean(code: str) -> str:
    """Run `code` in a new interpreter with warnings as errors; its standard output."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_imports_when_it_is_needed_twice_and_from_many_threads():
    out = run_clean(
        "from concurrent.futures import ThreadPoolExecutor\n"
        "import gc, sys\n"
        "from rayctsl.config import ModelConfig\n"
        "from rayctsl.models import build_model\n"
        "from rayctsl.torchvision_import import import_torchvision\n"
        "build_model(ModelConfig(name='resnet8', width=4), 5)\n"
        "assert 'torchvision' not in sys.modules\n"
        "with ThreadPoolExecutor(4) as pool:\n"
        "    found = {id(module) for module in pool.map(lambda _: import_torchvision(), range(8))}\n"
        "gc.collect()\n"
        "import torch, torchvision\n"
        "assert found == {id(torchvision)}, found\n"
        "print(torch.ops.torchvision.nms.default._schema)\n"
        "print(torch.ops.torchvision.qnms.default._schema)\n"
        "print(torchvision.models.resnet18(weights=None)(torch.zeros(2, 3, 32, 32)).shape)\n"
    )
    assert "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor" in out
    assert "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor" in out
    assert "torch.Size([2, 1000])" in out


def test_recovers_after_somebody_elses_import_has_failed():
    run_clean(
        "import contextlib\n"
        "with contextlib.suppress(RuntimeError):\n"
        "    import torchvision\n"
        "from rayctsl.torchvision_import import import_torchvision\n"
        "assert import_torchvision().models.resnet18\n"
    )


FAILURES = ("RuntimeError('operator torchvision::roi_align does not exist')", "ImportError('libfoo.so is missing')")


def test_any_other_failure_is_not_hidden(tmp_path: Path):
    (tmp_path / "torchvision.py").write_text("import builtins\nraise builtins.failure\n")
    run_clean(
        f"import builtins, sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from rayctsl.torchvision_import import import_torchvision\n"
        "import torch\n"
        f"for failure in ({', '.join(FAILURES)}):\n"
        "    builtins.failure = failure\n"
        "    try:\n"
        "        import_torchvision()\n"
        "    except type(failure) as error:\n"
        "        assert error is failure, error\n"
        "    else:\n"
        "        raise SystemExit('nothing was raised')\n"
        "    assert not hasattr(torch.ops.torchvision, 'nms')\n"
    )
