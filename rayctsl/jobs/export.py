"""A fine-tuned model as a program that needs no rayctsl: torch.export's `.pt2`, or ONNX.

Both take float images [batch, channels, height, width] in 0..1, do the normalization themselves and return logits; the
class names travel with the file. What was written is read back and must agree with the model on random images.
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from rayctsl.jobs.model import Finetuned

TOLERANCE = 1e-5
BATCHES = (1, 3, 8)
CLASSES = "classes.json"
SUFFIX = {"torch": ".pt2", "onnx": ".onnx"}


class Program(nn.Module):
    """The module with its normalization in front. Example: Program(finetuned)(torch.rand(1, 3, 32, 32)).argmax(1)"""

    mean: Tensor
    std: Tensor

    def __init__(self, finetuned: Finetuned):
        super().__init__()
        self.module = finetuned.module
        shape = (1, -1, 1, 1)
        self.register_buffer("mean", torch.tensor(finetuned.facts.mean).reshape(shape))
        self.register_buffer("std", torch.tensor(finetuned.facts.std).reshape(shape))

    def forward(self, images: Tensor) -> Tensor:
        return self.module((255.0 * images - self.mean) / self.std)


def export_model(finetuned: Finetuned, kind: str, target: Path) -> float:
    """Write the program and return the largest difference of a logit to the model's; ValueError past 1e-5."""
    program = Program(finetuned).eval()
    height, width, channels = finetuned.facts.shape
    example = torch.rand(2, channels, height, width)
    run = WRITERS[kind](program, example, target, finetuned.facts.class_names)
    difference = 0.0
    generator = torch.Generator().manual_seed(0)
    for batch in BATCHES:
        images = torch.rand(batch, channels, height, width, generator=generator)
        with torch.no_grad():
            expected = program(images)
        # Logits may be large numbers: the error counts against their size from 1 on.
        difference = max(difference, float(((run(images) - expected).abs() / expected.abs().clamp(min=1)).max()))
    if not difference <= TOLERANCE:
        target.unlink()
        raise ValueError(f"the exported program differs from the model by {difference:.1e}, more than {TOLERANCE:g}")
    return difference


def _write_torch(
    program: Program, example: Tensor, target: Path, classes: tuple[str, ...]
) -> Callable[[Tensor], Tensor]:
    shapes = {"images": {0: torch.export.Dim("batch", min=1)}}
    with torch.no_grad():
        exported = torch.export.export(program, (example,), dynamic_shapes=shapes)
    torch.export.save(exported, target, extra_files={CLASSES: json.dumps(classes)})
    loaded = torch.export.load(target).module()
    return lambda images: loaded(images).detach()


def _write_onnx(
    program: Program, example: Tensor, target: Path, classes: tuple[str, ...]
) -> Callable[[Tensor], Tensor]:
    try:
        import onnx
        import onnxruntime
        import onnxscript  # noqa: F401
    except ModuleNotFoundError:
        raise ValueError("ONNX needs three more libraries: pip install 'rayctsl[onnx]'") from None
    shapes = {"images": {0: torch.export.Dim("batch", min=1)}}
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # the exporter warns of its own dependencies
        made = torch.onnx.export(
            program,
            (example,),
            dynamo=True,
            dynamic_shapes=shapes,
            input_names=["images"],
            output_names=["logits"],
            verbose=False,
        )
    assert made is not None
    document = made.model_proto
    document.metadata_props.append(onnx.StringStringEntryProto(key="classes", value=json.dumps(classes)))
    onnx.save(document, str(target))
    session = onnxruntime.InferenceSession(str(target), providers=["CPUExecutionProvider"])
    return lambda images: torch.from_numpy(session.run(None, {"images": images.numpy()})[0])


WRITERS: dict[str, Callable[[Program, Tensor, Path, tuple[str, ...]], Callable[[Tensor], Tensor]]] = {
    "torch": _write_torch,
    "onnx": _write_onnx,
}
