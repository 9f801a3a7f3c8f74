"""The price of each placement in a ledger, hour by hour, as a rate per millisecond and millionth of a GPU.

Invariant: within an epoch no rate changes, and each UTC hour has one rate per placement; so whole numbers can be added up
first and multiplied once. A price that is not known, or in a currency without an exchange rate, has no rate but a reason.
"""

from __future__ import annotations

import json
import sqlite3
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

from pricing import calendar, coverage, interrupted, price_steps, sheets
from pricing.grouping import Holder
from pricing.ledger_dictionary import read_placements
from pricing.ledger_merge import HOUR_MS
from pricing.ledger_totals import Among, Total, totals
from pricing.money import PerHour
from pricing.price_steps import PriceBook
from pricing.report import SHARE_MS_PER_HOUR
from pricing.sheets import Catalog, Key, Sheet, Sheets
from pricing.terms import Terms
from pricing.usage import KINDS, Placed

__all__ = ["Catalog", "Epoch", "Pricing", "Rate", "Rates"]

_NOTHING = Fraction(0)
_HOST, _DOWN = KINDS.index("host"), KINDS.index("down")
_NO_GPUS = sheets.unknown("Its agent reports GPUs in use but says that it has none; is the agent of another version?")


class Paid(NamedTuple):
    """The part that one commitment covers: its cost, and the node-hours."""

    commitment: str
    cost: Fraction
    hours: Fraction


class Rate(NamedTuple):
    """Of one millisecond of a millionth of a GPU (of the whole node for a host row)."""

    effective: Fraction
    """What it comes to, with the contract's discounts and the owned commitments."""
    listed: Fraction | None
    contracted: Fraction | None
    paid: tuple[Paid, ...] = ()
    """What of `effective` owned commitments pay."""


FREE = Rate(_NOTHING, _NOTHING, _NOTHING)
"""Of time that the cloud does not bill."""
_FREE = -2
"""Number of an epoch in which what is added up costs nothing."""


class Epoch(NamedTuple):
    """A stretch in which no rate changes. Two of the same `number` have the same rates."""

    number: int
    starts_ms: int
    ends_ms: int


class Pricing(NamedTuple):
    """By what a report is priced."""

    catalog: Catalog
    prices: Mapping[str, PerHour] = {}
    currency: str = "USD"
    terms: Terms = Terms()
    book: PriceBook | None = None


