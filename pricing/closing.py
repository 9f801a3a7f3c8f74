"""Closes a month: freezes what it cost, so that whatever becomes known later is a correction with a date of its own.

Invariant: closing writes once, all or nothing; what it adds up is of one moment of the ledger. What comes to the ledger
between that moment and the end of the closing is noticed like any other late row.

A month is frozen per calendar day of its time zone, placement, kind, holder and rate, so that reports by day and by any
grouping tell the frozen numbers.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Sequence
from datetime import date, datetime
from fractions import Fraction
from typing import NamedTuple

from pricing import calendar, closed, frozen
from pricing.closed import Month
from pricing.corrections import Noticed, notice
from pricing.errors import ClosingError
from pricing.frozen import Frozen
from pricing.ledger import Ledger
from pricing.rates import Pricing, Rate, Rates

__all__ = ["Closed", "Noticed", "close", "month_span", "notice"]


class Closed(NamedTuple):
    """What was frozen. `cost` is exact, of all that has a price; `unpriced_share_ms` is what has none."""

    month: Month
    rows: int
    cost: Fraction
    unpriced_share_ms: int


class _Day(NamedTuple):
    starts_ms: int
    ends_ms: int
    what: Frozen


def month_span(month: str, tz: str) -> tuple[datetime, datetime]:
    """The month `YYYY-MM` in that zone, as UTC. ClosingError, BadRange."""
    place = calendar.zone(tz)
    if not re.fullmatch(r"\d{4}-(0[1-9]|1[0-2])", month) or not "1970" <= month[:4] < "9999":
        raise ClosingError(f"'{month[:20]}' is no month: write one like 2026-03.")
    first = date(int(month[:4]), int(month[5:]), 1)
    following = date(first.year + first.month // 12, first.month % 12 + 1, 1)
    return calendar.midnight(first, place), calendar.midnight(following, place)


def close(ledger: Ledger, pricing: Pricing, month: str, now: datetime, *, tz: str = "UTC") -> Closed:
    """Freezes a month that has ended. ClosingError when it has not, or is closed already; LedgerError.

    Adding up only reads: others may write meanwhile.
    """
    start, end = month_span(month, tz)
    if end > now:
        raise ClosingError(f"{month} ends on {end.isoformat(' ', 'minutes')}: a month is closed when it is over.")
    with ledger.reading() as connection:
        _refuse_overlap(connection, month, start, end)
        rates = Rates(pricing, connection, start, end)
        marks = frozen.prints(connection, rates, start, end)
        days = [_day(connection, rates, day) for day in calendar.days(start, end, tz)]
    with ledger.writing() as connection:
        _refuse_overlap(connection, month, start, end)
        connection.execute(
            "INSERT INTO closed_months (month, tz, starts_ms, ends_ms, closed_at_ms, currency, usage_print, price_print)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (month, tz, *map(calendar.milliseconds, (start, end, now)), pricing.currency, *marks),
        )
        made = next(one for one in closed.months(connection) if one.month == month)
        return _Writer(connection, made).write(days)


def _day(connection: sqlite3.Connection, rates: Rates, day: calendar.Day) -> _Day:
    starts_ms, ends_ms = calendar.milliseconds(day.start), calendar.milliseconds(day.end)
    return _Day(starts_ms, ends_ms, frozen.frozen(connection, rates, starts_ms, ends_ms))


def _refuse_overlap(connection: sqlite3.Connection, month: str, start: datetime, end: datetime) -> None:
    for one in closed.months(connection):
        at = calendar.instant(one.closed_at_ms).date()
        if one.month == month:
            raise ClosingError(f"{month} was closed on {at} (by days of {one.tz}); what changed since stands in corrections.")
        if one.starts_ms < calendar.milliseconds(end) and one.ends_ms > calendar.milliseconds(start):
            raise ClosingError(f"{month} overlaps {one.month}, which was closed by days of {one.tz}: use that time zone.")


class _Writer:
    """Writes the rows of one month, inside one transaction."""

    def __init__(self, connection: sqlite3.Connection, month: Month) -> None:
        self._connection = connection
        self._month = month
        self._rate_ids: dict[Rate, int] = {}

    def write(self, days: Sequence[_Day]) -> Closed:
        rows, cost, unpriced = 0, Fraction(0), 0
        for starts_ms, ends_ms, what in days:
            self._connection.execute("INSERT INTO closed_days VALUES (?, ?, ?)", (starts_ms, ends_ms, self._month.id))
            self._usage(starts_ms, what)
            self._charges(starts_ms, what)
            rows += len(what.totals) + len(what.charges)
            cost += sum(frozen.costs_of(what).values(), Fraction(0))
            unpriced += sum(amounts[0] or 0 for place, amounts in what.totals.items() if place[3] is None)
        return Closed(self._month, rows, cost, unpriced)

    def _usage(self, starts_ms: int, what: Frozen) -> None:
        self._connection.executemany(
            f"INSERT INTO closed_usage VALUES ({', '.join('?' * 10)})",
            [
                (starts_ms, placement_id, kind, holder_id, self._rate_id(rate), part, *amounts)
                for (placement_id, kind, holder_id, rate, part), amounts in what.totals.items()
            ],
        )

    def _charges(self, starts_ms: int, what: Frozen) -> None:
        self._connection.executemany(
            "INSERT INTO closed_charges (starts_ms, part, label, facts, placement_id, cost, listed, contracted, commitment,"
            " node_hours, paid) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    starts_ms, one.part, one.label, json.dumps(dict(one.facts)), one.placement_id, str(one.cost),
                    _text(one.listed), _text(one.contracted), one.commitment, str(one.node_hours), closed.paid_text(one.paid),
                )
                for one in what.charges
            ],
        )  # fmt: skip

    def _rate_id(self, rate: Rate | None) -> int:
        """0 for time without a price."""
        if rate is None:
            return 0
        if rate not in self._rate_ids:
            made = self._connection.execute(
                "INSERT INTO closed_rates (effective, listed, contracted, paid) VALUES (?, ?, ?, ?)",
                (str(rate.effective), _text(rate.listed), _text(rate.contracted), closed.paid_text(rate.paid)),
            )
            self._rate_ids[rate] = made.lastrowid or 0
        return self._rate_ids[rate]


def _text(amount: Fraction | None) -> str | None:
    return None if amount is None else str(amount)
