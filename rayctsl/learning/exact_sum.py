"""Sums that do not depend on who adds up what, or in which order.

Floating-point addition is not associative, so a sum of contributions would depend on the packing, the number of
learners, the nodes and the transport. Additions of integers are exact as long as they stay below 2^53 in float64, and
exact additions are associative. So every contribution is rounded to multiples of a grid's unit 2^-q, and what is added
up, sent and stored are the multiples:

    entries beyond the limit 2^p count as diverged, so a multiple is at most 2^(p + q) in size;
    any partial sum over at most T tasks is then at most T 2^(p + q) <= 2^52 for q = 52 - p - ceil(log2 T).

Scaling by 2^q is exact, rounding to an integer is one correctly rounded operation, and a float32 has only 24 bits, so
both can come before the conversion to float64. A contribution moves by at most 2^-(q + 1): with p = 10 and 8 tasks by
2^-40, about 10^-12, and phi by beta times that, which is far below the last bit of a float32 phi of size 0.01.

A contribution in float64 has more bits than one multiple holds, and a method with very large entries has a coarse grid.
Such contributions are split in two: the multiple of 2^-q, and what rounding left over, at most half a unit, as a
multiple of 2^-r units with T 2^(r - 1) <= 2^52. Both are added up alike.

The grid is a function of the config alone. NaN and infinity never reach a sum: they fail the comparison with the limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from rayctsl.config import Config
from rayctsl.methods import Method

EXACT_BITS = 52  # one less than float64 has, so that not even a sum at the limit comes near the edge
SQUARE_BITS = 30  # squared lengths are rounded to multiples of 2^-30, about 10^-9
COARSE_BITS = 26  # a unit of more than 2^-26, about 10^-8, is too coarse for small contributions
BLOCK = 2**17  # entries


def blocks(vector: Tensor) -> Iterator[slice]:
    """Stretches that stay in a processor's cache from one operation to the next; on an accelerator all of it."""
    step = BLOCK if vector.is_cpu else max(1, len(vector))
    return (slice(start, min(start + step, len(vector))) for start in range(0, len(vector), step))


@dataclass(frozen=True)
class Grid:
    """Where contributions are rounded to: multiples of 2^-q, for entries smaller than 2^p.

    A total is [multiples, (what is left, where contributions are split), squared lengths, number of tasks], all in
    float64.
    Example: Grid(limit_bits=10, unit_bits=39, rest_bits=49), for 8 tasks
    """

    limit_bits: int  # p
    unit_bits: int  # q
    rest_bits: int  # r

    @classmethod
    def of(cls, config: Config, method: Method) -> Grid:
        """The grid of a config: as fine as its tasks and the method's largest entries allow."""
        limit_bits, task_bits = method.limit_bits(config.inner_steps), (len(config.data.tasks) - 1).bit_length()
        return cls(limit_bits, EXACT_BITS - limit_bits - task_bits, EXACT_BITS - task_bits)

    def no_tasks(self, phi: Tensor) -> Tensor:
        """The total of no tasks."""
        return phi.new_zeros(len(phi) * (2 if self._splits(phi) else 1) + 2, dtype=torch.float64)

    def _splits(self, vector: Tensor) -> bool:
        return vector.dtype == torch.float64 or self.unit_bits < COARSE_BITS

    def add(self, total: Tensor, contribution: Tensor, alive: Tensor | bool = True) -> Tensor:
        """Add a living task's contribution to a total if it fits; whether it was added, as a value on the device."""
        length = torch.linalg.vector_norm(contribution)
        fits = self._fits(contribution, length) & alive
        if not fits.is_cpu:  # what would make the host wait is masked there, and costs a pass
            contribution, length = contribution.masked_fill(~fits, 0.0), length.masked_fill(~fits, 0.0)
        elif not fits:
            return fits
        sums, rests = total[: len(contribution)], total[len(contribution) : -2]
        for part in blocks(contribution):
            scaled = contribution[part].mul(2.0**self.unit_bits)
            if len(rests):
                multiples = scaled.round()
                rests[part].add_(scaled.sub_(multiples).mul_(2.0**self.rest_bits).round_())
            else:
                multiples = scaled.round_()
            sums[part].add_(multiples)
        # A length beyond what adds up exactly counts as the largest that does.
        square = length.double().square_().mul_(2.0**SQUARE_BITS).round_()
        total[-2].add_(square.clamp_(max=2.0**self.rest_bits))
        total[-1].add_(fits)
        return fits

    def _fits(self, contribution: Tensor, length: Tensor) -> Tensor:
        """Whether every entry is below the limit; NaN is not."""
        limit = 2.0**self.limit_bits
        if length.is_cpu and length < limit / 2:  # no entry is larger than all together, whatever rounding did
            return torch.ones((), dtype=torch.bool)
        low, high = torch.aminmax(contribution)
        return (low > -limit) & (high < limit)

    def mean_square(self, total: Tensor) -> Tensor:
        """The mean squared length of the tasks' contributions."""
        return total[-2].div(total[-1]).mul_(2.0**-SQUARE_BITS)

    def mean(self, total: Tensor, phi: Tensor) -> Tensor:
        """The mean contribution of the tasks in a total, like phi."""
        sums, rests, mean = total[: len(phi)], total[len(phi) : -2], torch.empty_like(phi)
        share = torch.full_like(total[-1], 2.0**-self.unit_bits).div_(total[-1].clamp(min=1))
        for part in blocks(phi):
            whole = rests[part].mul(2.0**-self.rest_bits).add_(sums[part]) if len(rests) else sums[part]
            mean[part] = whole.mul(share)
        return mean


class Unrounded(Grid):
    """For sums that one process takes by itself, in an order of its own: nothing is rounded, nothing too large."""

    def __init__(self) -> None:
        super().__init__(limit_bits=1023, unit_bits=0, rest_bits=0)

    def no_tasks(self, phi: Tensor) -> Tensor:
        return phi.new_zeros(len(phi) + 2)

    def add(self, total: Tensor, contribution: Tensor, alive: Tensor | bool = True) -> Tensor:
        fits = contribution.sum().isfinite() & alive
        total[:-2].add_(contribution.masked_fill(~fits, 0.0))
        total[-2].add_(contribution.square().sum().masked_fill(~fits, 0.0))
        total[-1].add_(fits)
        return fits

    def mean_square(self, total: Tensor) -> Tensor:
        return total[-2].div(total[-1])

    def mean(self, total: Tensor, phi: Tensor) -> Tensor:
        return total[:-2].div(total[-1].clamp(min=1))