class Rates:
    """Placements and holders of a ledger, and what each placement costs in [start, end)."""

    def __init__(
        self, pricing: Pricing, connection: sqlite3.Connection, start: datetime, end: datetime, *, covered: bool = True
    ) -> None:
        """`covered` False leaves the owned commitments out: they have to look at every hour's usage."""
        self.placements: dict[int, Placed] = read_placements(connection)
        self.holders = {id: Holder(*names) for id, *names in connection.execute("SELECT id, user, project, job FROM holders")}
        self.pricing = pricing
        span = calendar.milliseconds(start) // HOUR_MS * HOUR_MS, -(-calendar.milliseconds(end) // HOUR_MS) * HOUR_MS
        hours = calendar.instant(span[0]), calendar.instant(span[1])  # an hour has one rate, however a range cuts it
        self._sheets = Sheets(pricing.catalog, pricing.prices, pricing.currency, pricing.terms, pricing.book, hours)
        self.coverage = coverage.apply(connection, self.placements, self._sheets, *span) if covered else coverage.Coverage()
        self._edges = self._changes()
        self._free = interrupted.free_time(connection, self.placements, pricing.terms.rules)
        self._span = span
        self._divided: dict[tuple[Key, int], tuple[int, Rate | None]] = {}

    def _changes(self) -> list[int]:
        """The moments at which any rate changes; none where the catalog's constant prices are all there is."""
        terms = self.pricing.terms
        if self.pricing.book is None and not (terms.discounts or terms.commitments or terms.exchange.usd):
            return []
        return sorted({hour * HOUR_MS for sheet in self.sheets() for hour in sheet.changes()})

    def sheets(self, placement_ids: Iterable[int] | None = None) -> list[Sheet]:
        """The prices of the kinds of node that these placements (or all) are."""
        ids = self.placements if placement_ids is None else placement_ids
        return list({(sheet := self._sheets.of(self.placements[id])).key: sheet for id in ids}.values())

    def passes(self, starts_ms: int, ends_ms: int) -> Iterator[tuple[Epoch, Among | None]]:
        """Each epoch with the placements to add up in it: those whose price never changes need only one."""
        constant = bisect_right(self._edges, starts_ms) == bisect_left(self._edges, ends_ms)
        if constant or self._varying is None:
            yield from ((epoch, None) for epoch in self.epochs(starts_ms, ends_ms))
            return
        yield Epoch(-1, starts_ms, ends_ms), Among(self._varying, within=False)
        yield from ((epoch, Among(self._varying, within=True)) for epoch in self.epochs(starts_ms, ends_ms))

    @cached_property
    def _varying(self) -> str | None:
        """The placements whose price changes, as JSON; None where all are, or none is."""
        varying = [id for id, placed in self.placements.items() if self._sheet(placed, host=True).varies] if self._edges else []
        return json.dumps(varying) if 0 < len(varying) < len(self.placements) else None

    def freed(self, connection: sqlite3.Connection, starts_ms: int, ends_ms: int) -> Iterator[tuple[Epoch, Total]]:
        """What is to be added beside the passes for time that a cloud does not bill: away at its rate, and here at none."""
        for id, since, until in self.free_windows(starts_ms, ends_ms):
            only = Among(json.dumps([id]), within=True)
            for epoch in self.epochs(since, until):
                for total in totals(connection, epoch.starts_ms, epoch.ends_ms, only):
                    if self.rate(id, host=self.of_host(total), epoch=epoch) is not None:
                        yield epoch, total.negative()
                        yield epoch._replace(number=_FREE), total

    def free_windows(self, starts_ms: int, ends_ms: int) -> Iterator[tuple[int, int, int]]:
        """(placement, from, to) of all time in [starts_ms, ends_ms) that a cloud does not bill."""
        for id in self._free:
            for free in self._freed(id, starts_ms, ends_ms):
                yield id, max(starts_ms, free.starts_ms), min(ends_ms, free.ends_ms)

    def _freed(self, placement_id: int, starts_ms: int, ends_ms: int) -> list[interrupted.Free]:
        """What of a stretch the placement's cloud does not bill."""
        return [one for one in self._free.get(placement_id, ()) if one.starts_ms < ends_ms and one.ends_ms > starts_ms]

    def epochs(self, starts_ms: int, ends_ms: int) -> Iterator[Epoch]:
        """[starts_ms, ends_ms) cut where a rate changes."""
        place = bisect_right(self._edges, starts_ms)
        for edge in self._edges[place : bisect_left(self._edges, ends_ms)]:
            yield Epoch(place, starts_ms, edge)
            starts_ms, place = edge, place + 1
        if starts_ms < ends_ms:
            yield Epoch(place, starts_ms, ends_ms)

    def rate(self, placement_id: int, *, host: bool, epoch: Epoch) -> Rate | None:
        """The rate of a placement in an epoch; None if its price is not known."""
        if epoch.number == _FREE:
            return FREE
        placed = self.placements[placement_id]
        sheet, parties = self._sheet(placed, host), _parties(placed, host)
        number = epoch.number if sheet.varies else 0
        found = self._divided.get((sheet.key, parties))
        if found is None or found[0] != number:
            found = self._divided[sheet.key, parties] = number, _rate(sheet, parties, epoch.starts_ms // HOUR_MS)
        return found[1]

    def always_priced(self, placement_id: int) -> bool:
        """Whether each moment has a price, of the whole node and of its GPUs."""
        placed = self.placements[placement_id]
        return placed.gpu_count > 0 and all(price is not None for _, price in self._sheets.of(placed).contracted)

    def of_host(self, total: Total) -> bool:
        """Whether it is of a whole node, not of one of its GPUs."""
        return total.kind == _HOST or (total.kind == _DOWN and not self.placements[total.placement_id].gpu_count)

    def lacks_gpus(self, placed: Placed) -> bool:
        """Whether the instance type has GPUs, so that a node of it that shows none has lost its driver."""
        if placed.cloud is None or placed.instance_type is None:
            return False
        shape = self.pricing.catalog.instance(placed.cloud, placed.instance_type)
        return shape is not None and shape.kind == "gpu" and bool(shape.gpu_count)

    def sentences(self, unpriced: Mapping[tuple[int, bool, str], int]) -> tuple[str, ...]:
        """What has no price: one sentence per node and reason, with its node-hours.

        Keys are (placement, host, reason of a closed month or empty).
        """
        hours: dict[tuple[str, str], Fraction] = {}
        for (placement_id, host, reason), share_ms in unpriced.items():
            placed = self.placements[placement_id]
            key = (placed.node, reason or self._sheet(placed, host).reason)
            part = Fraction(share_ms, SHARE_MS_PER_HOUR * _parties(placed, host))
            hours[key] = hours.get(key, Fraction(0)) + part
        return tuple(
            f"node {node}: {float(amount):,.2f} h have no price and are in no cost. {reason.rstrip('.')}."
            for (node, reason), amount in sorted(hours.items())
        )

    def notes(self) -> tuple[str, ...]:
        """Which exchange rates were used, and which commitments could not be told in the report's currency."""
        exchange = self.pricing.terms.exchange
        used = [exchange.used(currency, self.pricing.currency) for currency in sorted(self._sheets.converted)]
        return (*used, *self.coverage.notes, *self._untold(), *self.free_notes(*self._span))

    def free_notes(self, starts_ms: int, ends_ms: int) -> tuple[str, ...]:
        """What of a stretch costs nothing because a cloud took the node back."""
        return tuple(dict.fromkeys(free.note for id in self._free for free in self._freed(id, starts_ms, ends_ms)))

    def _untold(self) -> Iterator[str]:
        """Monthly items that no exchange rate turns into the report's currency."""
        exchange, currency = self.pricing.terms.exchange, self.pricing.currency
        for item in self.pricing.terms.items:
            steps = exchange.steps(item.currency, currency)
            if steps is None or (steps[0][1] is None and item.starts_ms < (steps + steps)[1][0]):
                yield f"{item.kind} {item.name} is in no cost for some or all of the time. {exchange.why_not(item.currency, currency)}."

    def told(self, currency: str, at_ms: int) -> Fraction | None:
        """What one unit of `currency` is in the report's at a moment; None without a rate."""
        steps = self.pricing.terms.exchange.steps(currency, self.pricing.currency)
        return None if steps is None else price_steps.value_at(steps, at_ms)

    def is_free(self, placement_id: int, at_ms: int) -> bool:
        """Whether the cloud does not bill the node for that moment."""
        return bool(self._freed(placement_id, at_ms, at_ms + 1))

    def node_price(self, placement_id: int, at_ms: int) -> tuple[Fraction | None, Fraction | None]:
        """(list, contracted) price per hour of the whole node in the hour that holds a moment."""
        sheet = self._sheet(self.placements[placement_id], host=True)
        hour = at_ms // HOUR_MS
        return price_steps.hour_rate(sheet.listed, hour), price_steps.hour_rate(sheet.contracted, hour)

    def _sheet(self, placed: Placed, host: bool) -> Sheet:
        return self._sheets.of(placed) if host or placed.gpu_count else _NO_GPUS


def _rate(sheet: Sheet, parties: int, hour: int) -> Rate | None:
    covered = None if sheet.covered is None else price_steps.hour_rate(sheet.covered, hour)
    listed, contracted = price_steps.hour_rate(sheet.listed, hour), price_steps.hour_rate(sheet.contracted, hour)
    effective = contracted if covered is None else covered
    if effective is None:
        return None
    unit = SHARE_MS_PER_HOUR * parties
    rate = effective / unit  # equal levels are one object, by which they are known again quickly
    levels = (rate if price == effective else None if price is None else price / unit for price in (listed, contracted))
    return Rate(rate, *levels, tuple(_paid(sheet, unit, hour)))


def _paid(sheet: Sheet, unit: int, hour: int) -> Iterator[Paid]:
    for id, what in sheet.paid:
        if what == "cost":
            cost, hours = (price_steps.hour_rate(sheet.paid[id, name], hour) for name in ("cost", "hours"))
            if cost is not None and hours is not None:
                yield Paid(id, cost / unit, hours / unit)


def _parties(placed: Placed, host: bool) -> int:
    """Among how many GPUs the node's price is divided."""
    return 1 if host else max(1, placed.gpu_count)
