"""Owned commitments applied to every UTC hour of a range: what each kind of node costs then, and what stays unused.

Invariant: of each whole hour, covered use plus unused commitment costs what the commitments cost. An hour that a range
cuts keeps the rate of the whole hour, and its unused part is spread evenly, so that parts of a range add up to it.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from pricing import owned, price_steps
from pricing.ledger_merge import HOUR_MS, HOURS_PER_DAY
from pricing.sqlite_file import temporary
from pricing.owned import Commitment, Demand
from pricing.price_steps import Steps
from pricing.report import SHARE_MS_PER_HOUR
from pricing.sheets import Key, Sheet, Sheets
from pricing.usage import KINDS, Placed

HOST = KINDS.index("host")


@dataclass(slots=True)
class Coverage:
    """`unused`: commitment id -> its cost per hour that no node used."""

    unused: dict[str, Steps] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def apply(
    connection: sqlite3.Connection, placements: Mapping[int, Placed], sheets: Sheets, starts_ms: int, ends_ms: int
) -> Coverage:
    """Sets `covered` and `paid` of the sheets that commitments touch in [starts_ms, ends_ms)."""
    commitments = [one for one in sheets.terms.commitments if one.starts_ms < ends_ms and one.ends_ms > starts_ms]
    if not commitments:
        return Coverage()
    return _Application(connection, placements, sheets, commitments).run(starts_ms, ends_ms)


class _Hour(NamedTuple):
    prices: dict[Key, Fraction | None]
    """What a node-hour of each sheet costs."""
    unused: dict[str, Fraction]
    """Of each commitment."""
    paid: dict[tuple[Key, str, str], Fraction | None]
    """(sheet, commitment, "cost" or "hours") -> its part of one node-hour."""


class _Application:
    def __init__(
        self,
        connection: sqlite3.Connection,
        placements: Mapping[int, Placed],
        sheets: Sheets,
        commitments: list[Commitment],
    ) -> None:
        self._connection = connection
        self._sheets = sheets
        self._commitments = commitments
        self._exchange = {one.id: sheets.terms.exchange.steps(one.currency, sheets.currency) for one in commitments}
        self._of = {id: sheet for id, placed in placements.items() if (sheet := sheets.of(placed)).place is not None}
        self._parties = {id: max(1, placements[id].gpu_count) for id in self._of}
        self._edges = sorted({hour for sheet in self._of.values() for hour in sheet.changes()} | self._own_edges())
        self._remembered: dict[Hashable, _Hour] = {}
        self._unconverted: set[str] = set()

    def _own_edges(self) -> set[int]:
        """Hours in which a commitment begins or ends, or its exchange rate changes."""
        moments = {ms for one in self._commitments for ms in (one.starts_ms, one.ends_ms)}
        hours = {hour for ms in moments for hour in (ms // HOUR_MS, -(-ms // HOUR_MS))}
        return hours.union(*(price_steps.changes(steps) for steps in self._exchange.values() if steps))

    def run(self, starts_ms: int, ends_ms: int) -> Coverage:
        first = max(starts_ms, min(one.starts_ms for one in self._commitments)) // HOUR_MS
        last = -(-min(ends_ms, max(one.ends_ms for one in self._commitments)) // HOUR_MS)
        covered: defaultdict[Key, list[tuple[int, Fraction | None]]] = defaultdict(list)
        unused: defaultdict[str, list[tuple[int, Fraction | None]]] = defaultdict(list)
        paid: defaultdict[tuple[Key, str, str], list[tuple[int, Fraction | None]]] = defaultdict(list)
        for hour, demand in self._hours(first, last):
            for points, values in zip((covered, unused, paid), self._hour(hour, demand), strict=True):
                for key, value in values.items():
                    _append(points[key], hour, value)  # type: ignore[index]
        for sheet in {sheet.key: sheet for sheet in self._of.values()}.values():
            if sheet.key in covered:
                sheet.covered = price_steps.made(covered[sheet.key])
        for (key, id, what), points in paid.items():
            self._sheets.known[key].paid[id, what] = price_steps.made(points)
        return Coverage({id: price_steps.made(points) for id, points in unused.items()}, self._notes())

    def _hours(self, first: int, last: int) -> Iterator[tuple[int, dict[tuple[Key, int], int]]]:
        """Every hour with what ran in it: (sheet, parties) -> share x ms."""
        kinds = {id: (sheet.key, self._parties[id]) for id, sheet in self._of.items()}
        ones: dict[tuple[Key, int], int] = {}
        alike = {id: ones.setdefault(kind, id) for id, kind in kinds.items()}
        with temporary(self._connection, "covered", alike):
            due = first
            for hour, same in groupby(self._rows(first, last), key=itemgetter(0)):
                yield from ((empty, {}) for empty in range(due, hour))
                demand: defaultdict[tuple[Key, int], int] = defaultdict(int)
                for _, one, host, share_ms in same:
                    key, parties = kinds[one]
                    demand[key, 1 if host else parties] += share_ms
                yield hour, demand
                due = hour + 1
            yield from ((empty, {}) for empty in range(due, last))

    def _rows(self, first: int, last: int) -> Iterator[tuple[int, int, int, int]]:
        """(hour, placement that stands for its kind, whether of hosts, share x ms), a day at a time: a sort in memory."""
        for begin in range(first, last, HOURS_PER_DAY):
            yield from self._connection.execute(
                "SELECT at, one, kind = ?, SUM(share_ms) FROM hours CROSS JOIN temp.covered ON covered.id = placement_id"
                " WHERE at >= ? AND at < ? GROUP BY 1, 2, 3",
                (HOST, begin, min(begin + HOURS_PER_DAY, last)),
            )

    def _hour(self, hour: int, demand: Mapping[tuple[Key, int], int]) -> _Hour:
        """Most hours are like others."""
        like = (bisect_right(self._edges, hour), frozenset(demand.items()))
        found = self._remembered.get(like)
        if found is None:
            found = self._remembered[like] = self._covered(hour, demand)
        return found

    def _covered(self, hour: int, demand: Mapping[tuple[Key, int], int]) -> _Hour:
        node_hours: defaultdict[Key, Fraction] = defaultdict(Fraction)
        for (key, parties), share_ms in demand.items():
            node_hours[key] += Fraction(share_ms, SHARE_MS_PER_HOUR * parties)
        held = self._held(hour)
        demands = {key: self._demand(self._sheets.known[key], held, hour, amount) for key, amount in node_hours.items()}
        result = owned.cover([one for one, _ in held], demands, hour)
        prices: dict[Key, Fraction | None] = {}
        for key, amount in node_hours.items():
            part = result.covered.get(key)
            if part is None:
                prices[key] = None
                continue
            rest = amount - part.hours
            contracted = price_steps.hour_rate(self._sheets.known[key].contracted, hour)
            if not rest:
                prices[key] = part.cost / amount
            else:
                prices[key] = None if contracted is None else (part.cost + rest * contracted) / amount
        paid: dict[tuple[Key, str, str], Fraction | None] = {}
        for key, payers in result.paid.items():
            for id, part in payers.items():
                paid[key, id, "cost"] = part.cost / node_hours[key]  # type: ignore[index]
                paid[key, id, "hours"] = part.hours / node_hours[key]  # type: ignore[index]
        return _Hour(prices, result.unused, paid)

    def _held(self, hour: int) -> list[tuple[Commitment, Fraction]]:
        """The commitments of an hour in the report's currency, each with the exchange rate."""
        found = []
        for one in self._commitments:
            steps = self._exchange[one.id]
            factor = None if steps is None else price_steps.hour_rate(steps, hour)
            if factor is None:
                self._unconverted.add(one.id)
            else:
                found.append((replace(one, cost_per_hour=one.cost_per_hour * factor), factor))
        return found

    def _demand(self, sheet: Sheet, held: list[tuple[Commitment, Fraction]], hour: int, node_hours: Fraction) -> Demand:
        assert sheet.place is not None  # noqa: S101 - `_of` holds no other
        rates = {
            plan.id: rate
            for plan, factor in held
            if plan.kind == "savings_plan" and plan.matches(sheet.place)
            if (rate := self._sheets.plan_rate(plan, sheet, hour, factor)) is not None
        }
        return Demand(sheet.place, node_hours, price_steps.hour_rate(sheet.listed, hour), rates)

    def _notes(self) -> list[str]:
        exchange, currency = self._sheets.terms.exchange, self._sheets.currency
        return [
            f"commitment {one.id} is in no cost for some or all of the time. {exchange.why_not(one.currency, currency)}."
            for one in self._commitments
            if one.id in self._unconverted
        ]


def _append(points: list[tuple[int, Fraction | None]], hour: int, value: Fraction | None) -> None:
    """The value of one hour; before and after it there is none unless its neighbours say so."""
    at = hour * HOUR_MS
    if points and points[-1][0] == at:
        points.pop()
    points += [(at, value), (at + HOUR_MS, None)]
