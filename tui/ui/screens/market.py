"""The market: what a GPU-hour costs over clouds, regions and purchase options, the cheapest first, and one offer's history.

Invariant: the filter is that of `rackrate prices`; every price is there with its date and source.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult

from tui import format as fmt
from tui.columns import purchase_text
from tui.market_view import (
    DAYS,
    HEIGHTS,
    MARKET_WORDS,
    History,
    Market,
    MarketRow,
    alike,
    history_lines,
    read_history,
    read_market,
)
from tui.ui import actions
from tui.ui.lines import BLANK, Line, cropped, fitted, hung, joined, wrapped
from tui.ui.panes.node import rule
from tui.ui.reading import Reading
from tui.ui.screens.base import RackrateScreen
from tui.ui.screens.table import TableScreen
from tui.ui.widgets.header import Header
from tui.ui.widgets.line_table import LineTable
from tui.ui.widgets.lines_view import LinesView, RaisedLines
from tui.ui.widgets.market_table import OLD_DAYS, MarketTable
from tui.ui.widgets.status import FilterBar, Footer, StatusLine

EXAMPLE = "H100 buy:spot region:us-east !azure each<3"
LOW_ROWS = 30
WIDEST = 160
_NO_MATCH: tuple[Line, ...] = ((("  No offer matches this filter. Esc clears it.", "dim"),),)
_READING: tuple[Line, ...] = ((("  Reading the prices ...", "dim"),),)


class MarketScreen(TableScreen):
    """Enter draws the history of the offer under the cursor."""

    SCOPE = "market"
    ROWS = "Offers"
    BINDINGS: ClassVar = actions.bindings("market")

    def __init__(self) -> None:
        super().__init__()
        self._market: Reading[Market] = Reading(self)
        self._summed: tuple[object, tuple[Line, ...]] = (None, ())

    def compose(self) -> ComposeResult:
        app = self.rackrate
        yield Header()
        yield MarketTable(app.clock, id="offers")
        yield FilterBar(MARKET_WORDS, EXAMPLE)
        yield StatusLine(app.clock)
        yield Footer("market")

    def on_mount(self) -> None:
        self.table.focus()

    @property
    def table(self) -> MarketTable:
        return self.query_one(MarketTable)

    def draw(self) -> None:
        app, table = self.rackrate, self.table
        files, today = app.files, app.now().date()
        self._market.want(today, app.catalog_version, lambda: read_market(files, today))
        self.show_header()
        if self._market.value is not None:
            table.explain(_NO_MATCH)
            table.show_market(self._market.value)
        else:
            table.explain(((("  " + fmt.clean(self._market.error), "lost"),),) if self._market.error else _READING)
        table.update(app.clock())
        self.show_status()

    def on_reading_done(self, event: Reading.Done) -> None:
        event.reading.take(event)
        self.redraw()

    def action_again(self) -> None:
        self._market.again()
        self.redraw()

    def sums(self) -> tuple[Line, ...]:
        """How many, the cheapest, and how many are old: worked out when other rows are shown."""
        if self._summed[0] is not self.table.keys:
            self._summed = (self.table.keys, self._sums(self.table.shown))
        return self._summed[1]

    @staticmethod
    def _sums(shown: Sequence[MarketRow]) -> tuple[Line, ...]:
        parts: list[Line] = [((fmt.counted(len(shown), "offer"), "text"),)]
        dollars = [(row.by_each, row.key, row) for row in shown if row.by_each is not None and not row.by_each[0]]
        if dollars:
            best = min(dollars)[2]
            words = f"{best.offer.instance_type} {purchase_text(best.offer.purchase)} {best.where}"
            parts += [(("from ", "dim"), (f"{fmt.usd(best.each)}/GPU-h", "strong")), ((fmt.clean(words), "text"),)]
        if old := sum(row.age_days > OLD_DAYS for row in shown if row.offer.price is not None):
            parts.append(((f"{old:,} older than {OLD_DAYS} d", "idle"),))
        return tuple(parts)

    def trouble(self) -> Line:
        return ((fmt.clean(self._market.error), "lost"),) if self._market.error else ()

    def action_open(self) -> None:
        row, market = self.table.chosen, self._market.value
        if row is not None and market is not None:
            self.app.push_screen(PriceScreen(row, alike(market.rows, row)))

    def on_line_table_opened(self, event: LineTable.Opened) -> None:
        self.action_open()


class PriceScreen(RackrateScreen):
    """One offer: what it is, what the same machine costs otherwise, and its price over time."""

    SCOPE = "price"
    BINDINGS: ClassVar = actions.bindings("price")

    def __init__(self, row: MarketRow, others: list[MarketRow]) -> None:
        super().__init__()
        self.row = row
        self.others = others
        self.days = 30
        self._history: Reading[History] = Reading(self)

    def compose(self) -> ComposeResult:
        yield RaisedLines(id="title")
        yield LinesView(id="page")
        yield StatusLine(self.rackrate.clock)
        yield Footer("price")

    def on_mount(self) -> None:
        self.query_one("#page").focus()

    def draw(self) -> None:
        app, row, days, cells = self.rackrate, self.row, self.days, self.app.size.width - 1
        files, now = app.files, app.now()
        self._history.want(days, app.catalog_version, lambda: read_history(files, row, days, now))
        self.query_one("#title", LinesView).show([_title(row, cells)])
        lines = [*_facts(row, cells), BLANK, *self._drawn(cells), BLANK, *_others(self.others, row, cells)]
        self.query_one("#page", LinesView).show([cropped(line, cells) for line in lines])
        self.query_one(StatusLine).show_line(((f" {days} days  ", "dim"), ("[ ]", "key"), (" more or fewer", "dim")))

    def _drawn(self, cells: int) -> list[Line]:
        head = rule("Price over time", cells, f"{self.days} days")
        history, error = self._history.value, self._history.error
        if error:
            return [head, *wrapped(fmt.clean(error), "lost", cells, "  ")]
        if history is None:
            return [head, (("  reading ...", "dim"),)]
        height = HEIGHTS[0] if self.app.size.height < LOW_ROWS else HEIGHTS[1]
        app = self.rackrate
        told = history_lines(history, min(cells - 1, WIDEST), height, app.zone, app.unicode)
        lines: list[Line] = [head]
        titles = {one.title for one in history.series}
        for place, text in enumerate(told):
            if text in titles:
                lines.append(((text, "strong"),))
            elif any(text.startswith(title) for title in titles):
                lines += wrapped(text, "text", cells, "  ")
            else:
                lines.append(_chart_line(text, place and told[place - 1] in titles))
        while len(lines) > 1 and not lines[-1]:
            lines.pop()
        if not any(len(one.steps) > 1 for one in history.series):
            refresh: Line = (("  rackrate prices refresh", "key"), ("   keeps each price that it finds: then there is a line to draw", "dim"))
            lines += hung(refresh, cells)
        return lines

    def on_reading_done(self, event: Reading.Done) -> None:
        event.reading.take(event)
        self.redraw()

    def action_days(self, step: int) -> None:
        place = DAYS.index(self.days) + step
        if 0 <= place < len(DAYS):
            self.days = DAYS[place]
            self.redraw()
        else:
            self.note(f"{self.days} days is the {'longest' if step > 0 else 'shortest'} that is drawn.", "dim")

    def action_back(self) -> None:
        self.app.pop_screen()


def _chart_line(text: str, is_summary: object) -> Line:
    """Prices and times dimmed, the line itself not."""
    tick = max(text.find("┤"), text.find("|"))
    if is_summary or not text:
        return ((text, "text"),) if text else BLANK
    return ((text[: tick + 1], "dim"), (text[tick + 1 :], "accent")) if tick >= 0 else ((text, "dim"),)


def _title(row: MarketRow, cells: int) -> Line:
    offer = row.offer
    parts: list[Line] = [
        ((f" {fmt.clean(offer.instance_type)}", "strong"),),
        ((purchase_text(offer.purchase), "accent"),),
        ((f"{offer.cloud} {row.where}", "dim"),),
    ]
    return joined(parts, "  ", cells)


def _facts(row: MarketRow, cells: int) -> list[Line]:
    from tui.offers import amount_text

    offer, shape = row.offer, row.shape
    price: list[Line] = [
        ((f"  {amount_text(offer.price)}", "strong"), (" an hour", "dim")),
        ((amount_text(offer.price, row.each) if row.each is not None else fmt.UNKNOWN, "strong"), (" a GPU-hour", "dim")),
    ]
    age = ((f"as of {offer.as_of}, {row.age_days} d ago", "idle" if row.age_days > OLD_DAYS else "text"),)
    lines = [joined([*price, age], "   ", cells), *wrapped(fmt.clean(offer.source), "dim", cells, "  ")]
    if shape is not None:
        known = [
            f"{shape.gpu_count} x {shape.gpu_model}" if shape.gpu_count else "no GPU",
            f"{fmt.size(shape.gpu_memory_bytes)} a GPU" if shape.gpu_memory_bytes else "",
            f"{shape.vcpus} vCPUs" if shape.vcpus else "",
            f"{fmt.size(shape.memory_bytes)} memory" if shape.memory_bytes else "",
            f"{fmt.size(shape.nvme_bytes)} NVMe" if shape.nvme_bytes else "",
            f"network {shape.network}" if shape.network else "",
        ]
        lines += wrapped(fmt.clean(" · ".join(word for word in known if word)), "text", cells, "  ")
    return lines


def _others(others: list[MarketRow], row: MarketRow, cells: int) -> list[Line]:
    """The other ways to buy the same machine."""
    from tui.offers import amount_text

    lines = [rule("The same machine", cells, "here, and where each option is cheapest")]
    for one in others:
        own = one.key == row.key
        words = f"{purchase_text(one.offer.purchase):<10} {fitted(one.where, 20)} {amount_text(one.offer.price):>14} /h"
        ratio = _ratio(one, row)
        lines.append(
            (("▌ " if own else "  ", "mark"), (words, "strong" if own else "text"), (f"  {ratio:>6}", "dim"),
             (f"   {one.offer.as_of}", "dim"))
        )  # fmt: skip
    return lines


def _ratio(one: MarketRow, row: MarketRow) -> str:
    """`+38%` or `-61%` of this offer's price, where both are of one currency."""
    price, own = one.offer.price, row.offer.price
    if price is None or own is None or price.currency != own.currency or not own.fraction or one.key == row.key:
        return ""
    return f"{float(price.fraction / own.fraction - 1):+.0%}"
