"""Controlled rounding of a table of amounts: every cell, every row and every column ends within one unit of its exact sum.

Invariant: column sums are the given goals; cells are their exact value rounded down or up. Rows are then brought within
one unit of their exact sum by moving units between rows inside a column, which changes no column sum.
(L. H. Cox, "A constructive procedure for unbiased controlled rounding", JASA 82, 1987, has the problem.)
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from pricing.money import largest_remainder


def controlled(columns: Sequence[Sequence[Fraction]], goals: Sequence[int]) -> list[list[int]]:
    """Whole units per column and row. `columns` are exact, in units, all of one length; `goals` are the columns' sums."""
    units = [largest_remainder(column, goal) for column, goal in zip(columns, goals, strict=True)]
    if columns and columns[0]:
        _Rows(columns, units).even_out()
    return units


def capped(parts: Sequence[Fraction], goal: int, limits: Sequence[int]) -> list[int]:
    """Whole units that sum to `goal`, none above its limit: rounded down, the units left over to the largest remainders.

    Each limit is at least its part rounded down, and `goal` at most the sum of the limits.
    """
    units = [min(part.numerator // part.denominator, limit) for part, limit in zip(parts, limits, strict=True)]
    left = goal - sum(units)
    order = sorted(range(len(parts)), key=lambda place: (units[place] - parts[place], place)) if left else []
    while left > 0:
        open_places = [place for place in order if units[place] < limits[place]]
        for place in open_places[:left]:
            units[place] += 1
        left -= min(left, len(open_places))
        if not open_places:
            break
    return units


class _Rows:
    """The rows of a rounded table, and how far each is above its exact sum."""

    def __init__(self, columns: Sequence[Sequence[Fraction]], units: list[list[int]]) -> None:
        self._columns = columns
        self._units = units
        self._last = -1
        parts, wholes = zip(*columns, strict=True), zip(*units, strict=True)
        self._above = [_above(row, whole) for row, whole in zip(parts, wholes, strict=True)]

    def even_out(self) -> None:
        """Moves units from the rows that are a unit or more too high, and to those that are a unit or more too low."""
        high = [row for row, above in enumerate(self._above) if above >= 1]  # no move makes another row one of them
        for row in sorted(high, key=lambda row: -self._above[row]):
            while self._above[row] >= 1 and self._move(row, down=True):
                pass
        low = [row for row, above in enumerate(self._above) if above <= -1]
        for row in sorted(low, key=lambda row: self._above[row]):
            while self._above[row] <= -1 and self._move(row, down=False):
                pass

    def _move(self, row: int, *, down: bool) -> bool:
        """Gives one unit of `row` away (or takes one); False if no other row can take it and stay within a unit."""
        step = -1 if down else 1
        for column in range(len(self._columns)):
            if self._may(column, row, down):
                other = self._partner(column, row, down)
                if other is not None:
                    self._units[column][row] += step
                    self._units[column][other] -= step
                    self._above[row] += step
                    self._above[other] -= step
                    return True
        return False

    def _partner(self, column: int, row: int, down: bool) -> int | None:
        """The next row, round and round from the one chosen last, that is on the other side and may move the other way."""
        count = len(self._above)
        for distance in range(1, count + 1):
            other = (self._last + distance) % count
            wanting = self._above[other] < 0 if down else self._above[other] > 0
            if wanting and other != row and self._may(column, other, not down):
                self._last = other
                return other
        return None

    def _may(self, column: int, row: int, down: bool) -> bool:
        """The cell was rounded up (and may go down), or was rounded down with something lost (and may go up)."""
        exact, unit = self._columns[column][row], self._units[column][row]
        return unit > exact if down else unit < exact


def _above(parts: Sequence[Fraction], units: Sequence[int]) -> Fraction:
    """By how much the units are more than the parts; most parts are 0."""
    known = [part for part in parts if part]
    whole = sum(units)
    return whole - sum(known[1:], known[0]) if known else Fraction(whole)
