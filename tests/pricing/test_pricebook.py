"""The price book: each change once with its history, whole after any crash, for several programs at once."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pricing.errors import PriceBookDamaged, PriceBookFull, PriceBookLocked, PriceBookTooNew
from pricing.pricebook import Key, PriceBook, Refreshed, Shelf
from pricing.prices import Price
from tests.support.examples import examples

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
DAY = timedelta(days=1)
P4D = Key("aws", "us-east-1", None, "p4d.24xlarge", "on_demand")
SPOT = Key("aws", "us-east-1", "use1-az1", "p4d.24xlarge", "spot")


def price(amount: str | None, key: Key = P4D, *, since: datetime = NOW, seen: datetime = NOW, **more: object) -> Price:
    value = None if amount is None else Decimal(amount)
    told = Price(
        key.cloud, key.region, key.zone, key.instance_type, key.purchase, value, "USD", key.unit, since, seen, "a test",
        payment=key.payment, os=key.os, tenancy=key.tenancy,
    )  # fmt: skip
    return told._replace(**more)  # type: ignore[arg-type]


@pytest.fixture
def book(tmp_path: Path) -> Iterator[PriceBook]:
    with PriceBook.open(tmp_path / "prices.db") as book:
        yield book


def history(book: PriceBook, key: Key) -> list[tuple[int, str]]:
    return [((kept.price.valid_from - NOW) // DAY, str(kept.price.amount)) for kept in book.rows(key)]


def test_the_same_price_again_is_one_row_that_was_seen_again(book: PriceBook) -> None:
    assert book.put([price("21.95")], NOW).new == 1
    later = NOW + 3 * DAY
    again = book.put([price("21.950", since=later, seen=later)], later)
    assert (again.new, again.changed, again.unchanged) == (0, 0, 1)
    (kept,) = book.rows(P4D)
    assert (kept.price.valid_from, kept.first_seen, kept.last_seen) == (NOW, NOW, later)


def test_each_change_is_a_row_in_whatever_order_the_pages_come(book: PriceBook) -> None:
    steps = [(-30, "3.1"), (-20, "4.2"), (-10, "4.2"), (-5, "3.3")]
    for days, amount in reversed(steps):
        book.put([price(amount, SPOT, since=NOW + days * DAY)], NOW)
    assert history(book, SPOT) == [(-30, "3.1"), (-20, "4.2"), (-5, "3.3")]
    assert book.put([price(amount, SPOT, since=NOW + days * DAY) for days, amount in steps], NOW).unchanged == 4
    assert history(book, SPOT) == [(-30, "3.1"), (-20, "4.2"), (-5, "3.3")]


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(st.integers(-60, 0), st.sampled_from(["3.1", "4.2", "5.3"])), max_size=12, unique_by=lambda s: s[0]))
@example([(0, "3.1"), (-3, "3.1"), (-4, "3.1"), (-1, "4.2"), (-2, "3.1")])
def test_a_history_answers_for_every_moment_as_it_was_told(told: list[tuple[int, str]]) -> None:
    with PriceBook.open(":memory:") as book:
        for at in range(0, len(told), 3):
            book.put([price(amount, SPOT, since=NOW + days * DAY) for days, amount in told[at : at + 3]], NOW)
        for day in range(-61, 2):
            before = [amount for days, amount in sorted(told) if days <= day]
            found = book.at(*SPOT[:5], NOW + day * DAY)
            assert (found and str(found.amount)) == (before[-1] if before else None)


def test_a_price_that_was_seen_in_force_after_a_change_came_back(book: PriceBook) -> None:
    book.put([price("21")], NOW)
    book.put([price("21", since=NOW + 5 * DAY, seen=NOW + 5 * DAY)], NOW)
    book.put([price("25", since=NOW + 2 * DAY, seen=NOW + 6 * DAY)], NOW)  # learnt late
    assert history(book, P4D) == [(0, "21"), (2, "25"), (5, "21")]


def test_steps_carry_in_what_was_in_force_and_stop_before_the_end(book: PriceBook) -> None:
    for days, amount in ((-30, "3.1"), (-20, "4.2"), (-5, "3.3"), (0, "3.6")):
        book.put([price(amount, SPOT, since=NOW + days * DAY)], NOW)
    start = NOW - 21 * DAY
    assert book.steps(SPOT, start, NOW) == [
        (start, Decimal("3.1")), (NOW - 20 * DAY, Decimal("4.2")), (NOW - 5 * DAY, Decimal("3.3"))
    ]  # fmt: skip
    assert book.steps(SPOT, NOW - 40 * DAY, NOW - 25 * DAY) == [(NOW - 30 * DAY, Decimal("3.1"))]
    assert book.steps(SPOT._replace(zone="use1-az9"), start, NOW) == []


def test_a_correction_wins_and_what_it_corrected_is_kept(book: PriceBook) -> None:
    book.put([price("21.95")], NOW)
    later = NOW + DAY
    assert book.put([price("20.95", seen=later)], later).changed == 1
    found = book.at(*P4D[:5], NOW)
    assert found is not None and (found.amount, found.fetched_at) == (Decimal("20.95"), later)
    with book.reading() as connection:
        assert connection.execute("SELECT COUNT(*) FROM prices").fetchone() == (2,)
    older = book.put([price("21.95", seen=NOW)], later)
    assert "older than what is kept" in older.refused[0][1] and len(book.rows(P4D)) == 1


def test_keys_tell_everything_apart_that_has_a_price_of_its_own(book: PriceBook) -> None:
    reserved = P4D._replace(purchase="reserved_1y")
    book.put([
        price("21"), price("13", reserved._replace(payment="all_upfront"), upfront=Decimal(113880), term_hours=8760),
        price("14", reserved._replace(payment="no_upfront")), price("22", P4D._replace(os="windows")),
        price("23", P4D._replace(tenancy="dedicated")), price("2.7", P4D._replace(unit="gpu_hour")),
        price("24", P4D._replace(region="us-west-2")), price("3", SPOT), price("4", SPOT._replace(zone="use1-az2")),
    ], NOW)  # fmt: skip
    assert len(book.keys("aws", "P4D.24XLARGE")) == 9
    found = book.at(*reserved[:5], NOW)
    assert found is not None and (found.payment, found.amount) == ("no_upfront", 14)
    whole = book.at(*reserved[:5], NOW, payment="all_upfront")
    assert whole is not None and (whole.upfront, whole.term_hours) == (113880, 8760)
    assert sorted(str(offer.amount) for offer in book.offers_at(NOW, "aws")) == ["13", "14", "21", "24", "3", "4"]
    assert book.offers_at(NOW - DAY, "aws") == []


def test_a_price_that_was_not_told_is_kept_as_not_told_and_never_replaces_a_good_one(book: PriceBook) -> None:
    assert book.put([price(None)], NOW).new == 1
    found = book.at(*P4D[:5], NOW)
    assert found is not None and found.amount is None
    book.put([price("21", since=NOW + DAY, seen=NOW + DAY)], NOW)
    gone = book.put([price(None, since=NOW + 2 * DAY, seen=NOW + 2 * DAY)], NOW)
    assert "no longer told; the last good price, 21 seen 2026-11-30 12:00 UTC, stays" in gone.refused[0][1]
    found = book.at(*P4D[:5], NOW + 3 * DAY)
    assert found is not None and found.amount == 21


def test_a_jump_is_held_back_until_a_later_fetch_says_it_again(book: PriceBook) -> None:
    book.put([price("10")], NOW)
    jump = price("40", since=NOW + DAY, seen=NOW + DAY)
    for _ in range(2):  # the same answer again proves nothing
        held = book.put([jump], NOW)
        assert (held.held, held.changed) == (1, 0) and "held back until it is seen again" in held.refused[0][1]
    (waiting,) = book.held()
    assert (waiting.key, waiting.amount) == (P4D, 40)
    found = book.at(*P4D[:5], NOW + DAY)
    assert found is not None and found.amount == 10
    later = jump._replace(valid_from=NOW + 2 * DAY, fetched_at=NOW + 2 * DAY)
    assert book.put([later], NOW).changed == 1
    assert history(book, P4D) == [(0, "10"), (1, "40")] and book.held() == []


def test_a_jump_is_taken_when_accepted_and_forgotten_when_the_old_price_returns(book: PriceBook) -> None:
    book.put([price("10")], NOW)
    book.put([price("40", since=NOW + DAY, seen=NOW + DAY)], NOW)
    book.put([price("10", since=NOW + 2 * DAY, seen=NOW + 2 * DAY)], NOW)
    assert book.held() == []
    accepted = book.put([price("40", since=NOW + 3 * DAY, seen=NOW + 3 * DAY)], NOW, accept=True)
    assert (accepted.changed, accepted.held) == (1, 0)
    assert history(book, P4D) == [(0, "10"), (3, "40")]


def test_one_offer_with_two_prices_in_one_answer_keeps_the_first_and_says_so(book: PriceBook) -> None:
    done = book.put([price("21"), price("22"), price("21")], NOW)
    assert (done.new, done.unchanged) == (1, 1) and "was given twice" in done.refused[0][1]


def test_ages_tell_how_old_each_kind_is_and_refreshes_how_the_last_one_ended(book: PriceBook) -> None:
    book.put([price("21"), price("3", SPOT, seen=NOW - DAY, since=NOW - DAY)], NOW)
    ages = {(age.cloud, age.purchase): (age.offers, age.age) for age in book.ages(NOW + DAY)}
    assert ages == {("aws", "on_demand"): (1, DAY), ("aws", "spot"): (1, 2 * DAY)}
    for outcome in ("failed", "done"):
        book.note_refresh(Refreshed("aws", NOW, 1, 2, 3, 4, outcome, None))
    assert [(done.outcome, done.changed) for done in book.refreshed()] == [("done", 2)]


def test_a_resume_token_is_kept_until_it_is_too_old_or_done(book: PriceBook) -> None:
    book.keep_resume("aws", "all", "page 7", NOW)
    assert book.resume_token("aws", "all", NOW - DAY) == "page 7"
    assert book.resume_token("aws", "all", NOW + DAY) is None and book.resume_token("aws", "other", NOW - DAY) is None
    book.keep_resume("aws", "all", None, NOW)
    assert book.resume_token("aws", "all", NOW - DAY) is None


def test_an_error_in_the_midst_of_a_put_leaves_nothing_of_it(book: PriceBook) -> None:
    def cut() -> Iterator[Price]:
        yield price("21")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        book.put(cut(), NOW)
    assert book.keys() == [] and book.check() == []


WRITER = """
import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pricing.pricebook import PriceBook
from pricing.prices import Price
path, who, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
now = datetime(2026, 11, 29, 12, tzinfo=UTC)
print("ready", flush=True)
for turn in range(rounds):
    seen = now + timedelta(minutes=turn)
    with PriceBook.open(path) as book:
        book.put([Price("aws", "us-east-1", f"use1-az{zone}", "p4d.24xlarge", "spot", Decimal(3 + turn % 7), "USD",
                        "instance_hour", seen, seen, f"writer {who}") for zone in range(1, 7)], seen)
