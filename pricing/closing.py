"""Closes a month: freezes what it cost, and notes what late rows and changed prices would have made of it since.

Invariant: closing writes once; whatever becomes known later is a correction with the date on which it was noticed, never
a change. Frozen amounts plus all corrections of a month are what the ledger and the prices said when last looked at. A
price that was known at the closing and no longer is corrects nothing.

A month is frozen per calendar day of its time zone, placement, kind, holder and rate, so that reports by day and by any
grouping tell the frozen numbers. Whether anything changed is told by two prints, of the sums per day and of the prices,
so that looking costs next to nothing where nothing did.
"""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from datetime import date, datetime
from fractions import Fraction
from typing import NamedTuple

from pricing import calendar, charges, closed
from pricing.books import HOST, Books, Charge
from pricing.closed import Month
from pricing.errors import ClosingError
from pricing.ledger import Ledger
from pricing.ledger_merge import HOUR_MS, HOURS_PER_DAY
from pricing.ledger_totals import totals
from pricing.price_steps import Steps
from pricing.rates import Pricing, Rate, Rates

_DAY_MS = HOURS_PER_DAY * HOUR_MS


class Closed(NamedTuple):
    """What was frozen. `cost` is exact, of all that has a price; `unpriced_share_ms` is what has none."""

    month: Month
    rows: int
    cost: Fraction
    unpriced_share_ms: int


class Noticed(NamedTuple):
    """Corrections of one month: how many, and what they sum to in its currency."""

    month: Month
    corrections: int
    cost: Fraction


class _Frozen(NamedTuple):
    """What one calendar day cost."""

    totals: dict[tuple[int, int, int, Rate | None, int], list[int | None]]
    """(placement, kind, holder, rate, cost part) -> share x ms, busy, measured share x ms, energy."""
    charges: list[Charge]


