"""Online reservation without a forecast: A_z of Wang, Li and Liang ("To Reserve or Not to Reserve", ICAC 2013), with its proofs.

Invariant: in its own model (an upfront fee, then usage at `alpha` times the price, decided slot by slot) the deterministic
A_beta costs at most 2 - alpha times the optimum, the randomised one at most e / (e - 1 + alpha) in expectation.

In units of the upfront fee: a slot on demand costs `price`, one that is reserved alpha * price. A_z reserves once what it paid
on demand within a term, where its reservations (also "phantom" ones: each counts as if owned for the term before too) would
not have covered, exceeds z; beta = 1 / (1 - alpha) is the break-even. The randomised one draws z from a density on [0, beta)
with an atom that never reserves: placed at z = beta, as the slides do, the ratio does not hold.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pricing.commitments_model import HOURS, Deal, History


class Online:
    """A_z at work: one call for each slot, in order."""

    def __init__(self, alpha: float, price: float, term: int, z: float) -> None:
        """`term` in slots; z = math.inf never reserves. ValueError: alpha outside [0, 1), a price or term that is none."""
        if not (0 <= alpha < 1 and price > 0 and term > 0 and z >= 0):
            raise ValueError(f"alpha {alpha}, price {price}, term {term}, z {z}")
        self._least = math.inf if z == math.inf else math.floor(z / price + 1e-9)
        self._excess = np.zeros(term)
        """Demand less reservations (with phantoms) of the last slots; the newest last."""
        self._coming = np.zeros(term)
        """Reservations usable now and in the following slots."""

    def reserve(self, demand: float) -> int:
        """How many to reserve in this slot, whose demand is known."""
        self._excess = np.append(self._excess[1:], demand - self._coming[0])
        count = excess_quantile(self._excess, self._least)
        self._excess -= count
        self._coming = np.append(self._coming[1:] + count, 0.0)
        return count


def excess_quantile(excess: np.ndarray, allowed: float) -> int:
    """The least whole number that at most `allowed` of the values exceed (0 where none must)."""
    if allowed >= len(excess):
        return 0
    rank = len(excess) - 1 - int(allowed)
    return max(0, math.ceil(np.partition(excess, rank)[rank]))


def break_even(alpha: float) -> float:
    """beta, in upfront fees paid on demand."""
    return 1 / (1 - alpha)


def draw_z(alpha: float, uniform: float) -> float:
    """The random threshold for a uniform draw of [0, 1): math.inf with probability alpha / (e - 1 + alpha)."""
    scaled = uniform * (math.e - 1 + alpha)
    if scaled >= math.e - 1:
        return math.inf
    return math.log1p(scaled) / (1 - alpha)


@dataclass(frozen=True)
class Ski:
    """A_z for a deal without upfront fee, decided daily: the whole commitment is the fee, so alpha = 0 and beta = 1."""

    name: str = "online"
    z: float = 1.0

    def begin(self, deal: Deal) -> _SkiSession:
        return _SkiSession(deal, self.z)


class _SkiSession:
    def __init__(self, deal: Deal, z: float) -> None:
        self._term = deal.term_days
        self._allowed = z * deal.ratio * HOURS * deal.term_days
        self._held: dict[int, int] = {}
        """Day -> reservations with phantoms."""

    def buy(self, history: History, active: np.ndarray) -> int:  # noqa: ARG002
        days = range(max(0, history.days - self._term), history.days)
        held = np.array([self._held.get(day, 0) for day in days], float)
        excess = (history.counts[-len(days) :] - held[:, None]).ravel() if days else np.zeros(0)
        count = excess_quantile(excess, self._allowed + 1e-9)
        for day in range(history.days - self._term, history.days + self._term):
            self._held[day] = self._held.get(day, 0) + count
        return count
