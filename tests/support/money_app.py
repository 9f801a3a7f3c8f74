"""The app on a prepared ledger and price book, for tests and pictures of the screens of money.

Invariant: the ledger ends at the moment at which the app's clock begins.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

from textual.pilot import Pilot

from pricing.ledger import Ledger
from pricing.pricebook import PriceBook
from pricing.prices import Price
from tests.support.fleets import AT
from tests.support.sample_ledger import fill
from tests.support.screens import make_app
from tui.config import BudgetConfig
from tui.ui.app import RackrateApp

BUDGETS = (
    BudgetConfig(name="vision", amount="9000", project="vision"),
    BudgetConfig(name="everything", amount="60000"),
    BudgetConfig(name="ann", amount=50_000, user="ann"),
)


def filled(folder: Path, days: int = 12, nodes: int = 3) -> Path:
    """A ledger of so many days before now."""
    path = folder / "ledger.db"
    hours = days * 24
    with Ledger.open(path) as ledger:
        fill(ledger, AT.replace(minute=0, second=0, microsecond=0) - timedelta(hours=hours), hours, nodes)
    return path


def priced(folder: Path, days: int = 28) -> Path:
    """A price book in which one spot price moved for so many days."""
    path, rng = folder / "prices.db", Random(5)
    amount = Decimal("9.80")
    with PriceBook.open(path) as book:
        for hour in range(days * 24, 0, -6):
            at = AT - timedelta(hours=hour)
            amount = max(Decimal("7"), min(Decimal("14"), amount + Decimal(rng.randrange(-40, 41)) / 100))
            spot = Price("aws", "us-east-1", "use1-az1", "p4d.24xlarge", "spot", amount, "USD", "instance_hour", at, at, "stand-in")
            book.put([spot], at)
    return path


def money_app(folder: Path, ledger: Path | None = None, **options: Any) -> RackrateApp:
    """An app that syncs with nobody."""
    return make_app(ledger_path=ledger, data_dir=folder, **{"budgets": BUDGETS, **options})[0]


async def until(pilot: Pilot[None], holds: Callable[[], bool], seconds: float = 60.0, tell: Callable[[], str] = lambda: "it did not come") -> None:
    """Waits for what a thread reads."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, tell()
        await asyncio.sleep(0.02)
        await pilot.pause()
    await pilot.pause()
