"""What a job wrote, made safe for a terminal: its colours stay, every other control sequence goes.

Invariant: the only escape sequences that come out are whole SGR ones (`ESC [ ... m` of digits); however the text is cut
into pieces, the same comes out.
"""

from __future__ import annotations

import re

RESET = "\x1b[0m"
LONGEST_SEQUENCE = 4096
"""A string sequence (a title, a picture) that goes on for longer, or over the end of a line, is taken for text again."""

_SGR = re.compile(r"[0-9;:]{0,64}", re.ASCII)
_STRINGS = "]PX^_"
"""ESC and one of these begin a string that ends with BEL or ESC \\ ."""
_C1_STRINGS = {"\x90": "P", "\x98": "X", "\x9d": "]", "\x9e": "^", "\x9f": "_"}
_SPECIAL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class SafeText:
    """A filter with a memory for sequences that are cut. `feed` each piece, then `close`."""

    def __init__(self) -> None:
        self._held = ""
        self._coloured = False

    def feed(self, text: str) -> str:
        """What of `text`, and of what was held back before, may be shown now."""
        text, self._held = self._held + text, ""
        if not _SPECIAL.search(text):
            return text
        out: list[str] = []
        at = 0
        while (special := _SPECIAL.search(text, at)) is not None:
            out.append(text[at : special.start()])
            end, shown = self._sequence(text, special.start())
            if end is None:
                self._held = text[special.start() :]
                return "".join(out)
            out.append(shown)
            at = end
        out.append(text[at:])
        return "".join(out)

    def close(self) -> str:
        """Drops what is unfinished; gives the colours back."""
        self._held = ""
        coloured, self._coloured = self._coloured, False
        return RESET if coloured else ""

    def _sequence(self, text: str, at: int) -> tuple[int | None, str]:
        """Where what begins at `at` ends, and what is shown of it; None: it is not whole yet."""
        first = text[at]
        if first == "\x9b":
            return self._csi(text, at + 1)
        if first in _C1_STRINGS:
            return _string(text, at, at + 1), ""
        if first != "\x1b":
            return at + 1, ""
        if at + 1 >= len(text):
            return None, ""
        kind = text[at + 1]
        if kind == "[":
            return self._csi(text, at + 2)
        if kind in _STRINGS:
            return _string(text, at, at + 2), ""
        return _escape(text, at + 1), ""

    def _csi(self, text: str, at: int) -> tuple[int | None, str]:
        end = at
        while end < len(text) and "\x20" <= text[end] <= "\x3f":
            end += 1
            if end - at > 256:
                return end, ""
        if end >= len(text):
            return None, ""
        if text[end] == "m" and _SGR.fullmatch(text, at, end):
            self._coloured = True
            return end + 1, f"\x1b[{text[at:end]}m"
        return (end + 1 if "\x40" <= text[end] <= "\x7e" else end), ""


def _escape(text: str, at: int) -> int | None:
    """ESC, intermediates, one final character."""
    end = at
    while end < len(text) and "\x20" <= text[end] <= "\x2f":
        end += 1
        if end - at > 16:
            return end
    if end >= len(text):
        return None
    return end + 1 if "\x30" <= text[end] <= "\x7e" else end


def _string(text: str, start: int, at: int) -> int | None:
    """Ends with BEL, ESC \\ or its C1 form; an ESC of another kind ends it too, and so does the end of a line."""
    for end in range(at, min(len(text), start + LONGEST_SEQUENCE)):
        match text[end]:
            case "\x07" | "\x9c":
                return end + 1
            case "\n":
                return end
            case "\x1b":
                if end + 1 >= len(text):
                    return None
                return end + 2 if text[end + 1] == "\\" else end
    return None if len(text) - start < LONGEST_SEQUENCE else start + LONGEST_SEQUENCE
