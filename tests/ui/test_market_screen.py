"""The market: the offers of `rackrate prices`, the cheapest first, and what one cost over time."""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path

import pytest
from textual.pilot import Pilot

from pricing.catalog import Catalog
from tests.support.fleets import AT
from tests.support.money_app import money_app, priced, until
from tests.support.screens import line_with, press, running, text
from tui.market_view import MarketRow, alike, read_history, read_market
from tui.money_files import MoneyFiles
from tui.offers import select_offers
from tui.query import parse
from tui.query_rows import OFFER_WORDS
from tui.ui.app import RackrateApp
from tui.ui.background import CatalogRead
from tui.ui.glyphs import to_ascii
from tui.ui.screens.market import MarketScreen, PriceScreen
from tui.ui.theme import ANSI, DARK, LIGHT
from tui.ui.widgets.status import FilterBar

PAINTED = [((80, 24), DARK), ((120, 40), LIGHT), ((200, 60), ANSI), ((20, 5), DARK), ((40, 10), ANSI), ((5, 2), LIGHT)]


def screen(app: RackrateApp) -> MarketScreen:
    assert isinstance(app.screen, MarketScreen)
    return app.screen


async def opened(app: RackrateApp, pilot: Pilot[None], query: str = "") -> None:
    await press(pilot, "m")
    found = screen(app)
    await until(pilot, lambda: not found._market.busy and (found._market.value is not None or found._market.error is not None))
    if query:
        found.query_one(FilterBar).put(query)
        await pilot.pause()


async def history(app: RackrateApp, pilot: Pilot[None]) -> PriceScreen:
    await press(pilot, "enter")
    found = app.screen
    assert isinstance(found, PriceScreen)
    await until(pilot, lambda: not found._history.busy and (found._history.value is not None or found._history.error is not None))
    return found


def page(found: PriceScreen) -> str:
    return found.query_one("#page").plain  # type: ignore[attr-defined]


async def test_the_rows_are_those_of_the_command_in_its_order_of_price(tmp_path: Path) -> None:
    query = "H100 buy:spot !gcp"
    expected = select_offers(parse(query, OFFER_WORDS), Catalog.embedded())
    app = money_app(tmp_path)
    async with running(app, (200, 60)) as pilot:
        await opened(app, pilot, query)
        shown = screen(app).table.shown
        assert {id(row.offer) for row in shown} == {id(offer) for offer in expected}
        each = [row.each for row in shown if row.offer.price and row.offer.price.currency == "USD"]
        assert each == sorted(each, key=lambda value: (value is None, value or Fraction(0))) and len(each) > 3
        line = line_with(app, f" {shown[0].offer.instance_type} ")
        assert shown[0].offer.as_of.isoformat() in line and shown[0].offer.source[:10] in line
        assert f"{len(shown)} offers" in text(app) and f"from ${float(shown[0].each or 0):.2f}/GPU-h" in text(app)


async def test_an_unknown_price_is_never_the_cheapest(tmp_path: Path) -> None:
    app = money_app(tmp_path)
    async with running(app, (120, 40)) as pilot:
        await opened(app, pilot)
        shown = screen(app).table.shown
        known = [row.each is not None for row in shown]
        assert known == sorted(known, reverse=True) and len(shown) > 3000
        await press(pilot, "r")
        assert screen(app).table.shown[0].each is not None, "also the other way round"


async def test_what_was_last_confirmed_long_ago_is_said(tmp_path: Path) -> None:
    app = money_app(tmp_path)
    async with running(app, (140, 40)) as pilot:
        await opened(app, pilot, "buy:spot aws")
        assert "older than 180 d" in text(app)


async def test_a_wrong_query_says_what_is_wrong_and_changes_nothing(tmp_path: Path) -> None:
    app = money_app(tmp_path)
    async with running(app, (120, 40)) as pilot:
        await opened(app, pilot, "H100 buy:spot")
        count = len(screen(app).table.shown)
        screen(app).query_one(FilterBar).open()
        screen(app).query_one(FilterBar).put("H100 bye:spot")
        await pilot.pause()
        assert "unknown key" in text(app) and len(screen(app).table.shown) == count


