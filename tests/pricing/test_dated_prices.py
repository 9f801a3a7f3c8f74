"""Price lists of days gone by: they add to the history, and what was seen after them stays in force."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pricing.catalog import Catalog
from pricing.pricebook import PriceBook
from pricing.prices import Price
from pricing.refresh import refresh
from pricing.sources import OnProgress, Wanted
from tests.pricing.test_refresh import FakeSource

START = datetime(2026, 1, 1, tzinfo=UTC)
NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
TYPE = ("aws", "us-east-1", None, "p4d.24xlarge", "on_demand")


def day(number: int) -> datetime:
    return START + timedelta(days=number)


def price(amount: object, since: int, seen: int) -> Price:
    return Price(*TYPE, Decimal(str(amount)), "USD", "instance_hour", day(since), day(seen), f"list of day {seen}")  # type: ignore[arg-type]


def at(book: PriceBook, moment: datetime) -> tuple[Decimal | None, datetime] | None:
    found = book.at(*TYPE, moment)
    return None if found is None else (found.amount, found.fetched_at)


def filled(*seen: Price) -> PriceBook:
    book = PriceBook.open(":memory:")
    for one in seen:
        book.put([one], one.fetched_at)
    return book


def test_an_old_list_says_what_held_before_what_is_known() -> None:
    with filled(price(20, 200, 300)) as book:
        result = book.put([price(22, 50, 60)], NOW, dated=True)
        assert (result.changed, result.refused) == (1, ())
        assert [at(book, day(number))[0] for number in (50, 60, 199, 200, 300)] == [22, 22, 22, 20, 20]  # type: ignore[index]
        again = book.put([price(22, 50, 60)], NOW, dated=True)
        assert (again.unchanged, again.changed, again.new) == (1, 0, 0)


def test_a_beginning_that_was_told_wrong_later_does_not_hide_the_old_list() -> None:
    with filled(price(20, 10, 300)) as book:  # today's list claims that the price holds since day 10
        book.put([price(22, 50, 60)], NOW, dated=True)  # the list of day 60 knows another
        assert [at(book, day(number))[0] for number in (10, 50, 60, 299, 300)] == [20, 22, 22, 22, 20]  # type: ignore[index]
        assert at(book, NOW) == (20, day(300)), "the newer price is in force, as new as it was"


def test_what_was_seen_before_and_after_is_kept_and_told() -> None:
    with filled(price(20, 10, 40), price(20, 10, 300)) as book:
        result = book.put([price(22, 50, 60)], NOW, dated=True)
        ((_, sentence),) = result.refused
        assert "seen with another price both before and after this list; that is kept" in sentence
        assert at(book, day(60)) == (20, day(300))


@given(
    seen=st.lists(st.tuples(st.integers(15, 25), st.integers(0, 300), st.integers(0, 300)), min_size=1, max_size=6),
    dated=st.lists(st.tuples(st.integers(15, 25), st.integers(0, 300), st.integers(0, 300)), max_size=6),
)
def test_whatever_old_lists_say_the_newest_price_stays_and_stays_as_new(seen: list[Any], dated: list[Any]) -> None:
    times = sorted({max(since, at_) for _, since, at_ in seen})
    begun = sorted(min(since, last) for (_, since, _), last in zip(seen, times, strict=False))
    newer = [price(amount, since, last) for (amount, _, _), since, last in zip(seen, begun, times, strict=False)]
    with filled(*newer) as book:
        known = at(book, day(400))
        for amount, since, last in dated:
            if last < times[-1] and last not in times:
                book.put([price(amount, min(since, last), last)], NOW, dated=True)
        assert at(book, day(400)) == known


def test_a_refresh_as_of_a_day_is_no_refresh_of_today(tmp_path: Any) -> None:
    wanted = Wanted(("us-east-1",), None, ("on_demand",))
    with PriceBook.open(tmp_path / "prices.db") as book:
        refresh(book, [(FakeSource([price(20, 200, 300)]), wanted)], day(300))
        (before,) = book.refreshed()
        summary = refresh(book, [(FakeSource([price(22, 50, 60)]), wanted._replace(as_of=day(60)))], NOW)
        assert summary.whole and summary.clouds[0].result.changed == 1
        assert book.refreshed() == [before]
        source = FakeSource([])
        refresh(book, [(source, wanted)], NOW)
        assert source.asked[0].since is not None and source.asked[0].since < day(300), "history is asked for from then on"


class Interrupted:
    """Stops after its first price."""

    name = cloud = "aws"

    def fetch(self, wanted: Wanted, on_progress: OnProgress) -> Iterator[Price]:
        yield price(22, 50, 60)
        raise KeyboardInterrupt


def test_an_interrupted_one_keeps_what_came(tmp_path: Any) -> None:
    with PriceBook.open(tmp_path / "prices.db") as book:
        summary = refresh(book, [(Interrupted(), Wanted(("us-east-1",), as_of=day(60)))], NOW)
        assert summary.interrupted and at(book, day(60)) == (22, day(60))


def test_a_catalog_shows_the_newer_of_what_ships_and_an_old_list(tmp_path: Any) -> None:
    shipped = Catalog.embedded()
    (offer,) = shipped.offers(*TYPE[:2], None, TYPE[3], purchase="on_demand")
    with PriceBook.open(tmp_path / "prices.db") as book:
        seen = datetime(2025, 3, 1, 12, tzinfo=UTC)
        old = price(32, 0, 0)._replace(valid_from=seen - timedelta(days=30), fetched_at=seen)
        book.put([old], NOW, accept=True, dated=True)
        (now,) = shipped.with_book(book, NOW).offers(*TYPE[:2], None, TYPE[3], purchase="on_demand")
        assert now == offer
        history = shipped.with_book(book, NOW).history
        assert history is not None
        steps = history.steps("aws", "us-east-1", None, "p4d.24xlarge", "on_demand", seen, NOW)
        assert steps[0][1] is not None and steps[0][1].amount == 32 and steps[-1][1] == offer.price
