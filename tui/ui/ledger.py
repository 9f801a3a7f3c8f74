"""Brings usage rows into the ledger in the background and reads from it what today and this month cost.

Invariant: it runs in a thread of its own with a connection of its own; what goes wrong is a sentence in `Costs.error`.
A daemon thread, so that leaving the app never waits for a node that hangs: an unfinished transaction is rolled back.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tui.money_files import MoneyFiles
from tui.ui.panes.header import BudgetsRead, Costs

if TYPE_CHECKING:
    from agent import wire
    from agent.client import AgentClient
    from pricing.ledger import Ledger
    from pricing.rates import Pricing
    from tui.config import BudgetConfig, NodeConfig

FIRST_SECONDS = 2.0
EVERY_SECONDS = 60.0
RETRY_SECONDS = 5.0
"""After a first sync that brought nothing; doubled each time."""
REST = 30
"""Budgets of a large fleet take seconds: so many times as long they are left alone."""


def read_costs(
    path: Path,
    nodes: Sequence[NodeConfig],
    client_for: Callable[[NodeConfig], AgentClient],
    timezone: str,
    prices_path: Path | None = None,
    terms_path: Path | None = None,
    budgets: Sequence[BudgetConfig] = (),
    before: Costs = Costs(),
) -> Costs:
    """Syncs all nodes, then sums under the user's terms, as `rackrate cost` does.

    Nodes that do not answer are left out: their rows come with a later sync. `before`: what was read last.
    """
    from pricing.ledger import Ledger
    from tui.sync import sync

    path.parent.mkdir(parents=True, exist_ok=True)
    with Ledger.open(path) as ledger:
        asyncio.run(sync(nodes, ledger, client_for=client_for))
    return costs_at(MoneyFiles(path, prices_path, terms_path, None, tuple(budgets), timezone), datetime.now(UTC), before)


def costs_at(files: MoneyFiles, now: datetime, before: Costs = Costs()) -> Costs:
    """What the ledger says of a moment's day and month; nothing where there is no ledger. `before`: what was read last."""
    from pricing.ledger import Ledger
    from tui.selection import day_costs, so_far

    if files.ledger is None or not files.has_ledger:
        return Costs()
    pricing = files.pricing()
    with Ledger.open(files.ledger) as ledger:
        summary = so_far(ledger, pricing, now, files.timezone)
        states, alerts = _budgets(ledger, pricing, files.budgets, files.timezone, now, before)
    return Costs(
        today=_total(summary.today), month=_total(summary.month),
        partial=not (summary.today.complete and summary.month.complete), budgets=states, alerts=alerts,
        by_node=day_costs(summary.today),
    )  # fmt: skip


def _budgets(
    ledger: Ledger, pricing: Pricing, budgets: Sequence[BudgetConfig], timezone: str, now: datetime, before: Costs
) -> tuple[BudgetsRead | None, tuple[wire.Alert, ...]]:
    """The budgets anew, unless that took so long that it would keep a processor busy."""
    from tui.budgets import alert_rows, states_of

    last, begin = before.budgets, time.monotonic()
    if not budgets or (last is not None and begin - last.at < REST * last.took_seconds):
        return last, before.alerts
    known = () if last is None else last.states
    states = tuple(states_of(budgets, ledger, pricing, timezone, now, known))
    return BudgetsRead(states, begin, time.monotonic() - begin), alert_rows(states, before.alerts, known)


def _total(report: Any) -> Fraction | None:
    """What of it has a price; None when nothing has one, or when nothing was recorded yet."""
    totals = report.totals
    return Fraction(totals.total_cost) if report.rows and totals.total_cost is not None else None


def in_background(work: Callable[[], Costs], done: Callable[[Costs], None]) -> threading.Thread:
    """Runs `work` in a daemon thread and gives its outcome to `done` there; never raises."""

    def body() -> None:
        try:
            costs = work()
        except Exception as error:  # noqa: BLE001 - whatever the ledger or a node does, the app goes on
            costs = Costs(error=str(error) or type(error).__name__)
        done(costs)

    thread = threading.Thread(target=body, name="rackrate-ledger", daemon=True)
    thread.start()
    return thread
