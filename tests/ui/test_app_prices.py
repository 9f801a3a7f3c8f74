"""The app prices nodes by the price book, as the commands do."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from pricing.pricebook import PriceBook
from pricing.prices import Price
from tests.support.screens import make_app
from tui.ui.background import CatalogRead, CostsRead
from tui.ui.clipboard import FILE_NAME
from tui.ui.panes.header import Costs


def test_the_app_prices_by_the_price_book_and_goes_on_without_a_damaged_one(tmp_path: Path) -> None:
    now = datetime(2026, 11, 29, tzinfo=UTC)
    path = tmp_path / "prices.db"
    with PriceBook.open(path) as book:
        told = Price(
            "aws", "us-east-1", None, "p4d.24xlarge", "on_demand", Decimal("20.5"), "USD", "instance_hour", now, now, "fake"
        )
        book.put([told], now)
    for content, price in (
        (None, Decimal("20.5")),
        (b"no database, but long enough to be taken for one" * 99, Decimal("21.957642")),
    ):
        if content is not None:
            path.write_bytes(content)
        app, _ = make_app(prices_path=path)
        read: list[CatalogRead] = []
        app.post_message = lambda message: bool(read.append(message)) or True  # type: ignore[method-assign, assignment]
        app._import_slowly()
        (message,) = read
        assert message.catalog is not None
        quote = message.catalog.quote("aws", "us-east-1", None, "p4d.24xlarge", "on_demand")
        assert quote.price is not None and quote.price.amount == price
        assert (message.error is not None) == (content is not None)


def test_a_thread_that_is_done_when_the_app_has_ended_says_nothing(tmp_path: Path) -> None:
    app, _ = make_app(data_dir=tmp_path)
    app._loop = asyncio.new_event_loop()
    app._loop.close()
    app._running, app._thread_id = True, -1  # it closes between the look and the message
    with pytest.raises(RuntimeError, match="closed"):
        app.post_message(CostsRead(Costs()))
    app._import_slowly()
    app._post(CostsRead(Costs()))
    for sequence in ("x", None):
        app._by_others("text", "a text", [], sequence)
    assert (tmp_path / FILE_NAME).read_text() == "text"


def test_prices_that_a_refresh_brings_while_the_app_runs_are_read_once_and_only_then(tmp_path: Path) -> None:
    now = datetime(2026, 11, 29, tzinfo=UTC)
    app, _ = make_app(prices_path=tmp_path / "prices.db", live=object())
    read: list[CatalogRead] = []
    app.post_message = lambda message: bool(read.append(message)) or True  # type: ignore[method-assign, assignment]
    app._read_catalog = app._import_slowly  # type: ignore[method-assign]
    app._import_slowly()
    for price in ("20.5", "22.5"):
        count = len(read)
        app.renew_prices()
        assert len(read) == count, "nothing was brought"
        with PriceBook.open(tmp_path / "prices.db") as book:
            told = Price(
                "aws", "us-east-1", None, "p4d.24xlarge", "on_demand", Decimal(price), "USD", "instance_hour", now, now, "fake"
            )
            book.put([told], now)
        app.renew_prices()
        assert len(read) == count + 1
        catalog = read[-1].catalog
        assert catalog is not None
        quote = catalog.quote("aws", "us-east-1", None, "p4d.24xlarge", "on_demand")
        assert quote.price is not None and quote.price.amount == Decimal(price)
