"""The table of all offers.

Invariant: what is not known stands last; a price that was last confirmed long ago is marked so.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence

from tui.columns import Column
from tui.format import UNKNOWN
from tui.market_view import MARKET_COLUMNS, Market, MarketRow
from tui.ui.lines import Line, fitted
from tui.ui.widgets.arranged_table import ArrangedTable

OLD_DAYS = 180


class MarketTable(ArrangedTable):
    """Rows are offers; the cheapest per GPU-hour first."""

    def __init__(self, clock: Callable[[], float], *, id: str | None = None) -> None:
        super().__init__(MARKET_COLUMNS, "each", clock, id=id)
        self._market: Market | None = None
        self._by_key: dict[str, MarketRow] = {}

    def show_market(self, market: Market) -> None:
        """Other offers, at once."""
        if market is not self._market:
            self._market = market
            self._by_key = {row.key: row for row in market.rows}
            self.order_rows(self._clock())
            self.refresh_rows()

    @property
    def chosen(self) -> MarketRow | None:
        return self._by_key.get(self.cursor_key) if self.cursor_key is not None else None

    @property
    def shown(self) -> Sequence[MarketRow]:
        return [self._by_key[key] for key in self.keys]

    def rows(self) -> Iterable[MarketRow]:
        return self._by_key.values()

    def key_of(self, row: MarketRow) -> str:
        return row.key

    def row_of(self, key: str) -> MarketRow:
        return self._by_key[key]

    def changed(self) -> bool:
        return False

    def look_of(self, row: MarketRow, now: float) -> Hashable:
        return row.offer.price, row.offer.as_of, row.age_days

    def cell(self, row: MarketRow, column: Column, cells: int, now: float) -> Line:
        text = column.text(row, now)
        return ((fitted(text, cells, right=column.align == "right"), _style(row, column, text)),)


def _style(row: MarketRow, column: Column, text: str) -> str:
    if text.strip() == UNKNOWN:
        return "dim"
    match column.id:
        case "each":
            return "strong"
        case "age":
            return "idle" if row.age_days > OLD_DAYS else "dim"
        case "buy":
            return "accent" if row.offer.purchase == "spot" else "text"
        case "source" | "cloud" | "as_of":
            return "dim"
    return "text"
