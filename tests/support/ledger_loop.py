"""Reads, or keeps, a ledger that others write to, until it is killed. Arguments: read|keep LEDGER BACKUP."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pricing.attribution import attribute
from pricing.calendar import instant
from pricing.ledger import Ledger
from pricing.ledger_backup import backup, vacuum
from pricing.ledger_check import check
from pricing.ledger_retention import retain
from pricing.ledger_totals import extent
from tests.support.usage import PriceList

FAR = datetime(2020, 1, 1, tzinfo=UTC), datetime(2030, 1, 1, tzinfo=UTC)


def read(ledger: Ledger) -> None:
    """What a reader sees is whole, at any moment."""
    faults = ledger.check()
    assert not faults, faults
    report = attribute(ledger, PriceList(), *FAR, "day,user")
    totals = report.totals
    assert sum(row.held_share_ms + row.idle_share_ms for row in report.rows) == totals.held_share_ms + totals.idle_share_ms
    assert totals.total_cost == 2 * (totals.gpu_hours + totals.idle_gpu_hours)  # 8 dollars, 4 GPUs


def keep(ledger: Ledger, target: Path) -> None:
    """Rolls up all but the newest day, copies and shrinks; the copy is whole."""
    with ledger.reading() as connection:
        known = extent(connection)
    if known is not None:
        retain(ledger, instant(known[1]) - timedelta(days=1), FAR[1])
    backup(ledger, target, force=True)
    with closing(sqlite3.connect(f"file:{target}?mode=ro", uri=True)) as copy:  # a kill leaves nothing beside it
        assert check(copy) == []
    vacuum(ledger)


def main(what: str, path: str, target: str) -> None:
    with Ledger.open(path, timeout_seconds=60) as ledger:
        print("ready", flush=True)
        while True:
            if what == "read":
                read(ledger)
            else:
                keep(ledger, Path(target))
            print("round", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
