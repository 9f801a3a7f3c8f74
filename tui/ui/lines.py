"""Text as lines of styled spans: what every pane of the app is made of.

Invariant: a line is immutable and comparable, so a pane repaints exactly the lines that differ; widths count terminal cells.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

Span = tuple[str, str]
"""Text and the name of its style (`tui.ui.theme`)."""
Line = tuple[Span, ...]

BLANK: Line = ()
NARROW_CELLS, HANG_CELLS = 20, 4
"""A part of a line with less room than this beside the others goes below them, so far in."""


def width(line: Iterable[Span]) -> int:
    """Cells that it takes."""
    return sum(cell_len(text) for text, _ in line)


def fitted(text: str, cells: int, *, right: bool = False) -> str:
    """`text` in exactly `cells` cells: padded, or cut with `…`."""
    if cells <= 0:
        return ""
    length = len(text) if text.isascii() else cell_len(text)
    if length > cells:
        return set_cell_size(text, cells - 1) + "…"
    return " " * (cells - length) + text if right else text + " " * (cells - length)


def cropped(line: Line, cells: int) -> Line:
    """The line in at most `cells` cells, with `…` where it was cut."""
    if width(line) <= cells:
        return line
    kept: list[Span] = []
    left = cells
    for text, style in line:
        if cell_len(text) >= left:
            kept.append((fitted(f"{text} ", left).rstrip() if cell_len(text) == left else fitted(text, left), style))
            break
        kept.append((text, style))
        left -= cell_len(text)
    return tuple(kept)


def spread(left: Line, right: Line, cells: int) -> Line:
    """`left` at the start and `right` at the end; `right` is left out when both do not fit."""
    room = cells - width(left) - width(right)
    return (*left, (" " * room, "text"), *right) if room >= 2 else left


def joined(parts: Iterable[Line], separator: str = "   ", cells: int = 10_000) -> Line:
    """As many of the parts as fit, in order."""
    out: list[Span] = []
    used = 0
    for part in parts:
        need = width(part) + (len(separator) if out else 0)
        if used + need > cells:
            break
        if out:
            out.append((separator, "dim"))
        out.extend(part)
        used += need
    return tuple(out)


def wrapped(text: str, style: str, cells: int, indent: str = "") -> list[Line]:
    """A sentence over as many lines as it takes."""
    lines: list[Line] = []
    current = ""
    for word in text.split():
        if current and cell_len(f"{current} {word}") > cells - len(indent):
            lines.append(((indent + current, style),))
            current = word
        else:
            current = f"{current} {word}" if current else word
    return [*lines, ((indent + current, style),)] if current else lines


def at_most(lines: list[Line], count: int, cells: int) -> list[Line]:
    """So many of them; where some are left out the last one ends with `…`."""
    if len(lines) <= count:
        return lines
    *kept, last = lines[:count]
    return [*kept, cropped((*last, (" …", last[-1][1])), cells)]


def hung(line: Line, cells: int) -> list[Line]:
    """The line over as many rows as it takes; its last part goes on below where it began: `key    what it does`."""
    if width(line) <= cells or not line:
        return [line]
    *head, (text, style) = line
    before, said = width(head), text.lstrip()
    lead = before + width(((text, style),)) - width(((said, style),))
    if before and cells - lead < NARROW_CELLS:
        return [cropped(tuple(head), cells), *wrapped(said, style, cells, " " * min(lead, HANG_CELLS))]
    first, *rest = wrapped(said, style, cells, " " * min(lead, cells // 2)) or [BLANK]
    return [(*head, (first[0][0][before:], style)), *rest] if before else [first, *rest]


def to_strip(line: Line, styles: Mapping[str, Style], cells: int, under: str = "page") -> Strip:
    """Painted to exactly `cells` cells on the style `under`."""
    base = styles[under]
    segments = [Segment(text, base + styles[style]) for text, style in _merged(line)]
    return Strip(segments).adjust_cell_length(cells, base)


def _merged(line: Line) -> list[Span]:
    """Neighbours of one style as one span; blanks take the style before them: each span costs some forty bytes of escapes."""
    spans: list[Span] = []
    for text, style in line:
        if spans and (style == spans[-1][1] or text.isspace()):
            spans[-1] = (spans[-1][0] + text, spans[-1][1])
        elif text:
            spans.append((text, style))
    return spans
