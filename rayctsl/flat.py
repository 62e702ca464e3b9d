"""A module's parameters and gradients as one contiguous vector each, and update rules on such vectors.

The backbone comes first and the head last, so theta - phi, a shift and an optimizer step are single operations on
slices. What travels between processes, and what a snapshot holds, is always one of these vectors.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from rayctsl.config import OptimizerConfig

NORM_LAYERS = (nn.modules.batchnorm._BatchNorm, nn.GroupNorm, nn.LayerNorm)


class FlatModule:
    """Moves a module's parameters into one vector; the module goes on working on views of it.

    `vector` and `grad` hold everything, `backbone` / `head` and `backbone_grad` / `head_grad` their two parts. With
    `own_norm` the scales and shifts of norm layers count as head: a task's own, as in FedBN (Li et al., 2021).
    """

    def __init__(
        self,
        module: nn.Module,
        head_name: str | None = None,
        channels_last: bool = False,
        own_norm: bool = False,
    ):
        self.module = module
        prefix = f"{head_name}." if head_name else None
        named = dict(module.named_parameters())
        in_head = {name for name in named if prefix and (name.startswith(prefix) or name == head_name)}
        if head_name and not in_head:
            raise ValueError(f"the model has no parameters under the head name {head_name!r}")
        if own_norm:
            in_head |= norm_parameters(module)
        self.names = [name for name in named if name not in in_head] + [name for name in named if name in in_head]
        self.parameters = [named[name] for name in self.names]
        self.num_backbone = len(named) - len(in_head)
        sizes = [parameter.numel() for parameter in self.parameters]
        first = self.parameters[0]
        self.vector = torch.empty(sum(sizes), dtype=first.dtype, device=first.device)
        self.grad = torch.zeros_like(self.vector)
        self.size = sum(sizes[: self.num_backbone])
        offset = 0
        for parameter, size in zip(self.parameters, sizes, strict=True):
            view = _shape_like(self.vector[offset : offset + size], parameter, channels_last)
            view.copy_(parameter.detach())
            parameter.data = view
            # Backward adds into an existing .grad in place, so gradients gather here by themselves.
            parameter.grad = _shape_like(self.grad[offset : offset + size], parameter, channels_last)
            offset += size
        self.backbone, self.head = self.vector[: self.size], self.vector[self.size :]
        self.backbone_grad, self.head_grad = self.grad[: self.size], self.grad[self.size :]
        self._channels_last = channels_last
        self._frozen: bool | None = None  # a module may come with frozen parameters of its own

    @property
    def backbone_parameters(self) -> list[nn.Parameter]:
        return self.parameters[: self.num_backbone]

    def freeze_backbone(self, frozen: bool) -> None:
        """Leave the backbone out of the next backward pass."""
        if frozen != self._frozen:
            for parameter in self.backbone_parameters:
                parameter.requires_grad_(not frozen)
            self._frozen = frozen

    def buffers(self) -> dict[str, Tensor]:
        """Batch-norm statistics by name: part of neither theta nor phi."""
        return dict(self.module.named_buffers())

    def name_backbone(self, vector: Tensor) -> dict[str, Tensor]:
        """A backbone-sized vector as copies under state-dict names."""
        named, offset = {}, 0
        for name, parameter in zip(self.names, self.backbone_parameters, strict=False):
            piece = vector[offset : offset + parameter.numel()]
            named[name] = _shape_like(piece, parameter, self._channels_last).contiguous().clone()
            offset += parameter.numel()
        return named

    def channels_last_order(self) -> Tensor:
        """Where in a backbone of contiguous parameters each number of `backbone` is found."""
        orders, offset = [], 0
        for parameter in self.backbone_parameters:
            places = torch.arange(offset, offset + parameter.numel()).view(parameter.shape)
            last = self._channels_last and parameter.ndim == 4
            orders.append((places.permute(0, 2, 3, 1) if last else places).reshape(-1))
            offset += parameter.numel()
        return torch.cat(orders)

    def flatten_backbone(self, named: Mapping[str, Tensor]) -> Tensor:
        """The inverse of `name_backbone`; refuses other names or shapes."""
        names = self.names[: self.num_backbone]
        if set(named) != set(names):
            different = sorted(set(named) ^ set(names))
            raise ValueError(f"these weights belong to another model: {different[0]!r} is in one and not the other")
        vector, offset = torch.empty_like(self.backbone), 0
        for name, parameter in zip(names, self.backbone_parameters, strict=True):
            if named[name].shape != parameter.shape:
                shapes = f"{tuple(named[name].shape)}, the model has {tuple(parameter.shape)}"
                raise ValueError(f"these weights belong to another model: {name!r} has shape {shapes}")
            view = _shape_like(vector[offset : offset + parameter.numel()], parameter, self._channels_last)
            view.copy_(named[name])
            offset += parameter.numel()
        return vector


def load_backbone(module: nn.Module, phi: Mapping[str, Tensor], head_name: str | None) -> None:
    """Copy phi into a module's backbone, refusing weights of another model; a phi without norm layers leaves them."""
    flat = FlatModule(module, head_name, own_norm=norm_parameters(module).isdisjoint(phi))
    flat.backbone.copy_(flat.flatten_backbone(phi))
    module.zero_grad(set_to_none=True)


