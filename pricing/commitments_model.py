"""The commitment model that all rules share: a deal, demand by level and day, and what a sequence of purchases cost.

Invariant: a `History` tells only of hours before the moment of the decision; nothing a rule can reach lies after it.

Demand is hourly, in nodes. Its n-th level is the n-th node: `coverage[day, n - 1]` is the share of the day's hours in which at
least n nodes ran (part of it where a count is fractional). The price of an uncovered node-hour is 1.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

HOURS = 24
MOST_LEVELS = 4096


class Deal(NamedTuple):
    """A commitment on offer: `ratio` of the price of an uncovered hour (upfront amortised), paid through `term_days`."""

    term_days: int
    ratio: float


class History:
    """The days before a decision, oldest first.

    `counts`: float (days, 24), 0 where unknown; `coverage`: float (days, levels), of the known hours; `unit`: nodes in a level
    (more than 1 only for pools of thousands).
    """

    def __init__(self, counts: np.ndarray, coverage: np.ndarray, unit: int = 1) -> None:
        self.counts = counts
        self._coverage = coverage
        self.unit = unit

    @classmethod
    def of(cls, counts: np.ndarray, known: np.ndarray | None = None) -> History:
        """From float (hours,). Days end at the last hour; hours before the first whole day are left out, and so are days
        of which less than a quarter is known."""
        days = len(counts) // HOURS
        counts = np.asarray(counts[len(counts) - days * HOURS :], float).reshape(days, HOURS)
        weights = np.ones_like(counts) if known is None else known[len(known) - days * HOURS :].reshape(days, HOURS).astype(float)
        enough = weights.sum(axis=1) >= HOURS / 4
        counts, weights = np.where(weights > 0, counts, 0.0)[enough], weights[enough]
        top = int(np.ceil(counts.max(initial=0.0)))
        unit = -(-top // MOST_LEVELS) or 1
        levels = -(-top // unit)
        coverage = np.empty((len(counts), levels))
        edges = np.arange(levels)
        for day, (row, weight) in enumerate(zip(counts / unit, weights, strict=True)):
            coverage[day] = weight @ np.clip(row[:, None] - edges, 0.0, 1.0) / weight.sum()
        return cls(counts, coverage, unit)

    def until(self, day: int) -> History:
        """What was known at 00:00 of `day`."""
        return History(self.counts[:day], self._coverage[:day], self.unit)

    @property
    def days(self) -> int:
        return len(self._coverage)

    @cached_property
    def coverage(self) -> np.ndarray:
        """Float (days, levels), without the levels that were never reached."""
        used = np.flatnonzero(self._coverage.any(axis=0))
        return self._coverage[:, : used[-1] + 1 if len(used) else 0]

    def mean(self, last: int | None = None) -> np.ndarray:
        """Float (levels,): the share of the last days' hours at or above each level (default: all days)."""
        days = self.coverage if last is None else self.coverage[-last:]
        return days.mean(axis=0) if len(days) else np.zeros(self.coverage.shape[1])
