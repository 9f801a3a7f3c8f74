"""The money of a recording at a moment, as files in a temporary folder that the commands and the app read like their own.

Invariant: the folder holds the ledger, the prices and the terms of exactly one moment; it is gone when it is closed.
"""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path

import msgspec

from tui.catalogs import BOOK
from tui.config import BudgetConfig
from tui.money_files import MoneyFiles
from tui.record_money import LEDGER, TERMS, bring_forward, put_files, put_ledger
from tui.replay import Recording


class MoneyThen:
    """`go_to` may be called from any thread, one call at a time."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._folder = tempfile.TemporaryDirectory(prefix="rackrate-replay-")
        self._mutex = threading.Lock()
        self._round = 0
        self._at_ms: int | None = None
        self._place = self.folder

    @property
    def folder(self) -> Path:
        """Where the files are."""
        return Path(self._folder.name)

    def close(self) -> None:
        """Removes the files."""
        with self._mutex:
            self._folder.cleanup()

    def go_to(self, at_ms: int) -> MoneyFiles:
        """The files of that moment. A step back makes the ledger anew, under another name: old ones may still be read."""
        with self._mutex:
            file, last = self._recording.file, self._at_ms
            if last is None or at_ms < last:
                self._round += 1
                self._place = self.folder / str(self._round)
                self._place.mkdir()
                put_files(file, at_ms, self._place)
                put_ledger(file, at_ms, self._place / LEDGER)
            elif at_ms > last:
                if file.rows("SELECT 1 FROM files WHERE at_ms > ? AND at_ms <= ? LIMIT 1", (last, at_ms)):
                    put_files(file, at_ms, self._place)
                bring_forward(file, self._place / LEDGER, last, at_ms)
            self._at_ms = at_ms
            return self._files(at_ms)

    def _files(self, at_ms: int) -> MoneyFiles:
        about = self._recording.session(at_ms)[2]
        budgets = tuple(msgspec.convert(one, BudgetConfig) for one in about.budgets)
        place = self._place
        return MoneyFiles(place / LEDGER, place / BOOK, place / TERMS, place, budgets, about.timezone)
