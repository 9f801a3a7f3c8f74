"""Plain ASCII for terminals that cannot draw more, and input that does not die of a broken byte.

Invariant: everything painted passes through one table, cell for cell, so a layout is the same in both character sets.
"""

from __future__ import annotations

from rich.cells import cell_len
from textual.drivers.linux_driver import LinuxDriver

_PAIRS = {
    "▁": "_", "▂": ".", "▃": "-", "▄": "=", "▅": "+", "▆": "*", "▇": "#", "█": "#", "▏": "|", "▎": "|", "▍": "|",
    "▌": ">", "▋": "#", "▊": "#", "▉": "#", "░": ".", "▒": ":", "▓": "%", "─": "-", "━": "=", "╸": "=", "│": "|", "┃": "|",
    "┌": "+", "┐": "+", "└": "+", "┘": "+", "├": "+", "┤": "+", "╭": "+", "╮": "+", "╰": "+", "╯": "+", "▔": "-",
    "▕": "|", "▐": "|", "▀": "=", "✗": "x", "○": "o", "●": "*", "·": ".", "–": "-", "—": "-", "…": "~", "°": "'",
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


class UnicodeDriver(LinuxDriver):
    """Goes on reading after bytes that are not UTF-8 (a terminal that reattached may send old mouse reports)."""

    def run_input_thread(self) -> None:
        while not self.exit_event.is_set():
            try:
                super().run_input_thread()
            except UnicodeDecodeError:
                continue
            return


class AsciiDriver(UnicodeDriver):
    """Writes ASCII only."""

    def write(self, data: str) -> None:
        super().write(to_ascii(data))
