"""Usage x price: who caused which cost, and what stood idle.

Invariant: for every node and interval, what is allocated plus what is idle is price x time, exactly: whole numbers are
added up in SQL, multiplied as Fractions, and never rounded here. Where the ledger has no rows, no node costs anything.
With owned commitments, allocated + idle + unused commitment is the bill: the cost of the commitments and of what they
do not cover, at the contract's prices.

Time that is `held` belongs to its holder; `idle`, `lost` and `down` time is idle cost, in three columns. A node without
GPUs belongs to `(host)`, unless its instance type has GPUs: then its driver is gone, and all of it is idle (lost).
Days of a closed month that lie wholly in the range are told as they were closed (see `pricing.closing`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from pricing import calendar, charges, closed, cpu_use, garbage, grouping
from pricing.alike import alike
from pricing.books import Books
from pricing.errors import BadRange
from pricing.ledger import Ledger
from pricing.ledger_merge import HOUR_MS
from pricing.ledger_totals import Sums, cut_notes, extent
from pricing.money import PerHour
from pricing.price_steps import PriceBook
from pricing.rates import Catalog, Pricing, Rates
from pricing.report import Report
from pricing.terms import Terms


class CostSummary(NamedTuple):
    """Calendar day and month so far, each a report without groups: look at `.totals`."""

    today: Report
    month: Report


class _Stretch(NamedTuple):
    """A calendar day of the report, or (without days) all of it, in UTC milliseconds."""

    label: str
    starts_ms: int
    ends_ms: int


@garbage.paused()
def attribute(
    ledger: Ledger,
    catalog: Catalog,
    start: datetime,
    end: datetime,
    by: Sequence[str] | str = (),
    *,
    tz: str = "UTC",
    prices: Mapping[str, PerHour] | None = None,
    currency: str = "USD",
    terms: Terms | None = None,
    book: PriceBook | None = None,
    now: datetime | None = None,
) -> Report:
    """The cost of [start, end) grouped by any of `grouping.KEYS` and `tag:NAME`; days are those of `tz`.

    `prices`: node name -> price per hour of the whole node, instead of the catalog's. `terms`: discounts, commitments,
    exchange rates; a price in another currency than `currency` without an exchange rate counts as unknown. `book`:
    prices over time. `now`: commitments and monthly items count until then (default: the end of the ledger).
    BadRange, BadGrouping, LedgerError.
    """
    keys = grouping.parse_by(by)
    calendar.zone(tz)
    if start.tzinfo is None or end.tzinfo is None or end <= start:
        raise BadRange(f"The range from {start} to {end} is none: both need a time zone, and the end comes after the start.")
    pricing = Pricing(catalog, prices or {}, currency, terms or Terms(), book)
    cut: tuple[str, ...] = ()
    with ledger.reading() as connection:
        known = extent(connection)
        until = min(end, now or (calendar.instant(known[1]) if known else end))
        rates = Rates(pricing, connection, start, max(until, start))
        books = Books(keys, rates)
        past = closed.Past.read(connection, start, end)
        if known is not None:
            stretches = list(_stretches(keys, *_widened(known, pricing.terms, until, past), start, end, tz))
            cut = cut_notes(connection, _live_edges(past, stretches))
            cut += tuple(cpu_use.notes(rates, connection, calendar.milliseconds(start), calendar.milliseconds(end)))
            with alike(connection, books) as together:
                sums = Sums(connection, together)
                for stretch in stretches:
                    _add(books, sums, past, stretch, calendar.milliseconds(until))
        for day, charge in past.adjustments(rates, tz):
            books.charge(day, charge)
    return Report(
        rows=books.rows(),
        totals=books.totals(),
        start=start.astimezone(UTC),
        end=end.astimezone(UTC),
        tz=tz,
        currency=currency,
        group_by=keys,
        unpriced=rates.sentences(books.unpriced),
        missing=tuple(_missing(ledger, calendar.milliseconds(start), calendar.milliseconds(end))),
        notes=(*rates.notes(), *past.notes, *cut),
    )


def cost_summary(
    ledger: Ledger,
    catalog: Catalog,
    now: datetime,
    tz: str = "UTC",
    *,
    prices: Mapping[str, PerHour] | None = None,
    currency: str = "USD",
    terms: Terms | None = None,
    book: PriceBook | None = None,
) -> CostSummary:
    """Today's and this month's cost up to `now`, in calendar days of `tz`."""
    today, month = calendar.day_start(now, tz), calendar.month_start(now, tz)
    moment = max(now, today + timedelta(milliseconds=1))
    return CostSummary(
        *(
            attribute(
                ledger, catalog, since, moment, tz=tz, prices=prices, currency=currency, terms=terms, book=book, now=moment
            )
            for since in (today, month)
        )
    )


def _missing(ledger: Ledger, starts_ms: int, ends_ms: int) -> Iterator[str]:
    """What an agent threw away before it was synced, as far as it may lie in the range."""
    for gap in ledger.gaps():
        after = starts_ms if gap.after_ms is None else gap.after_ms
        before = ends_ms if gap.before_ms is None else gap.before_ms
        if after < ends_ms and before > starts_ms:
            yield (
                f"node {gap.node}: usage rows {gap.from_sequence} to {gap.to_sequence} were no longer kept by its agent "
                "when it was synced; their time is in no cost. Sync more often, or raise its retention_days."
            )


def _widened(known: tuple[int, int], terms: Terms, until: datetime, past: closed.Past) -> tuple[int, int]:
    """What the ledger holds, and the time in which commitments or items cost something without it."""
    starts = [one.starts_ms // HOUR_MS * HOUR_MS for one in terms.commitments]
    starts += [item.starts_ms for item in terms.items]
    starts += [day.starts_ms for day in past.days]
    ends = [day.ends_ms for day in past.days]
    if terms.commitments or terms.items:
        ends.append(calendar.milliseconds(until))
    return min(known[0], *starts) if starts else known[0], max(known[1], *ends) if ends else known[1]


def _stretches(
    keys: Sequence[str], starts_ms: int, ends_ms: int, start: datetime, end: datetime, tz: str
) -> Iterator[_Stretch]:
    """The report's days (without days, one stretch), cut to what costs something."""
    first = max(start, calendar.instant(starts_ms))
    last = min(end, calendar.instant(ends_ms))
    if last <= first:
        return
    parts = calendar.days(first, last, tz) if "day" in keys else [calendar.Day("", first, last)]
    for day in parts:
        yield _Stretch(day.label, calendar.milliseconds(day.start), calendar.milliseconds(day.end))


