"""CIFAR-style residual networks: the paper's ResNet-20/32/44/56, and ResNet-8 for CPUs.

A 3x3 stem, three stages of n blocks with widths w, 2w, 4w, global average pooling and a linear head: depth 6n + 2.
The shortcuts have no parameters: where the shape changes they take every second pixel and pad channels with zeros.

Reference: He et al., "Deep Residual Learning for Image Recognition", section 4.2.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# In place is safe for ReLU here: batch norm and the residual sum, its two sources, do not need their outputs again.
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": lambda: nn.ReLU(inplace=True),
    "softplus": nn.Softplus,
}


def three_channels(images: Tensor) -> Tensor:
    """Grey images [B, 1, H, W] seen as colour ones without a copy; colour images as they are."""
    channels = images.shape[1]
    if channels == 1:
        return images.expand(-1, 3, -1, -1)
    if channels != 3:
        raise ValueError(f"images must have 1 or 3 channels, not {channels}")
    return images


def shortcut(x: Tensor, stride: int, out_channels: int) -> Tensor:
    """The identity, made to fit: every `stride`-th pixel, zero channels added before and after."""
    missing = out_channels - x.shape[1]
    if stride > 1:
        # Pooling over single pixels picks the same ones as slicing, but its gradient keeps the memory format: the
        # gradient of a slice does not, and every operation that meets both formats is many times slower.
        x = F.avg_pool2d(x, 1, stride)
    return F.pad(x, (0, 0, 0, 0, missing // 2, missing - missing // 2)) if missing else x


def _conv3x3(in_channels: int, out_channels: int, stride: int = 1) -> nn.Conv2d:
    conv = nn.Conv2d(in_channels, out_channels, 3, stride=stride, padding=1, bias=False)
    nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
    return conv


class Block(nn.Module):
    """Two 3x3 convolutions with batch norm, added to the shortcut."""

    def __init__(self, in_channels: int, out_channels: int, stride: int, activation: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.conv1 = _conv3x3(in_channels, out_channels, stride)
        self.norm1 = nn.BatchNorm2d(out_channels)
        self.conv2 = _conv3x3(out_channels, out_channels)
        self.norm2 = nn.BatchNorm2d(out_channels)
        self.activation = activation()
        self.stride, self.out_channels = stride, out_channels

    def forward(self, x: Tensor) -> Tensor:
        out = self.activation(self.norm1(self.conv1(x)))
        out = self.norm2(self.conv2(out))
        out += shortcut(x, self.stride, self.out_channels)
        return self.activation(out)


class CifarResNet(nn.Module):
    """ResNet-(6n + 2) with `blocks_per_stage` = n and first width `width`.

    Example: CifarResNet(blocks_per_stage=3, width=16, num_classes=10) is the ResNet-20 of the paper.
    """

    head_name = "head"
    channels_last = True  # how images and weights are best laid out

    def __init__(self, blocks_per_stage: int, width: int, num_classes: int, activation: str = "relu") -> None:
        super().__init__()
        act = ACTIVATIONS[activation]
        self.stem = nn.Sequential(_conv3x3(3, width), nn.BatchNorm2d(width), act())
        self.stage1 = _stage(blocks_per_stage, width, width, 1, act)
        self.stage2 = _stage(blocks_per_stage, width, 2 * width, 2, act)
        self.stage3 = _stage(blocks_per_stage, 2 * width, 4 * width, 2, act)
        self.head = nn.Linear(4 * width, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        x = three_channels(images)
        # Convolutions this narrow run about a fifth faster with channels last.
        x = x.contiguous(memory_format=torch.channels_last)
        x = self.stem(x)
        x = self.stage3(self.stage2(self.stage1(x)))
        # The mean over pixels, taken so that its gradient, too, comes back with channels last.
        return self.head(x.permute(0, 2, 3, 1).flatten(1, 2).mean(1))


def _stage(
    num_blocks: int, in_channels: int, out_channels: int, stride: int, activation: Callable[[], nn.Module]
) -> nn.Sequential:
    """`num_blocks` blocks of one width; the first changes the shape."""
    first = Block(in_channels, out_channels, stride, activation)
    return nn.Sequential(first, *(Block(out_channels, out_channels, 1, activation) for _ in range(num_blocks - 1)))
