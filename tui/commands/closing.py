"""`close`: freezes what a month cost, and notes corrections of months that are closed.

Invariant: closing changes no figure of another month, and a closed one never again; what becomes known later is said.
"""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tui import format as fmt
from tui.commands.context import Context
from tui.commands.money import sync_nodes, sync_verdict
from tui.exit_codes import ExitCode
from tui.output import print_json, print_table, say
from tui.terms import pricing_of, say_correction

if TYPE_CHECKING:
    from pricing.closed import Month
    from pricing.closing import Closed
    from pricing.ledger import Ledger


def close(context: Context, arguments: argparse.Namespace) -> ExitCode:
    """Closes a month; without one, lists those that are closed. Either way it looks for corrections."""
    from pricing import closing

    now, pricing = datetime.now(UTC), pricing_of(context, arguments)
    with context.open_ledger() as ledger:
        code = ExitCode.DONE if arguments.no_sync else sync_verdict(sync_nodes(context, ledger))
        if arguments.month and code is not ExitCode.DONE:
            say("rackrate: not every node was heard, so nothing was closed; use --no-sync to close with what is here")
            return code
        noticed = closing.notice(ledger, pricing, now)
        made = None
        if arguments.month:
            made = closing.close(ledger, pricing, arguments.month, now, tz=context.timezone_name(arguments.tz))
        for found in noticed:
            say_correction(found.month.month, found.corrections, found.cost, found.month.currency)
        _print(ledger, made, arguments)
    return code


def _print(ledger: Ledger, made: Closed | None, arguments: argparse.Namespace) -> None:
    months = closed_months(ledger)
    if arguments.json:
        print_json([_record(month, corrections) for month, corrections in months])
    elif made is not None:
        from pricing.money import Money

        print(f"closed {made.month.month} ({fmt.clean(made.month.tz)}): {Money.of(made.cost, 2, made.month.currency).text()}")
        if made.unpriced_share_ms:
            say("some of its time has no price; `rackrate report` of that month names it")
    elif months:
        rows = [(month.month, fmt.clean(month.tz), _day(month.closed_at_ms), str(corrections)) for month, corrections in months]
        print_table(("MONTH", "DAYS OF", "CLOSED ON", "CORRECTIONS"), rows, ("left", "left", "left", "right"))
    else:
        say("no month is closed; `rackrate close 2026-03` closes one")


def closed_months(ledger: Ledger) -> list[tuple[Month, int]]:
    """Each closed month with how many corrections it has."""
    from pricing.closed import months

    with ledger.reading() as connection:
        counts = dict(connection.execute("SELECT month_id, COUNT(*) FROM closed_adjustments GROUP BY month_id"))
        return [(month, counts.get(month.id, 0)) for month in months(connection)]


def _record(month: Month, corrections: int) -> dict[str, Any]:
    return {
        "month": month.month,
        "timezone": month.tz,
        "currency": month.currency,
        "closed_at": _instant(month.closed_at_ms).isoformat().replace("+00:00", "Z"),
        "corrections": corrections,
    }


def _day(ms: int) -> str:
    return _instant(ms).date().isoformat()


def _instant(ms: int) -> datetime:
    from pricing.calendar import instant

    return instant(ms)
