"""What a stretch of time costs by the rows and prices of now, in the shape in which a closed month keeps it.

Invariant: only reads. The amounts of a month's days sum to those of the month; two prints, of the sums per day and of the
prices, tell whether anything can have changed without adding all of it up again.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from fractions import Fraction
from typing import NamedTuple

from pricing import calendar, charges
from pricing.books import Books, Charge
from pricing.ledger_cpu import has_rows
from pricing.ledger_cpu_hours import MEMORY_S, VCPU_S
from pricing.ledger_merge import HOUR_MS, HOURS_PER_DAY
from pricing.ledger_totals import Total, totals
from pricing.price_steps import Steps
from pricing.rates import Epoch, Rate, Rates
from pricing.report import ALLOCATED_UNUSED

_DAY_MS = HOURS_PER_DAY * HOUR_MS


class Frozen(NamedTuple):
    """What a stretch cost."""

    totals: dict[tuple[int, int, int, Rate | None, int], list[int | None]]
    """(placement, kind, holder, rate, cost part) -> share x ms, busy, measured share x ms, energy."""
    charges: list[Charge]


def frozen(connection: sqlite3.Connection, rates: Rates, starts_ms: int, ends_ms: int) -> Frozen:
    """A stretch as the rows and the prices tell it now."""
    books = Books((), rates)
    found: dict[tuple[int, int, int, Rate | None, int], list[int | None]] = {}
    for epoch, total in _all(connection, rates, starts_ms, ends_ms):
        rate = rates.rate(total.placement_id, host=rates.of_host(total), epoch=epoch)
        amounts = found.setdefault((*total[:3], rate, books.column(total)), [0, 0, 0, None])
        for place, amount in enumerate(total[3:6]):
            amounts[place] += amount  # type: ignore[operator]
        if total.energy_mj is not None:
            amounts[3] = (amounts[3] or 0) + total.energy_mj
    found = {place: amounts for place, amounts in found.items() if amounts[0]}
    return Frozen(found, list(charges.charges(rates, connection, starts_ms, ends_ms)))


def _all(connection: sqlite3.Connection, rates: Rates, starts_ms: int, ends_ms: int) -> Iterator[tuple[Epoch, Total]]:
    for epoch, among in rates.passes(starts_ms, ends_ms):
        yield from ((epoch, total) for total in totals(connection, epoch.starts_ms, epoch.ends_ms, among))
    yield from rates.freed(connection, starts_ms, ends_ms)


def costs_of(what: Frozen) -> dict[str, Fraction]:
    """Subject (what a correction is of) -> cost; what has no price is left out."""
    costs: defaultdict[str, Fraction] = defaultdict(Fraction)
    for (placement_id, kind, holder_id, rate, part), amounts in what.totals.items():
        if rate is not None:
            costs[subject_of(placement_id, kind, holder_id, part)] += rate.effective * (amounts[0] or 0)
    for charge in what.charges:
        if charge.part != ALLOCATED_UNUSED:
            costs[charge_subject(charge)] += charge.cost
    return dict(costs)


def subject_of(placement_id: int, kind: int, holder_id: int, part: int) -> str:
    """What a correction of usage is of."""
    return json.dumps({"placement": placement_id, "kind": kind, "holder": holder_id, "part": part})


def charge_subject(charge: Charge) -> str:
    """What a correction of a charge is of."""
    said = {
        "part": charge.part, "label": charge.label, "facts": dict(charge.facts), "placement": charge.placement_id,
        "commitment": charge.commitment,
    }  # fmt: skip
    return json.dumps(said, sort_keys=True)


def prints(connection: sqlite3.Connection, rates: Rates, start: datetime, end: datetime) -> tuple[str, str]:
    starts_ms, ends_ms = calendar.milliseconds(start), calendar.milliseconds(end)
    return usage_print(connection, starts_ms, ends_ms), price_print(connection, rates, starts_ms, ends_ms)


def usage_print(connection: sqlite3.Connection, starts_ms: int, ends_ms: int) -> str:
    """Of the sums per UTC day that the month touches."""
    sums = connection.execute(
        "SELECT COUNT(*), SUM(share_ms / 1000000), SUM(share_ms % 1000000), SUM(busy / 1000000), SUM(busy % 1000000)"
        " FROM days WHERE at >= ? AND at < ?",
        _utc_days(starts_ms, ends_ms),
    ).fetchone()
    return json.dumps([*sums, *_cpu_print(connection, starts_ms, ends_ms)])


def _cpu_print(connection: sqlite3.Connection, starts_ms: int, ends_ms: int) -> tuple[int, ...]:
    """Of what jobs without a GPU used; empty where none did."""
    if not has_rows(connection, starts_ms, ends_ms):
        return ()
    return connection.execute(
        f"SELECT SUM(rows), SUM(vcpu_s), SUM(memory_s) FROM (SELECT rows, {VCPU_S} AS vcpu_s, {MEMORY_S} AS memory_s"
        " FROM cpu_usage WHERE hour >= ?1 AND hour < ?2"
        " UNION ALL SELECT rows, vcpu_s, memory_s FROM cpu_hours WHERE at >= ?1 AND at < ?2)",
        (starts_ms // HOUR_MS, -(-ends_ms // HOUR_MS)),
    ).fetchone()


def _utc_days(starts_ms: int, ends_ms: int) -> tuple[int, int]:
    """The UTC days that the month touches, as [first, end)."""
    return starts_ms // _DAY_MS, -(-ends_ms // _DAY_MS)


def price_print(connection: sqlite3.Connection, rates: Rates, starts_ms: int, ends_ms: int) -> str:
    """Of every price and term that counts in the month."""
    terms = rates.pricing.terms
    used = connection.execute("SELECT DISTINCT placement_id FROM days WHERE at >= ? AND at < ?", _utc_days(starts_ms, ends_ms))
    owned = [
        one for one in (*terms.commitments, *terms.items) if one.starts_ms < ends_ms and (one.ends_ms or ends_ms) > starts_ms
    ]
    sheets = sorted(
        (repr(sheet.key), _clipped(sheet.listed, starts_ms, ends_ms), _clipped(sheet.contracted, starts_ms, ends_ms))
        for sheet in rates.sheets(id for (id,) in used)
    )
    exchange = sorted((name, _clipped(steps, starts_ms, ends_ms)) for name, steps in terms.exchange.usd.items())
    said = repr((sheets, sorted(map(repr, owned)), exchange, terms.count_minimum, terms.count_minimum and terms.rules))
    if has_rows(connection, starts_ms, ends_ms):
        said += repr(terms.weights)
    said += "".join(rates.free_notes(starts_ms, ends_ms))  # none: the same print as before there were any
    return hashlib.sha256(said.encode()).hexdigest()


def _clipped(steps: Steps, starts_ms: int, ends_ms: int) -> str:
    """What of the steps counts in the month."""
    later = [place for place, (at, _) in enumerate(steps) if at > starts_ms]
    first = (later[0] if later else len(steps)) - 1
    return repr([(max(at, starts_ms), value) for at, value in steps[first:] if at < ends_ms])