def month_span(month: str, tz: str) -> tuple[datetime, datetime]:
    """The month `YYYY-MM` in that zone, as UTC. ClosingError, BadRange."""
    place = calendar.zone(tz)
    if not re.fullmatch(r"\d{4}-(0[1-9]|1[0-2])", month) or not "1970" <= month[:4] < "9999":
        raise ClosingError(f"'{month[:20]}' is no month: write one like 2026-03.")
    first = date(int(month[:4]), int(month[5:]), 1)
    following = date(first.year + first.month // 12, first.month % 12 + 1, 1)
    return calendar.midnight(first, place), calendar.midnight(following, place)


def close(ledger: Ledger, pricing: Pricing, month: str, now: datetime, *, tz: str = "UTC") -> Closed:
    """Freezes a month that has ended. ClosingError when it has not, or is closed already; LedgerError."""
    start, end = month_span(month, tz)
    if end > now:
        raise ClosingError(f"{month} ends on {end.isoformat(' ', 'minutes')}: a month is closed when it is over.")
    with ledger.writing() as connection:
        _refuse_overlap(connection, month, start, end)
        rates = Rates(pricing, connection, start, end)
        usage, prices = _prints(connection, rates, start, end)
        values = (month, tz, calendar.milliseconds(start), calendar.milliseconds(end), calendar.milliseconds(now))
        connection.execute(
            "INSERT INTO closed_months (month, tz, starts_ms, ends_ms, closed_at_ms, currency, usage_print, price_print)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (*values, pricing.currency, usage, prices),
        )
        made = next(one for one in closed.months(connection) if one.month == month)
        return _Writer(connection, rates, made).write(calendar.days(start, end, tz))


def _refuse_overlap(connection: sqlite3.Connection, month: str, start: datetime, end: datetime) -> None:
    for one in closed.months(connection):
        at = calendar.instant(one.closed_at_ms).date()
        if one.month == month:
            raise ClosingError(f"{month} was closed on {at} (by days of {one.tz}); what changed since stands in corrections.")
        if one.starts_ms < calendar.milliseconds(end) and one.ends_ms > calendar.milliseconds(start):
            raise ClosingError(f"{month} overlaps {one.month}, which was closed by days of {one.tz}: use that time zone.")


class _Writer:
    """Writes the rows of one month, inside one transaction."""

    def __init__(self, connection: sqlite3.Connection, rates: Rates, month: Month) -> None:
        self._connection = connection
        self._rates = rates
        self._month = month
        self._rate_ids: dict[Rate, int] = {}

    def write(self, days: Iterator[calendar.Day]) -> Closed:
        rows, cost, unpriced = 0, Fraction(0), 0
        for day in days:
            starts_ms, ends_ms = calendar.milliseconds(day.start), calendar.milliseconds(day.end)
            self._connection.execute("INSERT INTO closed_days VALUES (?, ?, ?)", (starts_ms, ends_ms, self._month.id))
            frozen = _frozen(self._connection, self._rates, starts_ms, ends_ms)
            self._usage(starts_ms, frozen)
            self._charges(starts_ms, frozen)
            rows += len(frozen.totals) + len(frozen.charges)
            cost += sum(_costs(frozen).values(), Fraction(0))
            unpriced += sum(amounts[0] or 0 for place, amounts in frozen.totals.items() if place[3] is None)
        return Closed(self._month, rows, cost, unpriced)

    def _usage(self, starts_ms: int, frozen: _Frozen) -> None:
        self._connection.executemany(
            f"INSERT INTO closed_usage VALUES ({', '.join('?' * 10)})",
            [
                (starts_ms, placement_id, kind, holder_id, self._rate_id(rate), part, *amounts)
                for (placement_id, kind, holder_id, rate, part), amounts in frozen.totals.items()
            ],
        )

    def _charges(self, starts_ms: int, frozen: _Frozen) -> None:
        self._connection.executemany(
            "INSERT INTO closed_charges (starts_ms, part, label, facts, placement_id, cost, listed, contracted, commitment)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    starts_ms, one.part, one.label, json.dumps(dict(one.facts)), one.placement_id, str(one.cost),
                    _text(one.listed), _text(one.contracted), one.commitment,
                )
                for one in frozen.charges
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


def _frozen(connection: sqlite3.Connection, rates: Rates, starts_ms: int, ends_ms: int) -> _Frozen:
    """A stretch as the rows and the prices tell it now."""
    books = Books((), rates)
    found: dict[tuple[int, int, int, Rate | None, int], list[int | None]] = {}
    for epoch, among in rates.passes(starts_ms, ends_ms):
        for total in totals(connection, epoch.starts_ms, epoch.ends_ms, among):
            rate = rates.rate(total.placement_id, host=total.kind == HOST, epoch=epoch)
            amounts = found.setdefault((*total[:3], rate, books.column(total)), [0, 0, 0, None])
            for place, amount in enumerate(total[3:6]):
                amounts[place] += amount  # type: ignore[operator]
            if total.energy_mj is not None:
                amounts[3] = (amounts[3] or 0) + total.energy_mj
    return _Frozen(found, list(charges.charges(rates, connection, starts_ms, ends_ms)))


def _costs(frozen: _Frozen) -> dict[str, Fraction]:
    """Subject (what a correction is of) -> cost; what has no price is left out."""
    costs: defaultdict[str, Fraction] = defaultdict(Fraction)
    for (placement_id, kind, holder_id, rate, part), amounts in frozen.totals.items():
        if rate is not None:
            costs[_subject(placement_id, kind, holder_id, part)] += rate.effective * (amounts[0] or 0)
    for charge in frozen.charges:
        costs[_charge_subject(charge)] += charge.cost
    return dict(costs)


def _subject(placement_id: int, kind: int, holder_id: int, part: int) -> str:
    return json.dumps({"placement": placement_id, "kind": kind, "holder": holder_id, "part": part})


def _charge_subject(charge: Charge) -> str:
    said = {
        "part": charge.part, "label": charge.label, "facts": dict(charge.facts), "placement": charge.placement_id,
        "commitment": charge.commitment,
    }  # fmt: skip
    return json.dumps(said, sort_keys=True)


def notice(ledger: Ledger, pricing: Pricing, now: datetime) -> list[Noticed]:
    """Looks at every closed month, and writes down what differs since it was closed or last looked at.

    Corrections carry the date of `now`, but never lie in a closed month. Cheap where nothing changed. LedgerError.
    """
    with ledger.reading() as connection:
        if not any(_changed(connection, pricing, month) for month in closed.months(connection)):
            return []
    with ledger.writing() as connection:
        known = closed.months(connection)
        noticed_ms = max(calendar.milliseconds(now), *(month.ends_ms for month in known))
        found = [_correct(connection, pricing, month, noticed_ms) for month in known if _changed(connection, pricing, month)]
    return [one for one in found if one.corrections]


def _span(month: Month) -> tuple[datetime, datetime]:
    return calendar.instant(month.starts_ms), calendar.instant(month.ends_ms)


def _changed(connection: sqlite3.Connection, pricing: Pricing, month: Month) -> bool:
    """Whether the sums or the prices of a month are others than when it was last looked at."""
    usage = _usage_print(connection, month.starts_ms, month.ends_ms)
    if usage != month.usage_print:
        return True
    rates = Rates(pricing._replace(currency=month.currency), connection, *_span(month), covered=False)
    return _price_print(connection, rates, month.starts_ms, month.ends_ms) != month.price_print


def _correct(connection: sqlite3.Connection, pricing: Pricing, month: Month, noticed_ms: int) -> Noticed:
    start, end = _span(month)
    rates = Rates(pricing._replace(currency=month.currency), connection, start, end)
    before, shares = _known_costs(connection, month)
    now = _frozen(connection, rates, month.starts_ms, month.ends_ms)
    after, unknown = _costs(now), {_subject(*place[:3], place[4]) for place in now.totals if place[3] is None}
    held: defaultdict[str, int] = defaultdict(int)
    for place, amounts in now.totals.items():
        held[_subject(*place[:3], place[4])] += amounts[0] or 0
    rows = []
    for subject in sorted(before.keys() | after.keys()):
        cost = after.get(subject, Fraction(0)) - before.get(subject, Fraction(0))
        if not cost or subject in unknown:
            continue
        late = held.get(subject, 0) - shares.get(subject, 0)
        placement_id = json.loads(subject)["placement"]
        rows.append((month.id, noticed_ms, subject, placement_id, str(cost), late, "late usage" if late else "changed price"))
    connection.executemany(
        "INSERT INTO closed_adjustments (month_id, noticed_ms, subject, placement_id, cost, share_ms, reason)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        rows,
    )
    connection.execute(
        "UPDATE closed_months SET usage_print = ?, price_print = ? WHERE id = ?",
        (*_prints(connection, rates, start, end), month.id),
    )
    return Noticed(month, len(rows), sum((Fraction(row[4]) for row in rows), Fraction(0)))


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
        subject = _subject(placement_id, kind, holder_id, part)
        shares[subject] += share_ms
        if effective is not None:
            costs[subject] += Fraction(effective) * share_ms
    for _, charge in closed.charges_of(connection, month.starts_ms, month.ends_ms):
        costs[_charge_subject(charge)] += charge.cost
    corrected = "SELECT subject, cost, share_ms FROM closed_adjustments WHERE month_id = ?"
    for subject, cost, share_ms in connection.execute(corrected, (month.id,)):
        costs[subject] += Fraction(cost)
        shares[subject] += share_ms
    return dict(costs), dict(shares)


def _prints(connection: sqlite3.Connection, rates: Rates, start: datetime, end: datetime) -> tuple[str, str]:
    starts_ms, ends_ms = calendar.milliseconds(start), calendar.milliseconds(end)
    return _usage_print(connection, starts_ms, ends_ms), _price_print(connection, rates, starts_ms, ends_ms)


def _usage_print(connection: sqlite3.Connection, starts_ms: int, ends_ms: int) -> str:
    """Of the sums per UTC day that the month touches."""
    sums = connection.execute(
        "SELECT COUNT(*), SUM(share_ms / 1000000), SUM(share_ms % 1000000), SUM(busy / 1000000), SUM(busy % 1000000)"
        " FROM days WHERE at >= ? AND at < ?",
        _utc_days(starts_ms, ends_ms),
    ).fetchone()
    return json.dumps(sums)


def _utc_days(starts_ms: int, ends_ms: int) -> tuple[int, int]:
    """The UTC days that the month touches, as [first, end)."""
    return starts_ms // _DAY_MS, -(-ends_ms // _DAY_MS)


def _price_print(connection: sqlite3.Connection, rates: Rates, starts_ms: int, ends_ms: int) -> str:
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
    return hashlib.sha256(said.encode()).hexdigest()


def _clipped(steps: Steps, starts_ms: int, ends_ms: int) -> str:
    """What of the steps counts in the month."""
    later = [place for place, (at, _) in enumerate(steps) if at > starts_ms]
    first = (later[0] if later else len(steps)) - 1
    return repr([(max(at, starts_ms), value) for at, value in steps[first:] if at < ends_ms])
