"""Plain ASCII for terminals that cannot draw more.

Invariant: everything painted passes through one table, cell for cell, so a layout is the same in both character sets.
"""

from __future__ import annotations

from rich.cells import cell_len

from tui.ui.drivers import TerminalDriver

_PAIRS = {
    "▁": "_", "▂": ".", "▃": "-", "▄": "=", "▅": "+", "▆": "*", "▇": "#", "█": "#", "▏": "|", "▎": "|", "▍": "|",
    "▌": ">", "▋": "#", "▊": "#", "▉": "#", "░": ".", "▒": ":", "▓": "%", "─": "-", "━": "=", "╸": "=", "│": "|", "┃": "|",
    "┌": "+", "┐": "+", "└": "+", "┘": "+", "├": "+", "┤": "+", "┴": "+", "╭": "+", "╮": "+", "╰": "+", "╯": "+", "▔": "-",
    "▕": "|", "▐": "|", "▀": "=", "✗": "x", "✓": "+", "›": ">", "○": "o", "●": "*", "·": ".", "–": "-", "—": "-", "…": "~", "°": "'",
    "▾": "v", "▴": "^", "▸": ">", "→": ">", "←": "<", "↑": "^", "↓": "v", "×": "x", "Σ": "S", "≥": ">", "’": "'",
    "╱": "/", "╲": "\\", "⎯": "-",
}  # fmt: skip
_BRAILLE_FIRST, _BRAILLE_LAST = 0x2800, 0x28FF
_DENSITY = " .:-=+*##"


class _AsciiTable(dict[int, str]):
    """`str.translate` table that learns a character when it meets it."""

    def __missing__(self, code: int) -> str:
        self[code] = found = _ascii_for(chr(code))
        return found


def _ascii_for(character: str) -> str:
    code = ord(character)
    if code < 128:
        return character
    if _BRAILLE_FIRST <= code <= _BRAILLE_LAST:
        return _DENSITY[(code - _BRAILLE_FIRST).bit_count()]
    return _PAIRS.get(character) or "?" * cell_len(character)


_table = _AsciiTable()


def to_ascii(text: str) -> str:
    """`text` with every character replaced by ASCII of the same width in cells."""
    return text if text.isascii() else text.translate(_table)


class AsciiDriver(TerminalDriver):
    """Writes ASCII only."""

    def write(self, data: str) -> None:
        super().write(to_ascii(data))
