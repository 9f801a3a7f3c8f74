"""Ledgers in memory begin as copies of one empty ledger: a property test opens hundreds, and each would make its tables anew.

Ledgers in files are made as in the program, so what making one does is tested there.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import pytest

from pricing import ledger as module


@pytest.fixture(scope="session", autouse=True)
def ledgers_in_memory_are_copies() -> Iterator[None]:
    prepare, empty = module._prepare, sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)

    def copied(connection: sqlite3.Connection, path: str, deadline: float) -> None:
        if path == ":memory:":
            empty.backup(connection)
        prepare(connection, path, deadline)

    prepare(empty, ":memory:", float("inf"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_prepare", copied)
        yield
    empty.close()
