"""Usage x price: who caused which cost, and what stood idle.

Invariant: for every node and interval, what is allocated plus what is idle is price x time, exactly: whole numbers are
added up in SQL, multiplied as Fractions, and never rounded here. Where the ledger has no rows, there is no cost.

Time that is `held` belongs to its holder; `idle`, `lost` and `down` time is idle cost, in three columns. A node without
GPUs belongs to `(host)`, unless its instance type has GPUs: then its driver is gone, and all of it is idle (lost).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import NamedTuple

from pricing import calendar, grouping
from pricing.errors import BadRange
from pricing.grouping import Holder
from pricing.ledger import Ledger
from pricing.ledger_totals import Total, extent, totals
from pricing.money import PerHour
from pricing.rates import Catalog, Rates
from pricing.report import Report, Row
from pricing.usage import KINDS

HELD, IDLE, LOST, DOWN, HOST = range(len(KINDS))
_COLUMN = {HELD: 0, IDLE: 1, LOST: 2, DOWN: 3, HOST: 0}
"""Kind -> place in `report.COST_PARTS`."""
_NOTHING = Fraction(0)


class CostSummary(NamedTuple):
    """Calendar day and month so far, each a report without groups: look at `.totals`."""

    today: Report
    month: Report


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
) -> Report:
    """The cost of [start, end) grouped by any of `grouping.KEYS` and `tag:NAME`; days are those of `tz`.

    `prices`: node name -> price per hour of the whole node, instead of the catalog's. A price in another currency than
    `currency` counts as unknown. BadRange, BadGrouping, LedgerError.
    """
    keys = grouping.parse_by(by)
    calendar.zone(tz)
    if start.tzinfo is None or end.tzinfo is None or end <= start:
        raise BadRange(f"The range from {start} to {end} is none: both need a time zone, and the end comes after the start.")
    with ledger.reading() as connection:
        books = _Books(keys, Rates(catalog, connection, prices or {}, currency))
        for label, starts_ms, ends_ms in _stretches(keys, extent(connection), start, end, tz):
            for total in totals(connection, starts_ms, ends_ms):
                books.add(label, total)
    return Report(
        rows=books.rows(),
        totals=books.totals(),
        start=start.astimezone(UTC),
        end=end.astimezone(UTC),
        tz=tz,
        currency=currency,
        group_by=keys,
        unpriced=books.rates.sentences(books.unpriced),
        missing=tuple(_missing(ledger, calendar.milliseconds(start), calendar.milliseconds(end))),
    )


def cost_summary(
    ledger: Ledger, catalog: Catalog, now: datetime, tz: str = "UTC", *, prices: Mapping[str, PerHour] | None = None
) -> CostSummary:
    """Today's and this month's cost up to `now`, in calendar days of `tz`."""
    today, month = calendar.day_start(now, tz), calendar.month_start(now, tz)
    moment = max(now, today + timedelta(milliseconds=1))
    return CostSummary(
        today=attribute(ledger, catalog, today, moment, tz=tz, prices=prices),
        month=attribute(ledger, catalog, month, moment, tz=tz, prices=prices),
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


def _stretches(
    keys: Sequence[str], known: tuple[int, int] | None, start: datetime, end: datetime, tz: str
) -> Iterator[tuple[str, int, int]]:
    """(day, from, to) in milliseconds, cut to what the ledger holds; without days, one stretch."""
    if known is None:
        return
    first = max(start, calendar.instant(known[0]))
    last = min(end, calendar.instant(known[1]))
    if last <= first:
        return
    parts = calendar.days(first, last, tz) if "day" in keys else [calendar.Day("", first, last)]
    for day in parts:
        yield day.label, calendar.milliseconds(day.start), calendar.milliseconds(day.end)


class _Group:
    """What has been added up for one set of labels. `costs`: place of the rate -> share x ms of each cost part."""

    __slots__ = ("held", "idle", "busy", "measured", "energy_mj", "costs", "unpriced")

    def __init__(self) -> None:
        self.held = self.idle = self.busy = self.measured = 0
        self.energy_mj: int | None = None
        self.costs: dict[int, list[int]] = {}
        self.unpriced = False

    def add(self, total: Total, column: int, rate: int | None) -> None:
        if total.kind == HELD:
            self.held += total.share_ms
            self.busy += total.busy
            self.measured += total.measured_share_ms
        elif total.kind != HOST:
            self.idle += total.share_ms
        if total.energy_mj is not None:
            self.energy_mj = (self.energy_mj or 0) + total.energy_mj
        if rate is None:
            self.unpriced = True
        else:
            self.costs.setdefault(rate, [0, 0, 0, 0])[column] += total.share_ms

    def join(self, other: _Group) -> None:
        """Adds all of `other`."""
        self.held += other.held
        self.idle += other.idle
        self.busy += other.busy
        self.measured += other.measured
        if other.energy_mj is not None:
            self.energy_mj = (self.energy_mj or 0) + other.energy_mj
        self.unpriced |= other.unpriced
        for rate, amounts in other.costs.items():
            mine = self.costs.setdefault(rate, [0, 0, 0, 0])
            for column, amount in enumerate(amounts):
                mine[column] += amount

    def row(self, keys: tuple[str, ...], rates: Sequence[Fraction]) -> Row:
        parts: list[Fraction | None] = [None] * 4
        if self.costs or not self.unpriced:
            parts = [_cost(self.costs, column, rates) for column in range(4)]
        whole = None if parts[0] is None else sum((part for part in parts if part), _NOTHING)
        nothing = None if whole is None else _NOTHING
        return Row(
            keys, self.held, self.idle, self.busy, self.measured, self.energy_mj, *parts, not self.unpriced,
            nothing, nothing, nothing, nothing, whole, whole,
        )  # fmt: skip


def _cost(costs: Mapping[int, Sequence[int]], column: int, rates: Sequence[Fraction]) -> Fraction:
    cost = _NOTHING
    for rate, amounts in costs.items():
        if amounts[column]:
            part = rates[rate] * amounts[column]
            cost = cost + part if cost else part
    return cost


class _Books:
    """Adds totals to their groups; remembers labels and rates, which few placements and holders share."""

    def __init__(self, keys: tuple[str, ...], rates: Rates) -> None:
        self.rates = rates
        self.unpriced: defaultdict[tuple[int, bool], int] = defaultdict(int)
        """(placement, host) -> share x ms without a price."""
        self._keys = keys
        self._day = keys.index("day") if "day" in keys else None
        self._groups: defaultdict[tuple[str, ...], _Group] = defaultdict(_Group)
        self._known: dict[tuple[int, int, int], tuple[tuple[str | None, ...], int, int | None]] = {}
        self._rates: dict[Fraction, int] = {}

    def add(self, day: str, total: Total) -> None:
        place = total[:3]
        found = self._known.get(place)
        if found is None:
            found = self._known[place] = self._meaning(total)
        labels, column, rate = found
        if self._day is not None:
            labels = (*labels[: self._day], day, *labels[self._day + 1 :])
        self._groups[labels].add(total, column, rate)  # type: ignore[index]
        if rate is None:
            self.unpriced[total.placement_id, total.kind == HOST] += total.share_ms

    def _meaning(self, total: Total) -> tuple[tuple[str | None, ...], int, int | None]:
        """(labels, cost part, place of the rate)."""
        placed, host = self.rates.placements[total.placement_id], total.kind == HOST
        column = _COLUMN[total.kind]
        holder: Holder | str = grouping.IDLE
        if total.kind == HELD:
            holder = self.rates.holders[total.holder_id]
        elif host and self.rates.lacks_gpus(placed):
            column = _COLUMN[LOST]
        elif host:
            holder = grouping.HOST
        rate = self.rates.per_share_ms(total.placement_id, host=host)
        place = None if rate is None else self._rates.setdefault(rate, len(self._rates))
        return grouping.labels(self._keys, placed, holder), column, place

    def rows(self) -> tuple[Row, ...]:
        """One row per group, names before our own labels."""
        rates = tuple(self._rates)
        ordered = sorted(self._groups, key=grouping.order)
        return tuple(self._groups[keys].row(keys, rates) for keys in ordered)

    def totals(self) -> Row:
        """All groups together; costs are of what has a price."""
        total = _Group()
        for group in self._groups.values():
            total.join(group)
        return total.row((), tuple(self._rates))
