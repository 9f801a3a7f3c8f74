"""A report that is too long for one piece: day after day (where days come first, else month after month), each piece
attributed when it is written.

Invariant: memory holds one piece, and the cells of all pieces sum to the totals of the whole range, to the last digit:
each piece is rounded to a goal, and the goals are the range's totals split by largest remainder. All formats show the
cells of the same pieces; a report of one piece is written through the same functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction

from pricing import calendar
from pricing.money import largest_remainder
from pricing.report import COST_PARTS, Report, Row
from pricing.reports.table import CENTS, FINE, PRICE_LEVELS, SUMMED, Cell, Table, table

Attribute = Callable[[datetime, datetime, Sequence[str]], Report]
"""(start, end, keys) -> the report of that range."""
Progress = Callable[[int, int], None]
"""(pieces done, pieces in all)"""
_SPLIT = {**dict.fromkeys((*COST_PARTS, "allocated_unused_cost", *PRICE_LEVELS), CENTS), **dict.fromkeys(SUMMED, FINE)}


@dataclass(frozen=True, slots=True)
class LongReport:
    """A report by day over several days. `head` has its totals and sentences, and no rows."""

    head: Report
    group_by: tuple[str, ...]
    pieces: tuple[calendar.Day, ...]
    attribute: Attribute
    on_progress: Progress = lambda done, count: None

    @property
    def totals(self) -> Row:
        return self.head.totals

    @property
    def complete(self) -> bool:
        return self.head.complete

    def reports(self) -> Iterator[Report]:
        """The exact report of each piece, in order."""
        for done, piece in enumerate(self.pieces):
            self.on_progress(done, len(self.pieces))
            yield self.attribute(piece.start, piece.end, self.group_by)
        self.on_progress(len(self.pieces), len(self.pieces))

    def tables(self) -> Iterator[Table]:
        """The shown cells of each piece, in order."""
        wholes = [self.attribute(piece.start, piece.end, ()).totals for piece in self.pieces]
        goals = _goals(wholes, table(self.head).totals)
        for report, goal in zip(self.reports(), goals, strict=True):
            yield table(report, goal)


Source = Report | LongReport


def attributed(
    attribute: Attribute, start: datetime, end: datetime, by: Sequence[str], tz: str, on_progress: Progress | None = None
) -> Source:
    """The report of [start, end): a long one if it is by day and touches several days (or months, where days are not first)."""
    pieces = tuple(calendar.days(start, end, tz) if tuple(by[:1]) == ("day",) else calendar_months(start, end, tz))
    if "day" not in by or len(pieces) < 2:
        return attribute(start, end, by)
    head = replace(attribute(start, end, ()), rows=(), group_by=tuple(by))
    return LongReport(head, tuple(by), pieces, attribute, on_progress or (lambda done, count: None))


def head_of(source: Source) -> Report:
    """What has the totals, the range and the sentences."""
    return source.head if isinstance(source, LongReport) else source


def tables(source: Source) -> Iterator[Table]:
    """The shown cells, piece by piece. All pieces have the same columns."""
    if isinstance(source, LongReport):
        yield from source.tables()
    else:
        yield table(source)


def tables_and_totals(source: Source) -> tuple[Iterable[Table], dict[str, Cell]]:
    """The same, and the shown totals of all pieces."""
    if isinstance(source, LongReport):
        return source.tables(), table(source.head).totals
    shown = table(source)
    return [shown], shown.totals


def reports(source: Source) -> Iterator[Report]:
    """The exact numbers, piece by piece."""
    if isinstance(source, LongReport):
        yield from source.reports()
    else:
        yield source


def whole(source: Source) -> Table:
    """All cells at once, for formats that need them (a width, a chart). Memory grows with the rows."""
    if not isinstance(source, LongReport):
        return table(source)
    rows = tuple(row for piece in source.tables() for row in piece.rows)
    return Table(source.group_by, rows, table(source.head).totals)


def calendar_months(start: datetime, end: datetime, tz: str) -> Iterator[calendar.Day]:
    """The calendar months of [start, end), first and last cut to it; labels are `2026-03`."""
    at = start
    while at < end:
        first = calendar.month_start(at, tz)
        following = calendar.month_start(first + timedelta(days=40), tz)
        until = min(following, end)
        label = (first + (following - first) / 2).astimezone(calendar.zone(tz)).strftime("%Y-%m")
        yield calendar.Day(label, at, until)
        at = until


def _goals(wholes: Sequence[Row], shown: Mapping[str, Cell]) -> list[dict[str, Decimal | None]]:
    """What each column of each piece is to sum to; columns that a piece does not know are left to themselves."""
    goals: list[dict[str, Decimal | None]] = [{} for _ in wholes]
    for name, places in _SPLIT.items():
        exact = [getattr(whole, name) for whole in wholes]
        total = shown.get(name)
        if not isinstance(total, Decimal) or any(part is None for part in exact):
            continue
        for goal, part in zip(goals, _shares(exact, int(total.scaleb(places)), places), strict=True):
            goal[name] = part
    return goals


def _shares(parts: Sequence[Fraction], goal: int, places: int) -> list[Decimal]:
    """Each part rounded up or down so that they sum to `goal` (to their own rounded sum, where that is not possible)."""
    scaled = [part * 10**places for part in parts]
    whole = sum(scaled, Fraction(0))
    near = goal if abs(goal - whole) < 1 else round(whole)
    units = largest_remainder(scaled, near)
    return [Decimal(unit).scaleb(-places) for unit in units]
