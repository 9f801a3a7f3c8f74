"""Costs of a stretch of time beside each holder's share of a node's GPUs: what commitments left unused, monthly items,
what jobs without a GPU use and take off the others, and, where the terms ask for it, what is billed beyond what ran.

Invariant: charges of adjacent stretches sum to those of the whole. A billing minimum counts where its machine ended.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from fractions import Fraction

from pricing import billing, grouping, price_steps
from pricing.books import Charge
from pricing.cpu_use import Alike, cpu_charges
from pricing.ledger_totals import placement_spans
from pricing.rates import Rates

_LABELS = {"storage": grouping.STORAGE, "egress": grouping.EGRESS}


def charges(
    rates: Rates, connection: sqlite3.Connection, starts_ms: int, ends_ms: int, alike: Alike | None = None
) -> Iterator[Charge]:
    """The charges of [starts_ms, ends_ms), in the report's currency. `alike`: see `cpu_charges`."""
    if starts_ms >= ends_ms:
        return
    terms = rates.pricing.terms
    for id, steps in rates.coverage.unused.items():
        cost = price_steps.integral(steps, starts_ms, ends_ms)
        if cost:
            owned = next(one for one in terms.commitments if one.id == id)
            facts: dict[str, str | None] = {"cloud": owned.cloud}
            for key, value in (("region", owned.region), ("instance_type", owned.instance_type)):
                if value is not None:
                    facts[key] = value
            yield Charge("unused_commitment_cost", grouping.UNUSED_COMMITMENT, cost, facts=facts, commitment=id)
    yield from _items(rates, starts_ms, ends_ms)
    yield from cpu_charges(rates, connection, starts_ms, ends_ms, alike)
    if terms.count_minimum:
        yield from _minimums(rates, connection, starts_ms, ends_ms)


def _items(rates: Rates, starts_ms: int, ends_ms: int) -> Iterator[Charge]:
    for item in rates.pricing.terms.items:
        steps = rates.pricing.terms.exchange.steps(item.currency, rates.pricing.currency)
        if steps is None:
            continue
        for since, until, cost in item.pieces(starts_ms, ends_ms):
            told = cost * _mean(steps, since, until)
            facts: dict[str, str | None] = {"project": item.project, "user": item.user}
            for key, value in (("cloud", item.cloud), ("region", item.region)):
                if value is not None:
                    facts[key] = value
            if told:
                yield Charge("allocated_cost", _LABELS[item.kind], told, told, told, facts)


def _mean(steps: price_steps.Steps, starts_ms: int, ends_ms: int) -> Fraction:
    """The mean of an exchange rate over a stretch; where there is none, nothing is told."""
    if len(steps) == 1:
        return steps[0][1] or Fraction(0)
    return price_steps.integral(steps, starts_ms, ends_ms) * 3_600_000 / (ends_ms - starts_ms)


def _minimums(rates: Rates, connection: sqlite3.Connection, starts_ms: int, ends_ms: int) -> Iterator[Charge]:
    """A placement's first and last row stand for the machine's start and end; see `pricing.billing` for how good that is."""
    terms = rates.pricing.terms
    for placement_id, first, last in placement_spans(connection, starts_ms, ends_ms):
        placed = rates.placements[placement_id]
        if placed.cloud in (None, "on_premises") or rates.is_free(placement_id, last - 1):
            continue
        rule = billing.rule_for(placed.cloud, placed.purchase, terms.rules)
        seconds = Fraction(last - first, 1000)
        hours = (billing.billed(seconds, rule) - seconds) / 3600
        listed, contracted = rates.node_price(placement_id, last - 1)
        if hours and contracted is not None:
            yield Charge(
                "idle_billing_cost", grouping.IDLE, contracted * hours, None if listed is None else listed * hours,
                contracted * hours, placement_id=placement_id,
            )  # fmt: skip
