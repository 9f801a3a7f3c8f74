"""`nodes --sum`: what the selected nodes cost per hour, idle, and today so far.

Invariant: the figures are those of the app's status line for the same nodes (`tui.selection`); where today's cost cannot be read,
the other figures are printed all the same, and the exit code says so.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tui import format as fmt
from tui.commands.context import Context
from tui.exit_codes import ExitCode
from tui.output import print_json, say
from tui.records import money, totals_record
from tui.selection import DayCosts, Selected, day_costs, selected, so_far

if TYPE_CHECKING:
    from tui.fleet import Fleet


def print_sums(context: Context, arguments: argparse.Namespace, fleet: Fleet, names: Sequence[str], now: float) -> ExitCode:
    """One line, or one JSON object."""
    day, code = today(context, arguments, names)
    found = selected(fleet, names, now, day)
    if arguments.json:
        print_json(sums_record(found))
    else:
        print(sums_text(found))
    return code


def sums_text(found: Selected) -> str:
    """`12 nodes: 11 live, 0 stale, 1 lost; 27 of 40 GPUs held, free 5 A100 · 8 T4; $177.46/h, idle $54.74/h; today $1,234.50`."""
    from tui.columns import totals_money
    from tui.groups import free_text

    totals = found.totals
    free = f", free {free_text(totals.free)}" if totals.free else ""
    return (
        f"{fmt.counted(totals.nodes, 'node')}: {totals.live:,} live, {totals.stale:,} stale, {totals.lost:,} lost; "
        f"{totals.gpus_held:,} of {fmt.counted(totals.gpus, 'GPU')} held{free}; {totals_money(totals)}; today {today_text(found)}"
    )


def today_text(found: Selected) -> str:
    """`$1,234.50`; `~` before it where a part is not known."""
    return f"{'~' * (found.today is not None and found.today_partial)}{fmt.usd(found.today)}"


def sums_record(found: Selected) -> dict[str, Any]:
    """For `--json`: the sums, with what today cost so far."""
    return {**totals_record(found.totals), "today_cost": money(found.today), "today_complete": not found.today_partial}


def today(context: Context, arguments: argparse.Namespace, names: Sequence[str]) -> tuple[DayCosts | None, ExitCode]:
    """What today cost by node, once the ledger has what those nodes have; None where it cannot be read."""
    from pricing.errors import PricingError
    from tui.terms import pricing_of

    try:
        with context.open_ledger() as ledger:
            pricing = pricing_of(context, argparse.Namespace())
            if not (arguments.no_sync or getattr(arguments, "record", None)):
                _sync(context, ledger, names)
            return day_costs(so_far(ledger, pricing, context.now(), context.timezone_name()).today), ExitCode.DONE
    except PricingError as error:
        say(f"rackrate: the cost of today is missing: {error}")
        return None, ExitCode.PARTLY


def _sync(context: Context, ledger: Any, names: Sequence[str]) -> None:
    """Brings the usage of those nodes; who does not answer was named already when it was asked for its state."""
    from tui.sync import sync

    wanted = set(names)
    with context.nodes() as nodes:
        asyncio.run(sync([node for node in nodes if node.name in wanted], ledger, client_for=context.client_for))
