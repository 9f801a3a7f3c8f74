"""How the app is opened on a terminal, and what it says when it is left.

Invariant: the terminal's encoding, its limits and its size are made right before the first byte of the app.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tui import terminal
from tui.columns import totals_money
from tui.fleet import LOST_SECONDS, Fleet
from tui.ui import actions
from tui.ui.app import RackrateApp

if TYPE_CHECKING:
    from agent.client import AgentClient
    from tui.config import BudgetConfig, NodeConfig

GC_ALLOCATIONS = 50_000
"""Samples hold no cycles, and looking for some among those of 1,000 nodes would cost more than drawing them."""


def exit_line(fleet: Fleet, clock: Callable[[], float], seconds: float) -> str:
    """`watched 12 nodes for 10 m: $312.40/h, idle $45.20/h`."""
    totals = fleet.totals(clock())
    span = f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} m" if seconds < 5400 else f"{seconds / 3600:.1f} h"
    return f"watched {totals.nodes} node{'s' * (totals.nodes != 1)} for {span}: {totals_money(totals)}"


def run(
    nodes: Sequence[NodeConfig],
    client_for: Callable[[NodeConfig], AgentClient],
    *,
    ledger_path: Path | None,
    prices_path: Path | None = None,
    terms_path: Path | None = None,
    data_dir: Path | None = None,
    budgets: Sequence[BudgetConfig] = (),
    timezone: str,
    theme: str = "",
    silent_seconds: float = LOST_SECONDS,
    filters: Mapping[str, str] = {},
    registry: tuple[actions.Action, ...] = actions.ACTIONS,
    read_only: bool = False,
    on_exit_line: bool = True,
) -> int:
    """Opens the app on the nodes; returns the exit code (143 after SIGTERM, 129 after SIGHUP or a vanished terminal)."""
    fleet = Fleet(silent_seconds=silent_seconds)
    for node in nodes:
        fleet.add(node.name, node.url, node.tags)
    terminal.tolerate_encoding()
    terminal.allow_many_files()
    terminal.follow_real_size()
    app = RackrateApp(
        fleet, nodes=nodes, client_for=client_for, ledger_path=ledger_path, prices_path=prices_path, terms_path=terms_path,
        data_dir=data_dir, budgets=budgets, timezone=timezone, theme=theme, filters=filters, registry=registry,
        read_only=read_only,
    )  # fmt: skip
    gc.set_threshold(GC_ALLOCATIONS, 50, 50)
    started = time.monotonic()
    app.run()
    code = app.return_code or 0
    if on_exit_line and code == 0 and sys.stdout.isatty():
        print(exit_line(fleet, time.monotonic, time.monotonic() - started))
    return code
