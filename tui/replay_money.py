"""The money of a recording at a moment, as files in a temporary folder that the commands and the app read like their own.

Invariant: the files that are returned are the ledger, the prices and the terms of exactly that moment; they are gone when
it is closed.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tui.catalogs import BOOK, overlaid
from tui.config import BudgetConfig
from tui.money_files import MoneyFiles
from tui.record_money import LEDGER, TERMS, bring_forward, put_files, put_ledger
from tui.replay import Recording

if TYPE_CHECKING:
    from pricing.catalog import Catalog


KEPT_LEDGERS = 3
"""The newest, and those that a screen may still be reading: each is as large as the ledger of then."""


class MoneyThen:
    """May be used from any thread; one call waits for the other."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._folder = tempfile.TemporaryDirectory(prefix="rackrate-replay-")
        self._mutex = threading.RLock()
        self._prices: dict[tuple[object, ...], Path] = {}
        self._catalogs: dict[Path, Catalog] = {}
        self._ledger_ms: int | None = None
        self._ledger = self.folder
        self._ledgers: deque[Path] = deque()
        self._closed = False

    @property
    def folder(self) -> Path:
        """Where the files are."""
        return Path(self._folder.name)

    def close(self) -> None:
        """Removes the files."""
        with self._mutex:
            self._closed = True
            self._folder.cleanup()

    def catalog(self, at_ms: int) -> Catalog:
        """The prices of that moment; the same object while they stay the same."""
        with self._mutex:
            place = self._prices_of(at_ms)
            if place not in self._catalogs:
                self._catalogs[place] = overlaid(place / BOOK)
            return self._catalogs[place]

    def go_to(self, at_ms: int) -> MoneyFiles:
        """The files of that moment. A step back makes the ledger anew, under another name: old ones may still be read."""
        with self._mutex:
            prices = self._prices_of(at_ms)
            self._bring_ledger(at_ms)
            about = self._recording.session(at_ms)[2]
            budgets = tuple(msgspec.convert(one, BudgetConfig) for one in about.budgets)
            return MoneyFiles(self._ledger / LEDGER, prices / BOOK, prices / TERMS, self._ledger, budgets, about.timezone)

    def _bring_ledger(self, at_ms: int) -> None:
        file, last = self._recording.file, self._ledger_ms
        if last is None or at_ms < last:
            self._ledger = Path(tempfile.mkdtemp(dir=self.folder))
            self._ledgers.append(self._ledger)
            while len(self._ledgers) > KEPT_LEDGERS:
                shutil.rmtree(self._ledgers.popleft(), ignore_errors=True)
            put_ledger(file, at_ms, self._ledger / LEDGER)
        elif at_ms > last:
            bring_forward(file, self._ledger / LEDGER, last, at_ms)
        self._ledger_ms = at_ms

    def _prices_of(self, at_ms: int) -> Path:
        """A folder for each state that the price files were in."""
        rows = self._recording.file.rows("SELECT name, MAX(at_ms) FROM files WHERE at_ms <= ? AND name != ? GROUP BY 1", (at_ms, LEDGER))
        state = tuple(rows)
        if state not in self._prices:
            place = Path(tempfile.mkdtemp(dir=self.folder))
            put_files(self._recording.file, at_ms, place)
            self._prices[state] = place
        return self._prices[state]
