"""How good a classifier is on a split: the confusion matrix, and an accuracy with its 95 % interval."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import nn

from rayctsl.data.batches import Normalizer, batches_in_order
from rayctsl.data.store import Split

BATCH = 256


@torch.no_grad()
def confusion_matrix(module: nn.Module, split: Split, normalize: Normalizer, num_classes: int) -> np.ndarray:
    """Counts [true class, predicted class]."""
    module.eval()
    counts = np.zeros((num_classes, num_classes), np.int64)
    for images, labels in batches_in_order(split, normalize, BATCH):
        np.add.at(counts, (labels.cpu().numpy(), module(images).argmax(1).cpu().numpy()), 1)
    return counts


def accuracy_interval(correct: int, total: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share, which stays inside 0..1 where the normal one does not.

    Reference: Wilson, "Probable inference, the law of succession, and statistical inference", 1927.
    """
    z = 1.959964
    share = correct / total
    centre = (share + z**2 / (2 * total)) / (1 + z**2 / total)
    half = z / (1 + z**2 / total) * math.sqrt(share * (1 - share) / total + z**2 / (4 * total**2))
    return max(0.0, centre - half), min(1.0, centre + half)
