"""Job output made safe for a terminal: its colours are kept, every other control sequence is taken out.

Invariant: what `looks` gives holds no control character at all; colours come back as data (`Look`), never as bytes of the job.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

Colour = int | tuple[int, int, int] | None
"""0 to 255 of the terminal's palette, or red, green, blue."""
TAB_CELLS = 8


class Look(NamedTuple):
    """How text looks. Blinking and hidden text are left out on purpose."""

    bold: bool = False
    dim: bool = False
    italic: bool = False
    underline: bool = False
    reverse: bool = False
    strike: bool = False
    foreground: Colour = None
    background: Colour = None


PLAIN = Look()
_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)(?P<parameters>[0-?]*)(?P<between>[ -/]*)(?P<final>[@-~]|$)"
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x1b\x07\x9c\x9d\x90\x98\x9e\x9f]*(?:\x07|\x9c|\x1b\\)"
    r"|\x1b[ -/]*[0-~]?"
)
_ON = {1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "reverse", 9: "strike"}
_OFF = {21: ("bold",), 22: ("bold", "dim"), 23: ("italic",), 24: ("underline",), 27: ("reverse",), 29: ("strike",)}


def looks(text: str, look: Look = PLAIN) -> tuple[list[tuple[str, Look]], Look]:
    """One line as (text, look) pieces, and how the next one begins. A carriage return begins the line anew."""
    pieces: list[tuple[str, Look]] = []
    column = 0
    for part, after in _parts(text, look):
        if part == "\r":
            pieces, column = [], 0
            continue
        shown = _printable(part, column)
        if shown:
            pieces.append((shown, look))
            column += len(shown)
        look = after
    return pieces, look


def look_after(text: str, look: Look) -> Look:
    """How the line after `text` begins; cheap where it holds no sequence."""
    if "\x1b" not in text and "\x9b" not in text:
        return look
    for match in _SEQUENCE.finditer(text):
        look = _changed(match, look)
    return look


def last_turn(text: str) -> str:
    """Of a line that was begun anew by carriage returns (a progress bar) what is to be seen at its end."""
    if "\r" not in text:
        return text
    ends = "\r" if text.endswith("\r") else ""
    return text.rstrip("\r").rpartition("\r")[2] + ends


def _parts(text: str, look: Look) -> Iterator[tuple[str, Look]]:
    """Runs of text with the look that holds after each; a `\\r` before more text is a run of its own."""
    at = 0
    for match in _SEQUENCE.finditer(text):
        yield from _turns(text[at : match.start()], look, more=match.end() < len(text))
        look = _changed(match, look)
        yield "", look
        at = match.end()
    yield from _turns(text[at:], look, more=False)


def _turns(text: str, look: Look, *, more: bool) -> Iterator[tuple[str, Look]]:
    """A carriage return counts only where something is written over: at the end of a line it is part of its end."""
    first, *turns = text.split("\r")
    yield first, look
    for place, turn in enumerate(turns, 1):
        if turn or (more and place == len(turns)):
            yield "\r", look
            yield turn, look


def _printable(text: str, column: int) -> str:
    if text.isprintable():
        return text
    if "\t" in text:
        pad = column % TAB_CELLS
        text = (" " * pad + text).expandtabs(TAB_CELLS)[pad:]
    return "".join(c if c.isprintable() else " " if c.isspace() else "" for c in text)


def _changed(match: re.Match[str], look: Look) -> Look:
    """`look` after a sequence; only `m` without a private mark changes it."""
    if match["final"] != "m" or match["between"] or match["parameters"][:1] in tuple("<=>?"):
        return look
    return _applied(_numbers(match["parameters"]), look)


def _numbers(parameters: str) -> list[int]:
    return [int(word) if word.isdigit() and len(word) < 5 else 0 for word in re.split("[;:]", parameters)]


def _applied(codes: Sequence[int], look: Look) -> Look:
    place = 0
    while place < len(codes):
        code = codes[place]
        place += 1
        if code == 0:
            look = PLAIN
        elif code in _ON:
            look = look._replace(**{_ON[code]: True})
        elif code in _OFF:
            look = look._replace(**dict.fromkeys(_OFF[code], False))
        elif code in (38, 48):
            colour, used = _extended(codes[place:])
            place += used
            look = look._replace(**{"foreground" if code == 38 else "background": colour})
        else:
            look = _coloured(code, look)
    return look


def _coloured(code: int, look: Look) -> Look:
    for first, name, offset in ((30, "foreground", 0), (40, "background", 0), (90, "foreground", 8), (100, "background", 8)):
        if first <= code < first + 8:
            return look._replace(**{name: code - first + offset})
    if code in (39, 49):
        return look._replace(**{"foreground" if code == 39 else "background": None})
    return look


def _extended(codes: Sequence[int]) -> tuple[Colour, int]:
    """The colour after 38 or 48, and how many numbers it took."""
    if codes[:1] == [5] and len(codes) >= 2:
        return min(codes[1], 255), 2
    if codes[:1] == [2] and len(codes) >= 4:
        red, green, blue = (min(code, 255) for code in codes[1:4])
        return (red, green, blue), 4
    return None, len(codes)
