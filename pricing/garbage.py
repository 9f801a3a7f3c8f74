"""Python's search for cyclic garbage, paused while a great many objects are made that hold no cycles.

Invariant: the search is on again afterwards if it was on before, whatever fails, also where several threads pause it.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

_mutex = threading.Lock()
_inside = 0
"""How many pause it now."""
_was_on = False


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Use it around what makes 100,000s of rows: looking through them again and again takes as long as making them.

    Memory is given back as ever by counting references; only cycles wait.
    """
    global _inside, _was_on
    with _mutex:
        if not _inside:
            _was_on = gc.isenabled()
            gc.disable()
        _inside += 1
    try:
        yield
    finally:
        with _mutex:
            _inside -= 1
            if not _inside and _was_on:
                gc.enable()
