"""What late rows and changed prices make of closed months: noticed, and written down with the date of noticing.

Invariant: a frozen amount never changes; frozen amounts plus all corrections of a month are what the ledger and the prices
said when last looked at. A price that was known at the closing and no longer is corrects nothing. Two programs that look at
once write each correction once.
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from datetime import datetime
from fractions import Fraction
from typing import NamedTuple

from pricing import calendar, closed, frozen
from pricing.closed import Month
from pricing.frozen import charge_subject, costs_of, price_print, prints, subject_of, usage_print
from pricing.ledger import Ledger
from pricing.rates import Pricing, Rates
from pricing.report import ALLOCATED_UNUSED


class Noticed(NamedTuple):
    """Corrections of one month: how many, and what they sum to in its currency."""

    month: Month
    corrections: int
    cost: Fraction


class _Found(NamedTuple):
    """What differs in a month, and its prints now."""

    month: Month
    rows: list[tuple[str, int | None, str, int, str]]
    """(subject, placement, cost, share x ms, reason)."""
    marks: tuple[str, str]


def notice(ledger: Ledger, pricing: Pricing, now: datetime) -> list[Noticed]:
    """Looks at every closed month, and writes down what differs since it was closed or last looked at.

    Corrections carry the date of `now`, but never lie in a closed month. Cheap where nothing changed; looking only reads.
    LedgerError.
    """
    with ledger.reading() as connection:
        known = closed.months(connection)
        found = [_compared(connection, pricing, month) for month in known if _changed(connection, pricing, month)]
    if not found:
        return []
    with ledger.writing() as connection:
        noticed_ms = max(calendar.milliseconds(now), *(month.ends_ms for month in closed.months(connection)))
        written = [one for one in found if _write(connection, one, noticed_ms)]
    return [
        Noticed(one.month, len(one.rows), sum((Fraction(row[2]) for row in one.rows), Fraction(0)))
        for one in written
        if one.rows
    ]


def _write(connection: sqlite3.Connection, found: _Found, noticed_ms: int) -> bool:
    """False if another program looked at the month meanwhile: then it is left to the next look."""
    month = found.month
    marked = connection.execute(
        "UPDATE closed_months SET usage_print = ?, price_print = ? WHERE id = ? AND usage_print = ? AND price_print = ?",
        (*found.marks, month.id, month.usage_print, month.price_print),
    )
    if not marked.rowcount:
        return False
    connection.executemany(
        "INSERT INTO closed_adjustments (month_id, noticed_ms, subject, placement_id, cost, share_ms, reason)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        [(month.id, noticed_ms, *row) for row in found.rows],
    )
    return True


def _span(month: Month) -> tuple[datetime, datetime]:
    return calendar.instant(month.starts_ms), calendar.instant(month.ends_ms)


def _changed(connection: sqlite3.Connection, pricing: Pricing, month: Month) -> bool:
    """Whether the sums or the prices of a month are others than when it was last looked at."""
    usage = usage_print(connection, month.starts_ms, month.ends_ms)
    if usage != month.usage_print:
        return True
    rates = Rates(pricing._replace(currency=month.currency), connection, *_span(month), covered=False)
    return price_print(connection, rates, month.starts_ms, month.ends_ms) != month.price_print


def _compared(connection: sqlite3.Connection, pricing: Pricing, month: Month) -> _Found:
    start, end = _span(month)
    rates = Rates(pricing._replace(currency=month.currency), connection, start, end)
    before, shares = _known_costs(connection, month)
    now = frozen.frozen(connection, rates, month.starts_ms, month.ends_ms)
    after, unknown = costs_of(now), {subject_of(*place[:3], place[4]) for place in now.totals if place[3] is None}
    held: defaultdict[str, int] = defaultdict(int)
    for place, amounts in now.totals.items():
        held[subject_of(*place[:3], place[4])] += amounts[0] or 0
    rows: list[tuple[str, int | None, str, int, str]] = []
    for subject in sorted(before.keys() | after.keys()):
        cost = after.get(subject, Fraction(0)) - before.get(subject, Fraction(0))
        if cost and subject not in unknown:
            late = held.get(subject, 0) - shares.get(subject, 0)
            reason = "late usage" if late else "changed price"
            rows.append((subject, json.loads(subject)["placement"], str(cost), late, reason))
    return _Found(month, rows, prints(connection, rates, start, end))


def _known_costs(connection: sqlite3.Connection, month: Month) -> tuple[dict[str, Fraction], dict[str, int]]:
    """Subject -> cost, and share x ms, as frozen and with all corrections so far."""
    costs: defaultdict[str, Fraction] = defaultdict(Fraction)
    shares: defaultdict[str, int] = defaultdict(int)
    for placement_id, kind, holder_id, part, share_ms, effective in connection.execute(
        "SELECT placement_id, kind, holder_id, part, SUM(share_ms), effective FROM closed_usage"
        " LEFT JOIN closed_rates ON closed_rates.id = rate_id WHERE starts_ms >= ? AND starts_ms < ?"
        " GROUP BY placement_id, kind, holder_id, part, rate_id",
        (month.starts_ms, month.ends_ms),
    ):
        subject = subject_of(placement_id, kind, holder_id, part)
        shares[subject] += share_ms
        if effective is not None:
            costs[subject] += Fraction(effective) * share_ms
    for _, charge in closed.charges_of(connection, month.starts_ms, month.ends_ms):
        if charge.part != ALLOCATED_UNUSED:
            costs[charge_subject(charge)] += charge.cost
    corrected = "SELECT subject, cost, share_ms FROM closed_adjustments WHERE month_id = ?"
    for subject, cost, share_ms in connection.execute(corrected, (month.id,)):
        costs[subject] += Fraction(cost)
        shares[subject] += share_ms
    return dict(costs), dict(shares)
