"""What the ledger holds for a stretch of time, added up per placement, kind and holder.

Invariant: sums are exact and of whole numbers, and those of adjacent stretches sum to those of the whole: time, energy
and busy time of a row that is cut are split so that the parts sum to it. (A placement's
sum stays below 2^63 for 290 GPU-years.)

Of an hour whose rows were rolled up (`ledger_retention`) only the sums are left: whole hours are as exact as before, and
where a range cuts such an hour, its sums are spread evenly over it, so that the parts still sum to the whole.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pricing.ledger_merge import HOUR_MS, HOURS_PER_DAY, portion


FEW_HOURS = 9
"""At most as many are taken away from a day's sums at each of its ends; more are added up themselves."""


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


class Among(NamedTuple):
    """Only these placements, or (`within` False) all others. `ids`: a JSON array, which SQLite takes as one parameter."""

    ids: str
    within: bool

    def condition(self) -> str:
        return f" AND placement_id {'' if self.within else 'NOT '}IN (SELECT value FROM json_each(?))"


def extent(connection: sqlite3.Connection) -> tuple[int, int] | None:
    """[from, to) in UTC milliseconds, whole hours, that holds all rows; None for an empty ledger."""
    first, last = connection.execute("SELECT (SELECT MIN(at) FROM hours), (SELECT MAX(at) FROM hours)").fetchone()
    return None if first is None else (first * HOUR_MS, (last + 1) * HOUR_MS)