def _live_edges(past: closed.Past, stretches: Sequence[_Stretch]) -> Iterator[int]:
    """Where what is not closed begins and ends."""
    for stretch in stretches:
        for piece in past.pieces(stretch.starts_ms, stretch.ends_ms):
            if piece.closed is None:
                yield from (piece.starts_ms, piece.ends_ms)


def _add(books: Books, sums: Sums, past: closed.Past, stretch: _Stretch, until_ms: int) -> None:
    """One stretch: closed days as they were closed, the rest as the rows and prices are now."""
    for piece in past.pieces(stretch.starts_ms, stretch.ends_ms):
        if piece.closed:
            past.add(books, sums.connection, stretch.label, piece)
            continue
        _add_live(books, sums, stretch.label, piece.starts_ms, piece.ends_ms, until_ms)


def _add_live(books: Books, sums: Sums, label: str, starts_ms: int, ends_ms: int, until_ms: int) -> None:
    """What the rows and prices say of [starts_ms, ends_ms); what is owed without rows counts until `until_ms`."""
    for epoch, among in books.rates.passes(starts_ms, ends_ms):
        books.begin(epoch)
        for total in sums.of(epoch.starts_ms, epoch.ends_ms, among):
            books.add(label, total)
    for epoch, total in books.rates.freed(sums.connection, starts_ms, ends_ms):
        books.begin(epoch)
        books.add(label, total)
    for charge in charges.charges(books.rates, sums.connection, starts_ms, min(ends_ms, until_ms), books.stands_for):
        books.charge(label, charge)
