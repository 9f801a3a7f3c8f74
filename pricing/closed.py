"""Closed months as a report reads them: each calendar day as it was closed, and what was corrected since.

Invariant: a day that was closed is told with the numbers of its closing whenever a report holds all of it; a correction
stands in the day on which it was noticed. A report that cuts a closed day computes that part anew, and says so.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from typing import NamedTuple

from pricing import calendar, grouping
from pricing.books import Books, Charge
from pricing.ledger_totals import Total
from pricing.rates import Paid, Rate, Rates
from pricing.report import Committed


class Month(NamedTuple):
    """A closed month, its bounds in UTC milliseconds."""

    id: int
    month: str
    tz: str
    starts_ms: int
    ends_ms: int
    closed_at_ms: int
    currency: str
    usage_print: str
    price_print: str


class Day(NamedTuple):
    starts_ms: int
    ends_ms: int
    month_id: int


class Piece(NamedTuple):
    """A part of a stretch: of whole closed days of one month, or of what is not closed."""

    starts_ms: int
    ends_ms: int
    closed: Month | None


def months(connection: sqlite3.Connection) -> list[Month]:
    """All closed months, in order of time."""
    rows = connection.execute(
        "SELECT id, month, tz, starts_ms, ends_ms, closed_at_ms, currency, usage_print, price_print"
        " FROM closed_months ORDER BY starts_ms"
    )
    return [Month._make(row) for row in rows]


@dataclass(slots=True)
class Past:
    """What is closed of a range, and the corrections that were noticed in it."""

    months: dict[int, Month]
    days: list[Day]
    corrections: list[tuple[int, int, str, int | None, str]]
    """(month, noticed at, subject, placement, cost)."""
    notes: list[str] = field(default_factory=list)
    _cut: set[int] = field(default_factory=set)

    @classmethod
    def read(cls, connection: sqlite3.Connection, start: datetime, end: datetime) -> Past:
        starts_ms, ends_ms = calendar.milliseconds(start), calendar.milliseconds(end)
        known = {month.id: month for month in months(connection)}
        days = connection.execute(
            "SELECT starts_ms, ends_ms, month_id FROM closed_days WHERE ends_ms > ? AND starts_ms < ? ORDER BY starts_ms",
            (starts_ms, ends_ms),
        )
        found = connection.execute(
            "SELECT month_id, noticed_ms, subject, placement_id, cost FROM closed_adjustments"
            " WHERE noticed_ms >= ? AND noticed_ms < ? ORDER BY id",
            (starts_ms, ends_ms),
        )
        past = cls(known, [Day._make(row) for row in days], found.fetchall())
        for month in [known[id] for id in dict.fromkeys(day.month_id for day in past.days)]:
            closed_at = calendar.instant(month.closed_at_ms).date()
            past.notes.append(f"{month.month} ({month.tz}) was closed on {closed_at} and is told as it was then.")
        return past

    def pieces(self, starts_ms: int, ends_ms: int) -> Iterator[Piece]:
        """A stretch cut into runs of whole closed days, and the rest."""
        at = starts_ms
        for piece in self._runs(starts_ms, ends_ms):
            if at < piece.starts_ms:
                yield Piece(at, piece.starts_ms, None)
            yield piece
            at = piece.ends_ms
        if at < ends_ms:
            yield Piece(at, ends_ms, None)

    def _runs(self, starts_ms: int, ends_ms: int) -> Iterator[Piece]:
        run: Piece | None = None
        for day in self.days:
            if day.starts_ms >= ends_ms or day.ends_ms <= starts_ms:
                continue
            month = self.months[day.month_id]
            if day.starts_ms < starts_ms or day.ends_ms > ends_ms:
                self._note_cut(month)
            elif run is not None and run.ends_ms == day.starts_ms and run.closed is month:
                run = run._replace(ends_ms=day.ends_ms)
            else:
                if run is not None:
                    yield run
                run = Piece(day.starts_ms, day.ends_ms, month)
        if run is not None:
            yield run

    def _note_cut(self, month: Month) -> None:
        if month.id not in self._cut:
            self._cut.add(month.id)
            self.notes.append(
                f"The report cuts days of {month.month}, which was closed by days of {month.tz}: those parts are computed "
                "anew and may differ from what was closed."
            )

    def add(self, books: Books, connection: sqlite3.Connection, label: str, piece: Piece) -> None:
        """Adds whole closed days."""
        month = piece.closed
        assert month is not None  # noqa: S101 - the caller looked
        money = _Money(books.rates, month)
        group = "" if money.same else "starts_ms, "  # an exchange rate is of a day
        for row in connection.execute(
            "SELECT starts_ms, part, placement_id, kind, holder_id, SUM(share_ms), SUM(busy), SUM(measured_share_ms),"
            " SUM(energy_mj), effective, listed, contracted, paid FROM closed_usage LEFT JOIN closed_rates ON closed_rates.id = rate_id"
            f" WHERE starts_ms >= ? AND starts_ms < ? GROUP BY {group}part, placement_id, kind, holder_id, rate_id",
            (piece.starts_ms, piece.ends_ms),
        ):
            books.add_closed(label, Total(*row[2:9]), row[1], money.rate(row[0], *row[9:]), money.reason)
        for starts_ms, charge in charges_of(connection, piece.starts_ms, piece.ends_ms):
            told = money.charge(starts_ms, charge)
            if told is not None:
                books.charge(label, told)

    def adjustments(self, rates: Rates, tz: str) -> Iterator[tuple[str, Charge]]:
        """(day on which it was noticed, what it corrects), in the report's currency."""
        place = calendar.zone(tz)
        for month_id, noticed_ms, subject, placement_id, cost in self.corrections:
            factor = rates.told(self.months[month_id].currency, noticed_ms)
            if factor is None:
                self.notes.append(f"A correction of {self.months[month_id].month} is in no cost: no exchange rate is given.")
                continue
            day = calendar.instant(noticed_ms).astimezone(place).date().isoformat()
            facts = {} if placement_id is not None else charge_facts(subject)
            yield (
                day,
                Charge("adjustment_cost", grouping.ADJUSTMENT, Fraction(cost) * factor, facts=facts, placement_id=placement_id),
            )


