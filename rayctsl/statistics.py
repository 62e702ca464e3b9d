"""The one statistic of every table: a mean with its 95 % confidence interval."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def mean_and_interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean and half width of the 95 % interval by Student's t; the width of a single value is NaN."""
    from scipy.special import stdtrit  # the same number as scipy.stats, whose import takes three times as long

    data = np.asarray(values, float)
    if len(data) < 2:
        return float(data.mean()), float("nan")
    half = stdtrit(len(data) - 1, 0.975) * data.std(ddof=1) / np.sqrt(len(data))
    return float(data.mean()), float(half)
