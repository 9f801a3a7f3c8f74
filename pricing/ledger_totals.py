"""What the ledger holds for a stretch of time, added up per placement, kind and holder.

Invariant: sums are exact and of whole numbers, and those of adjacent stretches sum to those of the whole: time, energy
and busy time of a row that is cut are split so that the parts sum to it. (A placement's sum stays below 2^63 for 290
GPU-years; where placements are added up together, no query takes more than that.)

Of an hour whose rows were rolled up (`ledger_retention`) only the sums are left: whole hours are as exact as before, and
where a range cuts such an hour, its sums are spread evenly over it, so that the parts still sum to the whole.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

from pricing.ledger_merge import HOUR_MS, HOURS_PER_DAY, portion

DAY_MS = HOUR_MS * HOURS_PER_DAY
_EDGES = 4
"""So many are remembered: the next day begins where the day before ended."""
_NAMES = "placement_id, kind, holder_id"
_AMOUNTS = "share_ms, busy, measured_share_ms, energy_mj"
_SUMS = "SUM(share_ms), SUM(busy), SUM(measured_share_ms), SUM(energy_mj)"


class Total(NamedTuple):
    """`share_ms`: share (millionths) x ms; `busy`: of which a kernel ran; `measured_share_ms`: of which that is known."""

    placement_id: int
    kind: int
    """Index into `usage.KINDS`."""
    holder_id: int
    share_ms: int
    busy: int
    measured_share_ms: int
    energy_mj: int | None

    def negative(self) -> Total:
        """What takes it away again."""
        energy_mj = None if self.energy_mj is None else -self.energy_mj
        return Total(*self[:3], -self.share_ms, -self.busy, -self.measured_share_ms, energy_mj)


class Among(NamedTuple):
    """Only these placements, or (`within` False) all others. `ids`: a JSON array, which SQLite takes as one parameter."""

    ids: str
    within: bool

    def condition(self) -> str:
        return f" AND placement_id {'' if self.within else 'NOT '}IN (SELECT value FROM json_each(?))"


class Together(Protocol):
    """Which placements and holders may be added up as one (`pricing.alike`): SQL knows them by one number."""

    number: str
    """Of a row, in SQL."""
    joins: str
    days: int
    """Of so many days at most the sums fit."""

    def names(self, number: int) -> tuple[int, int, int]:
        """(placement, kind, holder) that stand for all that have this number."""
        ...


def extent(connection: sqlite3.Connection) -> tuple[int, int] | None:
    """[from, to) in UTC milliseconds, whole hours, that holds all rows; None for an empty ledger."""
    first, last = connection.execute("SELECT (SELECT MIN(at) FROM hours), (SELECT MAX(at) FROM hours)").fetchone()
    return None if first is None else (first * HOUR_MS, (last + 1) * HOUR_MS)


def totals(connection: sqlite3.Connection, starts_ms: int, ends_ms: int, among: Among | None = None) -> Iterator[Total]:
    """The sums of [starts_ms, ends_ms); one (placement, kind, holder) may come several times."""
    return Sums(connection).of(starts_ms, ends_ms, among)


class _Edge(NamedTuple):
    """A moment as a UTC midnight and what lies between both: after it (`sign` 1), or before it (-1)."""

    day: int
    sign: int
    between: list[Total]


class Sums:
    """Reads sums of stretches, within one transaction. `together`: as one what is alike (else each on its own)."""

    def __init__(self, connection: sqlite3.Connection, together: Together | None = None) -> None:
        self.connection = connection
        self._together = together
        self._edges: dict[tuple[int, Among | None], _Edge] = {}

    def of(self, starts_ms: int, ends_ms: int, among: Among | None = None) -> Iterator[Total]:
        """The sums of [starts_ms, ends_ms); one (placement, kind, holder) may come several times."""
        if _nearest_midnight(starts_ms) >= _nearest_midnight(ends_ms):
            yield from self._hourly(starts_ms, ends_ms, among)
            return
        start, end = (self._edge(edge, among) for edge in (starts_ms, ends_ms))
        if (start.between and start.sign > 0) or (end.between and end.sign < 0):
            yield from self._less(starts_ms, ends_ms, among, start, end)
            return
        yield from self._summed("days", start.day, end.day, among)
        yield from start.between
        yield from end.between

    def _edge(self, at_ms: int, among: Among | None) -> _Edge:
        found = self._edges.get((at_ms, among))
        if found is None:
            day = _nearest_midnight(at_ms)
            span = sorted((day * DAY_MS, at_ms))
            found = _Edge(day, 1 if day * DAY_MS <= at_ms else -1, list(self._hourly(*span, among)))
            self._edges[at_ms, among] = found
            if len(self._edges) > _EDGES:
                del self._edges[next(iter(self._edges))]
        return found

    def _less(self, starts_ms: int, ends_ms: int, among: Among | None, start: _Edge, end: _Edge) -> Iterator[Total]:
        """Whole days, less what lies between an edge and a midnight outside of it."""
        sums: dict[tuple[int, int, int], list[int]] = {}
        energy: dict[tuple[int, int, int], int | None] = {}
        parts = ((1, self._summed("days", start.day, end.day, among)), (end.sign, end.between), (-start.sign, start.between))
        for sign, part in parts:
            for total in part:
                names = total[:3]
                amounts = sums.get(names)
                if amounts is None:
                    amounts, energy[names] = sums.setdefault(names, [0, 0, 0]), None
                amounts[0] += sign * total.share_ms
                amounts[1] += sign * total.busy
                amounts[2] += sign * total.measured_share_ms
                if total.energy_mj is not None:
                    energy[names] = (energy[names] or 0) + sign * total.energy_mj
        unsure = any(energy[names] == 0 and amounts[0] for names, amounts in sums.items())
        measured = self._measured(starts_ms, ends_ms, among) if unsure else set()
        for names, (share_ms, busy, measured_share_ms) in sums.items():
            if share_ms:
                known = energy[names] if energy[names] != 0 or names in measured else None
                yield Total(*names, share_ms, busy, measured_share_ms, known)

    def _measured(self, starts_ms: int, ends_ms: int, among: Among | None) -> set[tuple[int, int, int]]:
        """Whose energy was measured: 0 may also be what is left of others' hours."""
        return {total[:3] for total in self._hourly(starts_ms, ends_ms, among) if total.energy_mj is not None}

    def _hourly(self, starts_ms: int, ends_ms: int, among: Among | None) -> Iterator[Total]:
        """From the sums per hour and, where an hour is cut, its rows."""
        first, last = -(-starts_ms // HOUR_MS), ends_ms // HOUR_MS
        if first > last:
            yield from self._part_of_hour(last, starts_ms, ends_ms, among)
            return
        if starts_ms < first * HOUR_MS:
            yield from self._part_of_hour(first - 1, starts_ms, first * HOUR_MS, among)
        yield from self._summed("hours", first, last, among)
        if last * HOUR_MS < ends_ms:
            yield from self._part_of_hour(last, last * HOUR_MS, ends_ms, among)

    def _summed(self, table: str, first: int, last: int, among: Among | None) -> Iterator[Total]:
        where, ids = ("", ()) if among is None else (among.condition(), (among.ids,))
        if self._together is None:
            group, amounts = (f" GROUP BY {_NAMES}", _SUMS) if last - first > 1 else ("", _AMOUNTS)
            query = f"SELECT {_NAMES}, {amounts} FROM {table} WHERE at >= ? AND at < ?{where}{group}"
            if first < last:
                yield from map(Total._make, self.connection.execute(query, (first, last, *ids)))
            return
        query = (
            f"SELECT {self._together.number}, {_SUMS} FROM {table}{self._together.joins} WHERE at >= ? AND at < ?{where}"
            " GROUP BY 1"
        )
        step = self._together.days * (HOURS_PER_DAY if table == "hours" else 1)
        for begin in range(first, last, step):
            yield from self._named(self.connection.execute(query, (begin, min(begin + step, last), *ids)))

    def _named(self, rows: Iterable[tuple[int, int, int, int, int | None]]) -> Iterator[Total]:
        assert self._together is not None  # noqa: S101 - the caller looked
        for number, *amounts in rows:
            yield Total(*self._together.names(number), *amounts)  # type: ignore[arg-type]

    def _part_of_hour(self, hour: int, starts_ms: int, ends_ms: int, among: Among | None) -> Iterator[Total]:
        """Ledger rows never cross an hour, so those of one hour are all that can lie in it."""
        values: dict[str, object] = {"hour": hour, "begin": starts_ms, "end": ends_ms}
        where = "" if among is None else among.condition().replace("?", ":ids")
        if among is not None:
            values["ids"] = among.ids
        number, joins = (_NAMES, "") if self._together is None else (self._together.number, self._together.joins)
        group = _NAMES if self._together is None else "1"
        rows = self.connection.execute(
            f"SELECT {number}, SUM((MIN(ends_ms, :end) - MAX(starts_ms, :begin)) * share), {_part('busy')},"
            f" {_part('measured_ms', ' * share')}, {_part('energy_mj')} FROM usage{joins}"
            f" WHERE hour = :hour AND starts_ms < :end AND ends_ms > :begin{where} GROUP BY {group}",
            values,
        )
        yield from map(Total._make, rows) if self._together is None else self._named(rows)
        yield from self._rolled_part(hour, starts_ms, ends_ms, where, values)

    def _rolled_part(self, hour: int, starts_ms: int, ends_ms: int, where: str, values: dict[str, object]) -> Iterator[Total]:
        """What the hour's sums hold beyond the rows that are still there, spread evenly over the hour."""
        if not is_rolled_up(self.connection, hour):
            return
        cut = (hour * HOUR_MS, (hour + 1) * HOUR_MS, starts_ms, ends_ms)
        for *names, share_ms, busy, measured, energy_mj in self.connection.execute(
            f"SELECT {_NAMES}, {_SUMS} FROM ("
            f"SELECT {_NAMES}, {_AMOUNTS} FROM hours WHERE at = :hour{where}"
            f" UNION ALL SELECT {_NAMES}, (starts_ms - ends_ms) * share, -busy, -measured_ms * share,"
            f" -energy_mj FROM usage WHERE hour = :hour{where}) GROUP BY {_NAMES}",
            values,
        ):
            if share_ms:
                energy = None if energy_mj is None else portion(energy_mj, *cut)
                yield Total(*self._representing(*names), *(portion(one, *cut) for one in (share_ms, busy, measured)), energy)

    def _representing(self, placement_id: int, kind: int, holder_id: int) -> tuple[int, int, int]:
        if self._together is None:
            return placement_id, kind, holder_id
        query = f"SELECT {self._together.number} FROM (SELECT ? AS placement_id, ? AS kind, ? AS holder_id){self._together.joins}"
        return self._together.names(self.connection.execute(query, (placement_id, kind, holder_id)).fetchone()[0])


def _nearest_midnight(at_ms: int) -> int:
    """The UTC day that begins nearest to a moment."""
    return (at_ms + DAY_MS // 2) // DAY_MS


def _part(amount: str, times: str = "") -> str:
    """SQL for the sum of `ledger_merge.portion` within [:begin, :end): divided first, for products stay below 2^63."""
    length = "(ends_ms - starts_ms)"

    def until(moment: str) -> str:
        passed = f"({moment} - starts_ms)"
        return (
            f"CASE WHEN {moment} <= starts_ms THEN 0 WHEN {moment} >= ends_ms THEN {amount} ELSE"
            f" {amount} / {length} * {passed} + {amount} % {length} * {passed} / {length} END"
        )

    known = f"CASE WHEN {amount} IS NOT NULL THEN (({until(':end')}) - ({until(':begin')})){times} END"
    return f"SUM({known})"


def is_rolled_up(connection: sqlite3.Connection, hour: int) -> bool:
    """Whether some rows of that UTC hour are there as sums only."""
    return connection.execute("SELECT 1 FROM rolled_hours WHERE hour = ? LIMIT 1", (hour,)).fetchone() is not None


def cut_notes(connection: sqlite3.Connection, edges_ms: Iterable[int]) -> tuple[str, ...]:
    """A sentence for a report whose parts begin or end within hours that were rolled up."""
    hours = {edge // HOUR_MS for edge in edges_ms if edge % HOUR_MS}
    cut = sum(is_rolled_up(connection, hour) for hour in hours)
    if not cut:
        return ()
    which = "one hour" if cut == 1 else f"{cut} hours"
    return (
        f"The report cuts {which} of which the ledger keeps only the sums (`rackrate ledger retain`): they are spread evenly.",
    )


def placement_spans(connection: sqlite3.Connection, after_ms: int, until_ms: int) -> Iterator[tuple[int, int, int]]:
    """(placement, begin of its first row, end of its last) of those that were last seen in (after_ms, until_ms]."""
    yield from connection.execute(
        "SELECT placement_id, MIN(starts_ms), MAX(ends_ms) AS last FROM (SELECT placement_id, starts_ms, ends_ms FROM usage"
        " UNION ALL SELECT placement_id, starts_ms, ends_ms FROM rolled_placements) GROUP BY placement_id"
        " HAVING last > ? AND last <= ?",
        (after_ms, until_ms),
    )
