"""A refresh brings every good row into the book, whatever a source, a row or the person does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from pricing.pricebook import PriceBook
from pricing.prices import Price
from pricing.refresh import OVERLAP, RESUME_HOURS, refresh
from pricing.sources import OnProgress, Progress, Skipped, Throttled, Wanted

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
WANTED = Wanted(("us-east-1",), None, ("on_demand",))


def price(number: int, amount: object = None, *, cloud: str = "aws", seen: datetime = NOW) -> Price:
    value = Decimal(20) + number if amount is None else amount
    return Price(
        cloud, f"region-{number}", None, "p4d.24xlarge", "on_demand", value, "USD", "instance_hour", seen, seen, "fake"
    )  # type: ignore[arg-type]


class FakeSource:
    """Pages of prices; `before_page` may raise, as a network or a person does."""

    name = "fake"

    def __init__(self, *pages: list[Price], cloud: str = "aws", before_page: Callable[[int], None] = lambda page: None) -> None:
        self.cloud = cloud
        self._pages = pages
        self._before_page = before_page
        self.asked: list[Wanted] = []
        self.closed = 0

    def fetch(self, wanted: Wanted, on_progress: OnProgress) -> Iterator[Price]:
        self.asked.append(wanted)
        start = int(wanted.resume or 0)
        try:
            for at, page in enumerate(self._pages[start:], start):
                self._before_page(at)
                yield from page
                resume = str(at + 1) if at + 1 < len(self._pages) else None
                on_progress(Progress("pages", at + 1, len(self._pages), at + 1, 0, resume, (Skipped(f"page {at}", "a test."),)))
        finally:
            self.closed += 1


def failing(at: int, fault: BaseException) -> Callable[[int], None]:
    def before_page(page: int) -> None:
        if page == at:
            raise fault

    return before_page


@pytest.fixture
def book(tmp_path: Path) -> Iterator[PriceBook]:
    with PriceBook.open(tmp_path / "prices.db") as book:
        yield book


def regions(book: PriceBook) -> list[str]:
    return [key.region for key in book.keys()]


def test_a_refresh_takes_all_pages_tells_how_far_it_is_and_counts(book: PriceBook) -> None:
    told: list[tuple[str, int, int]] = []
    source = FakeSource([price(1), price(2)], [price(3)])
    tell: Any = lambda cloud, progress, result: told.append((cloud, progress.done, result.new))
    summary = refresh(book, [(source, WANTED)], NOW, tell)
    (aws,) = summary.clouds
    assert (aws.outcome, aws.result.new, len(aws.skipped)) == ("done", 3, 2) and summary.whole
    assert told == [("aws", 1, 2), ("aws", 2, 3)]
    later = NOW + timedelta(days=1)
    again = refresh(book, [(FakeSource([price(1, seen=later), price(2, Decimal(30), seen=later)]), WANTED)], later)
    assert (again.clouds[0].result.unchanged, again.clouds[0].result.changed) == (1, 1)
    assert [(done.outcome, done.changed) for done in book.refreshed()] == [("done", 1)]


@pytest.mark.parametrize("fault", [KeyboardInterrupt(), Throttled("Too many requests."), ZeroDivisionError("oh")])
def test_what_came_before_a_fault_is_kept_and_the_next_refresh_goes_on_from_there(
    book: PriceBook, fault: BaseException
) -> None:
    pages = ([price(1)], [price(2)], [price(3)])
    broken = FakeSource(*pages, before_page=failing(2, fault))
    summary = refresh(book, [(broken, WANTED), (FakeSource([price(9, cloud="gcp")], cloud="gcp"), WANTED)], NOW)
    first = summary.clouds[0]
    assert first.outcome == ("interrupted" if isinstance(fault, KeyboardInterrupt) else "failed") and first.fault
    assert len(summary.clouds) == (1 if summary.interrupted else 2) and not summary.failed and not summary.whole
    assert regions(book)[:2] == ["region-1", "region-2"] and broken.closed == 1
    whole = FakeSource(*pages)
    resumed = refresh(book, [(whole, WANTED)], NOW + timedelta(hours=1))
    assert whole.asked[0].resume == "2" and resumed.clouds[0].resumed and resumed.clouds[0].result.new == 1
    fresh = FakeSource(*pages)
    assert not refresh(book, [(fresh, WANTED)], NOW).clouds[0].resumed and fresh.asked[0].resume is None
    assert whole.asked[0].since is None and fresh.asked[0].since == NOW + timedelta(hours=1) - OVERLAP


def test_an_old_place_or_one_of_another_question_is_not_resumed_from(book: PriceBook) -> None:
    refresh(book, [(FakeSource([price(1)], [price(2)], before_page=failing(1, KeyboardInterrupt())), WANTED)], NOW)
    for wanted, now in (
        (WANTED, NOW + timedelta(hours=RESUME_HOURS + 1)),
        (WANTED._replace(regions=("us-west-2",)), NOW),
        (WANTED._replace(instance_types=frozenset({"p4d.24xlarge"})), NOW),
    ):
        source = FakeSource([price(1)], before_page=failing(0, Throttled("x")))
        refresh(book, [(source, wanted)], now)
        assert source.asked[0].resume is None


def test_one_bad_row_costs_itself_alone_and_is_said(book: PriceBook) -> None:
    bad = [price(3, Decimal(0)), price(4, "21.95"), price(5)._replace(valid_from=None), price(6, Decimal("NaN"))]  # type: ignore[list-item]
    summary = refresh(book, [(FakeSource([price(1), *bad, price(2)]), WANTED)], NOW)
    (aws,) = summary.clouds
    assert aws.outcome == "done" and aws.result.new == 2 and len(aws.result.refused) == 4 and not summary.whole
    assert all(sentence.endswith(".") for _, sentence in aws.result.refused)
    assert regions(book) == ["region-1", "region-2"]


def test_a_held_back_price_is_taken_when_accepted(book: PriceBook) -> None:
    refresh(book, [(FakeSource([price(1, Decimal(10))]), WANTED)], NOW)
    later = NOW + timedelta(days=1)
    jump = FakeSource([price(1, Decimal(90), seen=later)])
    assert refresh(book, [(jump, WANTED)], later).clouds[0].result.held == 1
    assert refresh(book, [(jump, WANTED)], later, accept=True).clouds[0].result.changed == 1


def test_a_source_that_gives_nothing_at_all_failed(book: PriceBook) -> None:
    summary = refresh(book, [(FakeSource([price(1)], before_page=failing(0, Throttled("Too many."))), WANTED)], NOW)
    assert summary.failed and summary.clouds[0].fault == "Too many."
    assert [(done.outcome, done.fault) for done in book.refreshed()] == [("failed", "Too many.")]