"""


def test_several_programs_put_at_once_and_every_price_is_there_once(tmp_path: Path) -> None:
    path = tmp_path / "prices.db"
    run = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(who), "6"]) for who in range(3)]
    assert [child.wait(120) for child in run] == [0, 0, 0]
    with PriceBook.open(path) as book:
        assert book.check() == []
        for zone in range(1, 7):
            amounts = [int(kept.price.amount or 0) for kept in book.rows(SPOT._replace(zone=f"use1-az{zone}"))]
            assert amounts == [3, 4, 5, 6, 7, 8]


def test_a_writer_that_is_killed_leaves_a_whole_book_with_whole_puts(tmp_path: Path) -> None:
    path = tmp_path / "prices.db"
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path), "0", "100000"], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stdout.readline()
        time.sleep(0.3)
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    with PriceBook.open(path) as book:
        assert book.check() == []
        assert len({len(book.rows(SPOT._replace(zone=f"use1-az{zone}"))) for zone in range(1, 7)}) == 1


def test_a_book_that_is_locked_damaged_foreign_too_new_or_full_says_so_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "prices.db"
    with PriceBook.open(path) as book, PriceBook.open(path, timeout_seconds=0.05) as other:
        with book.writing(), pytest.raises(PriceBookLocked, match="another program kept"):
            other.put([price("21")], NOW)
        with book.writing() as connection:
            connection.execute(f"PRAGMA max_page_count = {connection.execute('PRAGMA page_count').fetchone()[0]}")
        with pytest.raises(PriceBookFull, match="no space is left"):
            book.put([price("21", P4D._replace(region=f"region-{n}")) for n in range(3000)], NOW)
        with book.writing() as connection:
            connection.execute("PRAGMA user_version = 99")
    with pytest.raises(PriceBookTooNew, match="format 99"):
        Shelf(path)
    for name, content in (
        ("text.db", b"not a database at all, but longer than a header" * 40),
        ("cut.db", path.read_bytes()[:5000]),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(PriceBookDamaged, match=name), PriceBook.open(tmp_path / name) as broken:
            broken.put([price("21")], NOW)
        assert (tmp_path / name).read_bytes() == content or name == "cut.db"
    with sqlite3.connect(tmp_path / "other.db") as foreign:
        foreign.execute("CREATE TABLE t (x)")
    foreign.close()
    with pytest.raises(PriceBookDamaged, match="another program's database"):
        PriceBook.open(tmp_path / "other.db")


def test_a_shelf_answers_like_the_book_and_holds_nothing_open(tmp_path: Path) -> None:
    path = tmp_path / "prices.db"
    with PriceBook.open(path) as book:
        book.put([price("21"), price("3", SPOT)], NOW)
        expected = book.offers_at(NOW, "aws")
    shelf = Shelf(path)
    assert shelf.offers_at(NOW, "aws") == expected and shelf.newest() == NOW and shelf.clouds() == ["aws"]
    assert {key: [kept.price.amount for kept in rows] for key, rows in shelf.lines("aws", "p4d.24xlarge").items()} == {
        P4D: [21], SPOT: [3]
    }  # fmt: skip
