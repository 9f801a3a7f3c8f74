"""What a recipe says: one JSON line a step on stdout, sentences on stderr.

Invariant: one rank speaks; a line is whole and flushed at once, and what is not known is null.
"""

from __future__ import annotations

import contextlib
import json
import math
import sys
import threading
from collections.abc import Iterator
from typing import TextIO

PATIENCE_SECONDS = 2.0


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


@contextlib.contextmanager
def patience(what: str, *, speaks: bool = True) -> Iterator[None]:
    """Says what is done meanwhile, where it takes longer than a person waits for a word."""
    timer = threading.Timer(PATIENCE_SECONDS, lambda: print(f"rackrate: {what} ...", file=sys.stderr, flush=True))
    timer.daemon = True
    if speaks:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _told(value: object) -> object:
    """JSON has no NaN: a loss that is none is null."""
    if isinstance(value, float):
        return None if not math.isfinite(value) else float(f"{value:.6g}")
    return value
