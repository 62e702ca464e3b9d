"""Weights from a file as the start of a model's backbone: a whole network's, or a phi."""

from __future__ import annotations

import io
from pathlib import Path

import torch
from safetensors.torch import load
from torch import Tensor, nn


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read a state dict without running any code that the file may carry."""
    if path.suffix not in (".safetensors", ".pth", ".pt"):
        raise ValueError(f"weights must be 'imagenet' or the path of a .safetensors or .pth file, not '{path}'")
    if not path.is_file():
        raise ValueError(f"weights file '{path}' does not exist")
    content = path.read_bytes()
    try:
        if path.suffix == ".safetensors":
            state = load(content)
        else:
            state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:  # a cut or altered pickle stream fails in any way whatever, so no list would be complete
        raise ValueError(f"weights file '{path}' is damaged or not a state dict of tensors") from error
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise ValueError(f"weights file '{path}' is not a state dict of tensors")
    return state


def load_weights(model: nn.Module, state: dict[str, Tensor], source: str) -> None:
    """Copy every backbone tensor of `state` into `model`; refuse a state dict of another network.

    A file of parameters alone, like phi, leaves the batch-norm statistics as they are.
    """
    head = f"{model.head_name}."
    parameters = {name for name, _ in model.named_parameters()}
    state = {name: tensor for name, tensor in state.items() if not name.startswith(head)}
    # Checkpoints of old torch versions do not count batches; nothing here reads that counter.
    wanted = {
        name: tensor
        for name, tensor in model.state_dict().items()
        if not name.startswith(head) and not name.endswith("num_batches_tracked")
    }
    for name, tensor in wanted.items():
        if name not in state and (name in parameters or not parameters.issuperset(state)):
            raise ValueError(f"{source} cannot be used: it has no '{name}'")
        if name in state and state[name].shape != tensor.shape:
            shape, expected = list(state[name].shape), list(tensor.shape)
            raise ValueError(f"{source} cannot be used: '{name}' has shape {shape}, expected {expected}")
    unknown = sorted(name for name in state if name not in wanted and not name.endswith("num_batches_tracked"))
    if unknown:
        raise ValueError(f"{source} cannot be used: it has '{unknown[0]}', which this network does not know")
    model.load_state_dict({name: state[name] for name in wanted if name in state}, strict=False)