async def test_enter_draws_the_kept_history_and_brackets_change_its_length(tmp_path: Path) -> None:
    app = money_app(tmp_path, prices_path=priced(tmp_path, 12))
    async with running(app, (120, 40)) as pilot:
        await opened(app, pilot, "p4d.24xlarge buy:spot zone:use1-az1")
        assert screen(app).table.shown[0].offer.source.startswith("stand-in")
        found = await history(app, pilot)
        shown = page(found)
        for part in ("p4d.24xlarge spot in use1-az1", "min $", "mean $", "on demand $", "The same machine", "a GPU-hour", "8 x A100"):
            assert part in shown, part
        assert any("\u2801" <= sign <= "\u28ff" for sign in shown), "a line is drawn"
        await press(pilot, "left_square_bracket")
        await until(pilot, lambda: not found._history.busy and "7 days" in page(found))
        assert found.days == 7
        await press(pilot, "left_square_bracket")
        assert "7 days is the shortest" in text(app)
        await press(pilot, "escape", "escape", "escape")
        assert len(app.screen_stack) == 1


async def test_without_a_history_it_says_how_to_get_one(tmp_path: Path) -> None:
    app = money_app(tmp_path)
    async with running(app, (120, 40)) as pilot:
        await opened(app, pilot, "p4d.24xlarge buy:spot us-east-1 or use1-az1")
        found = await history(app, pilot)
        assert "no history is kept" in page(found) and "rackrate prices refresh" in page(found)
        await pilot.resize_terminal(60, 24)
        await until(pilot, lambda: "then there is a line to draw" in " ".join(page(found).split()) and found.size.width == 60)


async def test_ascii_draws_the_history_without_braille(tmp_path: Path) -> None:
    app = money_app(tmp_path, prices_path=priced(tmp_path, 3), unicode=False)
    async with running(app, (80, 24)) as pilot:
        await opened(app, pilot, "p4d.24xlarge buy:spot zone:use1-az1")
        shown = page(await history(app, pilot))
        assert "*" in shown and not any("\u2800" <= sign <= "\u28ff" for sign in shown)
        assert to_ascii(text(app)).isascii()


async def test_prices_that_a_refresh_brings_are_shown(tmp_path: Path) -> None:
    app = money_app(tmp_path, prices_path=tmp_path / "prices.db")
    async with running(app, (140, 40)) as pilot:
        await opened(app, pilot, "p4d.24xlarge buy:spot zone:use1-az1")
        assert "stand-in" not in {row.offer.source for row in screen(app).table.shown}
        priced(tmp_path, 2)
        screen(app)._market._took = 0.0
        app.post_message(CatalogRead(None, None))
        await pilot.pause()
        found = screen(app)
        await until(pilot, lambda: any("stand-in" in row.offer.source for row in found.table.shown))


@pytest.mark.parametrize(("size", "theme"), PAINTED)
async def test_every_size_and_theme_can_be_painted(tmp_path: Path, size: tuple[int, int], theme: str) -> None:
    app = money_app(tmp_path, theme=theme)
    async with running(app, size) as pilot:
        await opened(app, pilot)
        assert len(text(app).split("\n")) == size[1]
        if size[0] >= 80:
            assert all(part in text(app) for part in ("PER GPU-H", "TYPE", "BUY", "WHERE"))
        await history(app, pilot)
        assert len(text(app).split("\n")) == size[1] and app._exception is None


def test_the_same_machine_is_told_here_and_where_each_option_is_cheapest() -> None:
    rows = read_market(MoneyFiles(), AT.date()).rows
    row = next(row for row in rows if row.offer.instance_type == "p4d.24xlarge" and row.offer.purchase == "on_demand")
    others = alike(rows, row)
    assert row in others and {one.offer.instance_type for one in others} == {"p4d.24xlarge"}

    def cheapest(purchase: str) -> MarketRow:
        same = [one for one in rows if (one.offer.cloud, one.offer.instance_type, one.offer.purchase) == ("aws", "p4d.24xlarge", purchase)]
        return min((one for one in same if one.each is not None), key=lambda one: one.each or 0)

    for purchase in ("spot", "on_demand"):
        assert cheapest(purchase).each in {one.each for one in others if one.offer.purchase == purchase}


def test_a_history_is_of_the_offers_own_zone(tmp_path: Path) -> None:
    files = MoneyFiles(prices=priced(tmp_path, 3))
    row = next(row for row in read_market(files, AT.date()).rows if row.offer.zone == "use1-az1" and row.offer.source.startswith("stand-in"))
    (series,) = read_history(files, row, 30, AT).series
    assert series.zone == "use1-az1" and len(series.steps) > 5 and series.on_demand is not None
    assert all(at.tzinfo is not None and at <= datetime(2100, 1, 1, tzinfo=UTC) for at, _ in series.steps)
