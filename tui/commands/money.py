"""`sync`, `cost`: what things cost.

Invariant: a price that is not known is shown as not known and why; it is never 0. A report says when it is not complete.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tui import format as fmt
from tui.commands.context import Context
from tui.exit_codes import ExitCode
from tui.output import print_json, print_table, say, say_failures
from tui.progress import BrokenOff, live_line
from tui.terms import notice, options, pricing_of

if TYPE_CHECKING:
    from pricing.budgets import BudgetState
    from pricing.ledger import Ledger
    from pricing.rates import Pricing
    from tui.sync import NodeSync


def sync(context: Context, arguments: argparse.Namespace) -> ExitCode:
    """Brings usage rows of all nodes into the ledger."""
    with context.open_ledger() as ledger:
        results = sync_nodes(context, ledger, arguments.node)
    if arguments.json:
        print_json([_sync_record(result) for result in results])
    else:
        for result in results:
            if result.error is None:
                print(f"{fmt.clean(result.node)}: {result.new_rows} new rows")
    return sync_verdict(results)


def _sync_record(result: NodeSync) -> dict[str, Any]:
    return {
        "node": result.node,
        "new_rows": result.new_rows,
        "missing_rows": result.missing_rows,
        "error": result.error,
    }


def sync_nodes(context: Context, ledger: Ledger, only: Sequence[str] = ()) -> list[NodeSync]:
    """Syncs the configured nodes (or this machine)."""
    from tui.sync import sync as run_sync

    done = rows = 0
    with context.nodes(only) as nodes, live_line(step_only=True) as line:

        def told(result: NodeSync) -> None:
            nonlocal done, rows
            done, rows = done + 1, rows + result.new_rows
            line.tell("syncing", f": {done} of {fmt.counted(len(nodes), 'node')}, {fmt.counted(rows, 'new row')}")

        line.tell("syncing", f" {fmt.counted(len(nodes), 'node')}")
        try:
            return asyncio.run(run_sync(nodes, ledger, client_for=context.client_for, on_progress=told))
        except KeyboardInterrupt:
            raise BrokenOff(f"synced: {done} of {fmt.counted(len(nodes), 'node')}; the next sync brings what is missing.") from None


def sync_verdict(results: Sequence[NodeSync]) -> ExitCode:
    """Names what failed or is missing on stderr and chooses the exit code."""
    failed = {fmt.clean(result.node): result.error for result in results if result.error is not None}
    say_failures(failed)
    for result in results:
        if result.error is None and result.missing_rows:
            say(
                f"rackrate: {fmt.clean(result.node)}: {fmt.counted(result.missing_rows, 'row is', 'rows are')} no longer kept by the agent; "
                "sync more often, or raise its retention_days"
            )
    if not failed:
        return ExitCode.DONE
    return ExitCode.UNREACHABLE if len(failed) == len(results) else ExitCode.PARTLY


def cost(context: Context, arguments: argparse.Namespace) -> ExitCode:
    """Prints today's and this month's cost."""
    from pricing.attribution import cost_summary

    name, now, pricing = context.timezone_name(arguments.tz), context.now(), pricing_of(context, arguments)
    with context.open_ledger() as ledger:
        code = ExitCode.DONE if arguments.no_sync else sync_verdict(sync_nodes(context, ledger))
        notice(ledger, pricing, arguments, now)
        priced = {key: value for key, value in options(pricing, now).items() if key != "now"}
        with live_line(step_only=True) as line:
            line.tell("adding up today and this month")
            summary = cost_summary(ledger, pricing.catalog, now, name, **priced)
            line.tell("adding up the budgets")
            budgets = _budget_states(context, ledger, pricing, now)
    from tui.costs import notes, summary_record, summary_table

    if arguments.json:
        from pricing.budgets import budget_alerts
        from tui.budgets import alert_records, budget_record

        told = {"budgets": [budget_record(state) for state in budgets], "alerts": alert_records(budget_alerts(budgets))}
        print_json({**summary_record(summary), **told})
    else:
        titles, rows = summary_table(summary)
        print_table(titles, rows, ("left", *["right"] * (len(titles) - 1)))
        _print_budgets(budgets)
        say_notes(notes(summary.today, summary.month))
    return ExitCode.FAILED if arguments.fail_over and any(state.over for state in budgets) else code


def _budget_states(context: Context, ledger: Ledger, pricing: Pricing, now: datetime) -> list[BudgetState]:
    """What became of the configuration's budgets, under the same terms as the other figures."""
    if not context.config.budgets:
        return []
    from tui.budgets import states_of

    return states_of(context.config.budgets, ledger, pricing, context.timezone_name(), now)


def _print_budgets(budgets: Sequence[BudgetState]) -> None:
    if not budgets:
        return
    from pricing.budgets import budget_alerts
    from tui.budgets import ALIGN, TITLES, budget_notes, budget_rows

    print()
    print_table(TITLES, budget_rows(budgets), ALIGN)
    alerts = budget_alerts(budgets)
    if alerts:
        print("", *(f"alert: {fmt.clean(one.sentence)}" for one in alerts), sep="\n")
    for sentence in budget_notes(budgets):
        say(f"note: {fmt.clean(sentence)}")


def say_notes(sentences: Sequence[str]) -> None:
    """What is in no cost, on stderr."""
    for sentence in sentences:
        say(f"not counted: {fmt.clean(sentence)}")