def totals(connection: sqlite3.Connection, starts_ms: int, ends_ms: int, among: Among | None = None) -> Iterator[Total]:
    """The sums of [starts_ms, ends_ms); one (placement, kind, holder) may come several times."""
    first, last = -(-starts_ms // HOUR_MS), ends_ms // HOUR_MS
    if first > last:
        yield from _part_of_hour(connection, last, starts_ms, ends_ms, among)
        return
    if starts_ms < first * HOUR_MS:
        yield from _part_of_hour(connection, first - 1, starts_ms, first * HOUR_MS, among)
    yield from _hours(connection, first, last, among)
    if last * HOUR_MS < ends_ms:
        yield from _part_of_hour(connection, last, last * HOUR_MS, ends_ms, among)


def _hours(connection: sqlite3.Connection, first: int, last: int, among: Among | None) -> Iterator[Total]:
    """Whole hours, mostly from the sums per UTC day; an edge just off a midnight takes hours away from the day's sums."""
    first_day, last_day = _midnight(first, ahead=False), _midnight(last, ahead=True)
    begin, end = first_day * HOURS_PER_DAY, last_day * HOURS_PER_DAY
    if first_day >= last_day or last - first <= max(0, first - begin) + max(0, end - last):
        yield from _summed(connection, "hours", first, last, among)
        return
    yield from _summed(connection, "hours", first, begin, among)
    yield from _less(connection, (first_day, last_day), ((begin, first), (last, end)), among)
    yield from _summed(connection, "hours", end, last, among)


def _midnight(hour: int, *, ahead: bool) -> int:
    """The UTC day from (or, `ahead`, until) which sums per day are taken for a stretch with an edge at that hour."""
    day, past = divmod(hour, HOURS_PER_DAY)
    if ahead:
        return day + (HOURS_PER_DAY - past <= FEW_HOURS)
    return day + (past > FEW_HOURS)


def _less(
    connection: sqlite3.Connection, days: tuple[int, int], cuts: tuple[tuple[int, int], ...], among: Among | None
) -> Iterator[Total]:
    """The sums of whole days without those of the hours in `cuts`, which lie in them."""
    away: dict[tuple[int, ...], list[Total]] = {}
    for cut in cuts:
        for total in _summed(connection, "hours", *cut, among):
            away.setdefault(total[:3], []).append(total)
    if not away:
        yield from _summed(connection, "days", *days, among)
        return
    for total in _summed(connection, "days", *days, among):
        for part in away.get(total[:3], ()):
            total = _without(total, part)
        if not total.share_ms:
            continue
        if total.energy_mj == 0 and not _measured(connection, total, days, cuts):
            total = total._replace(energy_mj=None)
        yield total


def _without(total: Total, part: Total) -> Total:
    energy_mj = total.energy_mj if part.energy_mj is None else (total.energy_mj or 0) - part.energy_mj
    return Total(
        *total[:3], total.share_ms - part.share_ms, total.busy - part.busy,
        total.measured_share_ms - part.measured_share_ms, energy_mj,
    )  # fmt: skip


def _measured(connection: sqlite3.Connection, total: Total, days: tuple[int, int], cuts: tuple[tuple[int, int], ...]) -> bool:
    """Whether a remaining energy of 0 was measured, or is what is left of others' hours."""
    hours = (days[0] * HOURS_PER_DAY, days[1] * HOURS_PER_DAY)
    inside = " AND NOT (at >= ? AND at < ?)" * len(cuts)
    return (
        connection.execute(
            "SELECT 1 FROM hours WHERE placement_id = ? AND kind = ? AND holder_id = ? AND energy_mj IS NOT NULL"
            f" AND at >= ? AND at < ?{inside} LIMIT 1",
            (*total[:3], *hours, *(edge for cut in cuts for edge in cut)),
        ).fetchone()
        is not None
    )


def _summed(connection: sqlite3.Connection, table: str, first: int, last: int, among: Among | None) -> Iterator[Total]:
    if first >= last:
        return
    where, ids = ("", ()) if among is None else (among.condition(), (among.ids,))
    if last - first == 1:
        columns, group = "share_ms, busy, measured_share_ms, energy_mj", ""
    else:
        columns = "SUM(share_ms), SUM(busy), SUM(measured_share_ms), SUM(energy_mj)"
        group = " GROUP BY placement_id, kind, holder_id"
    yield from map(
        Total._make,
        connection.execute(
            f"SELECT placement_id, kind, holder_id, {columns} FROM {table} WHERE at >= ? AND at < ?{where}{group}",
            (first, last, *ids),
        ),
    )


def _part_of_hour(
    connection: sqlite3.Connection, hour: int, starts_ms: int, ends_ms: int, among: Among | None
) -> Iterator[Total]:
    """Ledger rows never cross an hour, so those of one hour are all that can lie in it."""
    yield from _rolled_part(connection, hour, starts_ms, ends_ms, among)
    where, ids = ("", ()) if among is None else (among.condition(), (among.ids,))
    for placement_id, kind, holder_id, share, begin, end, busy, measured_ms, energy_mj in connection.execute(
        "SELECT placement_id, kind, holder_id, share, starts_ms, ends_ms, busy, measured_ms, energy_mj"
        f" FROM usage WHERE hour = ? AND starts_ms < ? AND ends_ms > ?{where}",
        (hour, ends_ms, starts_ms, *ids),
    ):
        cut = (begin, end, max(begin, starts_ms), min(end, ends_ms))
        yield Total(
            placement_id,
            kind,
            holder_id,
            (cut[3] - cut[2]) * share,
            portion(busy, *cut),
            portion(measured_ms, *cut) * share,
            None if energy_mj is None else portion(energy_mj, *cut),
        )


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


def _rolled_part(
    connection: sqlite3.Connection, hour: int, starts_ms: int, ends_ms: int, among: Among | None
) -> Iterator[Total]:
    """What the hour's sums hold beyond the rows that are still there, spread evenly over the hour."""
    if not is_rolled_up(connection, hour):
        return
    where, ids = ("", ()) if among is None else (among.condition(), (among.ids,))
    cut = (hour * HOUR_MS, (hour + 1) * HOUR_MS, starts_ms, ends_ms)
    for placement_id, kind, holder_id, *amounts, energy_mj in connection.execute(
        "SELECT placement_id, kind, holder_id, SUM(share_ms), SUM(busy), SUM(measured_share_ms), SUM(energy_mj) FROM ("
        f"SELECT placement_id, kind, holder_id, share_ms, busy, measured_share_ms, energy_mj FROM hours WHERE at = ?{where}"
        " UNION ALL SELECT placement_id, kind, holder_id, (starts_ms - ends_ms) * share, -busy, -measured_ms * share,"
        f" -energy_mj FROM usage WHERE hour = ?{where}) GROUP BY placement_id, kind, holder_id",
        (hour, *ids, hour, *ids),
    ):
        if amounts[0]:
            energy = None if energy_mj is None else portion(energy_mj, *cut)
            share_ms, busy, measured = (portion(amount, *cut) for amount in amounts)
            yield Total(placement_id, kind, holder_id, share_ms, busy, measured, energy)


def placement_spans(connection: sqlite3.Connection, after_ms: int, until_ms: int) -> Iterator[tuple[int, int, int]]:
    """(placement, begin of its first row, end of its last) of those that were last seen in (after_ms, until_ms]."""
    yield from connection.execute(
        "SELECT placement_id, MIN(starts_ms), MAX(ends_ms) AS last FROM (SELECT placement_id, starts_ms, ends_ms FROM usage"
        " UNION ALL SELECT placement_id, starts_ms, ends_ms FROM rolled_placements) GROUP BY placement_id"
        " HAVING last > ? AND last <= ?",
        (after_ms, until_ms),
    )
