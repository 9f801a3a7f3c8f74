"""What commitments would have saved in the hours that are known: exactly, and how sure that is.

Invariant: savings are linear in the prices and exact for the hours given; the interval comes from the same hours, drawn anew in
whole days or weeks with a fixed seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

HOURS_PER_MONTH = 730
DRAWS = 400
WEEKS = 8
"""From as many weeks on, weeks are drawn instead of days: days of one week are alike."""
WINDOWS = (7, 30, 60)


@dataclass(frozen=True)
class Evidence:
    """`hours`: float (known hours,), nodes running; `owned`: commitments that are there already; prices a node-hour."""

    hours: np.ndarray
    owned: int
    rate: Fraction
    alternative: Fraction

    def lately(self) -> Evidence:
        """The last 60 days."""
        return replace(self, hours=self.hours[-24 * WINDOWS[-1] :])

    def utilisation(self, number: int) -> float | None:
        """Share of the hours in which the `number`-th node ran; None where no hour is known."""
        return float(np.clip(self.hours - (number - 1), 0.0, 1.0).mean()) if len(self.hours) else None

    def paying(self, count: int) -> int:
        """The most of `count` purchases of which each would have paid off, over all hours or over the last 60 days (a pool
        that has grown), and which together save over all hours."""
        always = self._each_pays(count, self.hours)
        lately = self._each_pays(count, self.lately().hours)
        return _most(always, lately, lambda number: self.saving(number) > 0)

    def _each_pays(self, count: int, hours: np.ndarray) -> int:
        least = self.rate / self.alternative * len(hours)
        return _most(0, count, lambda number: Fraction(math.fsum(np.clip(hours - (self.owned + number - 1), 0.0, 1.0))) > least)

    def saving(self, count: int) -> Fraction:
        """Of `count` purchases, a month of 730 hours."""
        if not count:
            return Fraction(0)
        return self._of_share(count, Fraction(math.fsum(self._used(count))) / len(self.hours))

    def saving_range(self, count: int) -> tuple[Fraction, Fraction]:
        """Least and most of: the saving, its 90 % bootstrap interval, and that of the last 7, 30 and 60 days."""
        if not count:
            return Fraction(0), Fraction(0)
        used = self._used(count)
        shares = [float(used[-24 * days :].mean()) for days in WINDOWS if len(used) >= 24 * days]
        told = [self.saving(count), *(self._of_share(count, Fraction(share)) for share in (*shares, *bootstrap(used)))]
        return min(told), max(told)

    def _used(self, count: int) -> np.ndarray:
        return np.clip(self.hours - self.owned, 0.0, count)

    def _of_share(self, count: int, used: Fraction) -> Fraction:
        return (self.alternative * used - self.rate * count) * HOURS_PER_MONTH


def _most(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """The largest number of `low` to `high` that `holds`, where it holds for `low` and for all below one that it holds for."""
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low


def bootstrap(used: np.ndarray) -> tuple[float, ...]:
    """5 % and 95 % quantile of the mean of float (hours,), by blocks of days or weeks; none where there are not two blocks."""
    block = 24 * 7 if len(used) >= 24 * 7 * WEEKS else 24
    blocks = len(used) // block
    if blocks < 2:
        return ()
    means = used[len(used) - blocks * block :].reshape(blocks, block).mean(axis=1)
    drawn = means[np.random.default_rng(0).integers(0, blocks, (DRAWS, blocks))].mean(axis=1)
    return tuple(float(quantile) for quantile in np.quantile(drawn, (0.05, 0.95)))
