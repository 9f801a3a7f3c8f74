"""The app's own turn of Python's collector."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from tui.ui import garbage


class Knot:
    """Refers to itself."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture
def by_hand() -> Iterator[None]:
    gc.collect()
    garbage.begin()
    yield
    gc.enable()
    gc.unfreeze()


@pytest.mark.usefixtures("by_hand")
def test_cycles_are_taken_away_when_the_app_says_so_and_not_before() -> None:
    garbage.settle()
    first = weakref.ref(Knot())
    assert garbage.collect(10_000) == -1 and first() is not None, "too few to look"
    kept = [[] for _ in range(12_000)]
    assert first() is not None, "nothing runs by itself"
    assert garbage.collect(10_000) == 0 and first() is None and len(kept) == 12_000
    second = Knot()
    ref = weakref.ref(second)
    gc.collect(0)  # it is older now
    del second
    for _ in range(garbage.OLDER_TURNS):
        gc.collect(0)
    more = [[] for _ in range(12_000)]
    assert garbage.collect(10_000) == 1 and ref() is None and more