def charge_facts(subject: str) -> dict[str, str | None]:
    """What of a corrected charge is told: where it was; who it belonged to is a name of the closed month."""
    facts = json.loads(subject).get("facts") or {}
    return {key: value for key, value in facts.items() if key not in grouping.HOLDER_KEYS}


class _Money:
    """A closed month's money in the currency of the report."""

    def __init__(self, rates: Rates, month: Month) -> None:
        self.same = month.currency == rates.pricing.currency
        self.reason = f"It had no price when {month.month} was closed"
        if not self.same:
            self.reason += f", or no exchange rate from {month.currency} to {rates.pricing.currency} is given"
        self._rates = rates
        self._currency = month.currency
        self._known: dict[tuple[str | None, ...], Rate | None] = {}

    def rate(self, starts_ms: int, *texts: str | None) -> Rate | None:
        """The rate that stands in the ledger; None if there was no price, or there is no exchange rate."""
        key = texts if self.same else (str(starts_ms), *texts)
        if key not in self._known:
            self._known[key] = self._told(self._factor(starts_ms), *texts)
        return self._known[key]

    @staticmethod
    def _told(
        factor: Fraction | None, effective: str | None, listed: str | None, contracted: str | None, paid: str
    ) -> Rate | None:
        if effective is None or factor is None:
            return None
        known = {text: Fraction(text) * factor for text in {effective, listed, contracted} if text is not None}
        levels = (None if text is None else known[text] for text in (listed, contracted))
        return Rate(known[effective], *levels, tuple(_paid(paid, factor)))

    def charge(self, starts_ms: int, charge: Charge) -> Charge | None:
        factor = self._factor(starts_ms)
        if factor is None:
            return None
        listed, contracted = (None if part is None else part * factor for part in (charge.listed, charge.contracted))
        paid = tuple(part._replace(cost=part.cost * factor) for part in charge.paid)
        return charge._replace(cost=charge.cost * factor, listed=listed, contracted=contracted, paid=paid)

    def _factor(self, starts_ms: int) -> Fraction | None:
        return Fraction(1) if self.same else self._rates.told(self._currency, starts_ms)


def paid_text(paid: Sequence[Paid | Committed]) -> str:
    """What commitments pay of a rate or a charge, as it stands in the ledger."""
    return json.dumps([(commitment, str(cost), str(hours)) for commitment, cost, hours in paid]) if paid else ""


def _paid(text: str | None, factor: Fraction) -> Iterator[Paid]:
    for commitment, cost, hours in json.loads(text) if text else ():
        yield Paid(commitment, Fraction(cost) * factor, Fraction(hours))


def charges_of(connection: sqlite3.Connection, starts_ms: int, ends_ms: int) -> Iterator[tuple[int, Charge]]:
    """(day, charge) of the closed days that begin in [starts_ms, ends_ms)."""
    for at, part, label, facts, placement_id, commitment, hours, paid, *amounts in connection.execute(
        "SELECT starts_ms, part, label, facts, placement_id, commitment, node_hours, paid, cost, listed, contracted"
        " FROM closed_charges"
        " WHERE starts_ms >= ? AND starts_ms < ? ORDER BY id",
        (starts_ms, ends_ms),
    ):
        cost, listed, contracted = (None if amount is None else Fraction(amount) for amount in amounts)
        moved = Fraction(hours), tuple(Committed(*one) for one in _paid(paid, Fraction(1)))
        yield (
            at,
            Charge(part, label, cost or Fraction(0), listed, contracted, json.loads(facts), placement_id, commitment, *moved),
        )
