"""Where the money is read from: the ledger, the price book, the terms and the budgets, as the app and the commands use them.

Invariant: the same files give the same figures, whoever asks; nothing is opened before it is asked for.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pricing.catalog import Catalog
    from pricing.rates import Pricing
    from tui.config import BudgetConfig


class MoneyFiles(NamedTuple):
    """Paths that are None, or where nothing is, stand for an empty ledger, the prices that ship, and list prices."""

    ledger: Path | None = None
    prices: Path | None = None
    terms: Path | None = None
    data_dir: Path | None = None
    """Where the app keeps what it is told, such as what advice was dismissed."""
    budgets: tuple[BudgetConfig, ...] = ()
    timezone: str = "UTC"
    """IANA name of the zone of calendar days."""
    as_of: datetime | None = None
    """The prices are those that were in force then; None: the newest."""

    @property
    def has_ledger(self) -> bool:
        return self.ledger is not None and self.ledger.is_file()

    def pricing(self) -> Pricing:
        """Catalog, history and terms, in US dollars. PricingError where a file is wrong."""
        return pricing_at(self.prices, self.terms, self.as_of)

    def catalog(self) -> Catalog:
        """The prices alone."""
        from tui.catalogs import overlaid

        return overlaid(self.prices, as_of=self.as_of)

    def at(self, moment: datetime) -> MoneyFiles:
        """The same with the prices of a moment, where others have come since."""
        from tui.catalogs import changed_after

        return self._replace(as_of=moment if changed_after(self.prices, moment) else None)


def pricing_at(prices: Path | None, terms: Path | None, as_of: datetime | None = None) -> Pricing:
    """The catalog over the price book, under the user's terms."""
    from pricing.rates import Pricing
    from pricing.terms import Terms, load
    from tui.catalogs import overlaid

    catalog = overlaid(prices, as_of=as_of)
    agreed = load(terms, must_exist=False) if terms is not None else Terms()
    return Pricing(catalog, terms=agreed, book=catalog.history)