def norm_parameters(module: nn.Module) -> set[str]:
    """The names of the scales and shifts of a module's norm layers."""
    layers = {name: layer for name, layer in module.named_modules() if isinstance(layer, NORM_LAYERS)}
    return {f"{name}.{part}" for name, layer in layers.items() for part, _ in layer.named_parameters(recurse=False)}


def _shape_like(piece: Tensor, parameter: Tensor, channels_last: bool) -> Tensor:
    if channels_last and parameter.ndim == 4:
        out, into, height, width = parameter.shape
        return piece.view(out, height, width, into).permute(0, 3, 1, 2)
    return piece.view(parameter.shape)


class Sgd:
    """d = g + weight_decay * theta, with heavy-ball or Nesterov momentum when asked for.

    `direction` returns the vector that a step size multiplies: theta <- theta - alpha * direction. Products and sums
    are operations of their own: whether a fused one rounds once or twice depends on the processor.
    """

    def __init__(self, config: OptimizerConfig, like: Tensor):
        self.momentum = config.momentum if config.optimizer in ("momentum", "nesterov") else 0.0
        self.nesterov = config.optimizer == "nesterov"
        self.weight_decay = config.weight_decay
        self.state: dict[str, Tensor] = {"momentum": torch.zeros_like(like)} if self.momentum else {}

    def direction(self, theta: Tensor, grad: Tensor, part: slice = slice(None)) -> Tensor:
        """The step's direction for theta and grad, which are the `part` of the vector that this rule was made for."""
        if self.weight_decay:
            grad = theta.mul(self.weight_decay).add_(grad)
        if not self.momentum:
            return grad
        velocity = self.state["momentum"][part].mul_(self.momentum).add_(grad)
        return velocity.mul(self.momentum).add_(grad) if self.nesterov else velocity

    def reset(self) -> None:
        for value in self.state.values():
            value.zero_()


class Adam(Sgd):
    """Adam with bias correction; weight decay is added to the gradient, as in `Sgd`."""

    def __init__(self, config: OptimizerConfig, like: Tensor):
        super().__init__(config, like)
        self.first, self.second = config.adam_betas
        self.epsilon = config.adam_epsilon
        count = torch.zeros(1, dtype=torch.float64, device=like.device)
        self.state = {"mean": torch.zeros_like(like), "square": torch.zeros_like(like), "count": count}

    def direction(self, theta: Tensor, grad: Tensor, part: slice = slice(None)) -> Tensor:
        if self.weight_decay:
            grad = theta.mul(self.weight_decay).add_(grad)
        count = self.state["count"].add_(1)[0]  # stays on the device: nobody waits for it
        mean = self.state["mean"][part].mul_(self.first).add_(grad.mul(1 - self.first))
        square = self.state["square"][part].mul_(self.second).add_(grad.square().mul_(1 - self.second))
        scale = (square / (1 - self.second**count)).sqrt_().add_(self.epsilon)
        return (mean / (1 - self.first**count)).div_(scale)


OPTIMIZERS: dict[str, type[Sgd]] = {"sgd": Sgd, "momentum": Sgd, "nesterov": Sgd, "adam": Adam}


def build_optimizer(config: OptimizerConfig, like: Tensor) -> Sgd:
    """The update rule of `config` for a vector like `like`."""
    return OPTIMIZERS[config.optimizer](config, like)


def copy_state(target: Mapping[str, Tensor], source: Mapping[str, Tensor]) -> None:
    """Copy tensors by name into existing ones; the names and shapes must be the same."""
    if set(target) != set(source):
        raise ValueError(f"saved state does not fit: {sorted(set(target) ^ set(source))[0]!r} is on one side only")
    for name, value in target.items():
        if value.shape != source[name].shape:
            raise ValueError(f"saved state does not fit: {name!r} is {source[name].shape}, expected {value.shape}")
        value.copy_(source[name])
