"""Python's search for cyclic garbage, paused while a great many objects are made that hold no cycles.

Invariant: the search is on again afterwards if it was on before, whatever fails, also where several threads pause it.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Use it around what makes 100,000s of rows: looking through them again and again takes as long as making them.

    Memory is given back as ever by counting references; only cycles wait.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
