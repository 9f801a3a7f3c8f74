"""Plots drawn as text: a minute of utilisation as a braille area, and bars.

Invariant: one style per plot (a style per cell would cost ten times the bytes); a value that is not known leaves a gap.
"""

from __future__ import annotations

from collections.abc import Sequence

from tui.fleet import mean

_LEFT = (0x00, 0x40, 0x44, 0x46, 0x47)
_RIGHT = (0x00, 0x80, 0xA0, 0xB0, 0xB8)
"""Braille columns filled from the bottom with 0 to 4 dots."""
OFF = "plots off: slow line"


class _InForce:
    """Whether plots are drawn: they are the first to go where the line to the terminal is slow."""

    drawn: bool = True


def put_in_force(drawn: bool) -> None:
    """From now on plots are drawn, or left out."""
    _InForce.drawn = drawn


def area(values: Sequence[float | None], width: int, height: int = 1, top: float = 1.0) -> list[str]:
    """Values 0-`top` as an area of `width` x `height` cells, newest at the right, two values a cell, four steps a row."""
    if not _InForce.drawn:
        return [OFF[:width].ljust(width), *[" " * width] * (height - 1)]
    newest = list(values)[-2 * width :]
    levels = [None] * (2 * width - len(newest)) + [_dots(value, 4 * height, top) for value in newest]
    return ["".join(_cell(levels, column, row) for column in range(width)) for row in reversed(range(height))]


def _dots(value: float | None, steps: int, top: float) -> int | None:
    """At least one dot for a value that is known, so that 0 and not known differ."""
    return None if value is None else max(1, min(steps, round(value / top * steps)))


def _cell(levels: list[int | None], column: int, row: int) -> str:
    left, right = (_in_row(level, row) for level in levels[2 * column : 2 * column + 2])
    return chr(0x2800 + _LEFT[left] + _RIGHT[right])


def _in_row(level: int | None, row: int) -> int:
    return 0 if level is None else max(0, min(4, level - 4 * row))


def bar(ratio: float | None, width: int) -> tuple[str, str]:
    """(filled, empty) parts of a bar of `width` cells, to half a cell; heavy and light, so that they differ without colour."""
    halves = 0 if ratio is None else max(0, min(2 * width, round(ratio * 2 * width)))
    full, half = divmod(halves, 2)
    filled = "━" * full + "╸" * half
    return filled, "─" * (width - len(filled))


def halved(values: Sequence[float | None]) -> list[float | None]:
    """Two values to one, their mean: twice the time in the same width."""
    even = list(values)[len(values) % 2 :]
    return [mean(even[place : place + 2]) for place in range(0, len(even), 2)]
