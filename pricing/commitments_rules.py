"""Rules of commitment on one interface: all on-demand, peak, look-back (what the clouds' recommendations do), least of several
look-backs, and a named price list of them all.

Invariant: a rule sees a `History` (the days before the decision), the deal and what is active; it is asked once each day, in
order, and answers how many to buy that day.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from pricing.commitments_model import Deal, History

TIE = 1e-12
"""A unit that breaks even exactly is not bought; shares of hours differ by more than this unless they are equal."""


class Session(Protocol):
    """One rule at work on one pool."""

    def buy(self, history: History, active: np.ndarray) -> int:
        """How many to buy at 00:00 of the day after `history`. `active`: int (term,), those owned on this day and the
        following ones, which ends with what is bought last."""
        ...


class Rule(Protocol):
    name: str

    def begin(self, deal: Deal) -> Session: ...


@dataclass(frozen=True)
class OnDemand:
    """Never commits."""

    name: str = "on-demand"

    def begin(self, deal: Deal) -> Session:  # noqa: ARG002
        return self

    def buy(self, history: History, active: np.ndarray) -> int:  # noqa: ARG002
        return 0


@dataclass(frozen=True)
class Peak:
    """Covers the highest level of any hour so far."""

    name: str = "peak"

    def begin(self, deal: Deal) -> Session:  # noqa: ARG002
        return self

    def buy(self, history: History, active: np.ndarray) -> int:
        return max(0, history.coverage.shape[1] * history.unit - int(active[0]))


@dataclass(frozen=True)
class LookBack:
    """The (1 - ratio) quantile of the last days' hours, the least over several windows where there are several.

    AWS and Azure search all candidates for the largest saving over the window; the quantile is that candidate.
    """

    name: str
    windows: tuple[int, ...]

    def begin(self, deal: Deal) -> Session:
        return _Target(lambda history: min(look_back(history, days, deal.ratio) for days in self.windows))


@dataclass(frozen=True)
class _Target:
    target: object = field(repr=False)

    def buy(self, history: History, active: np.ndarray) -> int:
        return max(0, self.target(history) - int(active[0]))  # type: ignore[operator]


def look_back(history: History, days: int, ratio: float) -> int:
    """The smallest count that the demand of the last `days` exceeds in at most `ratio` of the hours."""
    return int((history.mean(days) > ratio + TIE).sum()) * history.unit
