"""What a recipe says: one JSON line a step on stdout, sentences on stderr.

Invariant: one rank speaks; a line is whole and flushed at once, and what is not known is null.
"""

from __future__ import annotations

import json
import math
import sys
from typing import TextIO


class Journal:
    """`speaks`: whether this rank is the one that does."""

    def __init__(self, *, speaks: bool, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self._speaks = speaks
        self._out, self._err = out, err

    def line(self, **values: object) -> None:
        if self._speaks:
            text = json.dumps({key: _told(value) for key, value in values.items()}, ensure_ascii=False)
            print(text, file=self._out or sys.stdout, flush=True)

    def say(self, sentence: str) -> None:
        if self._speaks:
            print(sentence, file=self._err or sys.stderr, flush=True)


def _told(value: object) -> object:
    """JSON has no NaN: a loss that is none is null."""
    if isinstance(value, float):
        return None if not math.isfinite(value) else float(f"{value:.6g}")
    return value
