"""Under which terms the commands price: `terms.toml` beside the configuration, or the file that `--terms` names; and the
commitments of `owned.toml` beside it.

Invariant: a file that is named must exist; without one, list prices count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tui import format as fmt
from tui.commands.context import Context
from tui.errors import ConfigurationError
from tui.output import say

if TYPE_CHECKING:
    import argparse
    from datetime import datetime

    from pricing.ledger import Ledger
    from pricing.rates import Pricing
    from pricing.terms import Terms


def pricing_of(context: Context, arguments: argparse.Namespace) -> Pricing:
    """The catalog, the terms and the currency that the options choose."""
    from pricing.money import Money
    from pricing.rates import Pricing
    from pricing.terms import load

    named = getattr(arguments, "terms", None)
    terms = load(_existing(context, named)) if named else load(context.terms_path, must_exist=False)
    _say_about(terms)
    currency = Money.parse("0", (getattr(arguments, "currency", None) or "USD").strip().upper()).currency
    catalog = context.catalog()
    return Pricing(catalog, {}, currency, terms, catalog.history)


def _say_about(terms: Terms) -> None:
    """Where terms.toml and owned.toml contradict each other, and that what was read is old."""
    from datetime import UTC, datetime

    if terms.owned_at is None:
        return
    from pricing.owned_file import age_note

    for sentence in (*terms.notes, age_note(terms.owned_at, datetime.now(UTC))):
        if sentence:
            say(f"note: {fmt.clean(sentence)}")


def _existing(context: Context, named: str) -> Any:
    from pathlib import Path

    path = Path(named).expanduser()
    if not path.is_file():
        raise ConfigurationError(
            f"{named}: no such file. Give --terms an existing file, or put terms.toml beside config.toml."
        )
    return path


def options(pricing: Pricing, now: datetime) -> dict[str, Any]:
    """Keyword arguments of `pricing.attribution`."""
    return {"currency": pricing.currency, "terms": pricing.terms, "book": pricing.book, "now": now}


def notice(ledger: Ledger, pricing: Pricing, arguments: argparse.Namespace, now: datetime) -> None:
    """Writes down corrections of closed months; not for terms that were only tried, and not without a sync."""
    from pricing.closing import notice as look

    if getattr(arguments, "terms", None) or arguments.no_sync:
        return
    for found in look(ledger, pricing, now):
        say_correction(found.month.month, found.corrections, found.cost, found.month.currency)


def say_correction(month: str, count: int, cost: Any, currency: str) -> None:
    from pricing.money import Money

    amount = Money.of(cost, 2, currency).text()
    say(f"{fmt.clean(month)} is closed: {count} corrections of together {amount} were noticed and stand in this month")
