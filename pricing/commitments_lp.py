"""The clairvoyant: the cheapest purchases for a demand that is known in full, as a linear program (HiGHS).

Invariant: its cost is a lower bound for every rule on the same hours. Each purchase covers consecutive days, so the matrix is
an interval matrix (totally unimodular) and the optimum is in whole commitments: asserted.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pricing.commitments_model import HOURS, Deal


class Clairvoyant(NamedTuple):
    cost: float
    purchases: np.ndarray
    """int (days,)"""


def clairvoyant(counts: np.ndarray, deal: Deal, *, last_purchase: int | None = None) -> Clairvoyant:
    """`counts`: float (days * 24,) of whole numbers; days after the end are neither charged nor used. `last_purchase`: the
    last day on which one may buy (default: any). Costs in uncovered node-hours."""
    from scipy.optimize import linprog

    days = len(counts) // HOURS
    last = days - 1 if last_purchase is None else min(last_purchase, days - 1)
    if last < 0 or not counts.any() or deal.ratio >= 1:
        return Clairvoyant(float(counts.sum()), np.zeros(days, int))
    day, value, hours = _distinct(counts.reshape(days, HOURS))
    paid = np.minimum(deal.term_days, days - np.arange(last + 1)) * HOURS * deal.ratio
    found = linprog(
        np.concatenate([paid, hours]), A_ub=-_coverage_matrix(day, last + 1, deal.term_days), b_ub=-value, method="highs"
    )
    if found.status != 0:
        raise RuntimeError(f"the linear program of the clairvoyant failed: {found.message}")
    bought = found.x[: last + 1]
    purchases = np.zeros(days, int)
    purchases[: last + 1] = np.rint(bought)
    assert np.abs(bought - purchases[: last + 1]).max() < 1e-6, "an interval matrix has a whole optimum"
    return Clairvoyant(float(found.fun), purchases)


def _distinct(by_day: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Day, count and number of hours of each distinct count of each day."""
    keys, hours = np.unique(np.stack([np.arange(len(by_day)).repeat(HOURS), by_day.ravel()]), axis=1, return_counts=True)
    used = keys[1] > 0
    return keys[0][used].astype(int), keys[1][used], hours[used].astype(float)


def _coverage_matrix(day: np.ndarray, columns: int, term: int) -> object:
    """Row: one distinct count; columns: purchases of each day, then the row's own uncovered nodes."""
    from scipy.sparse import csr_array, eye_array, hstack

    first = np.maximum(0, day - term + 1)
    lengths = np.maximum(0, np.minimum(day, columns - 1) - first + 1)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    indices = np.arange(starts[-1]) - np.repeat(starts[:-1] - first, lengths)
    covering = csr_array((np.ones(starts[-1]), indices, starts), shape=(len(day), columns))
    return hstack([covering, eye_array(len(day))], format="csr")
