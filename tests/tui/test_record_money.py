"""The ledger and the prices of a recording's moment are those of then."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest

from pricing.ledger import Ledger
from pricing.usage import Placed, Usage
from tests.support.recording import START_MS, Stage
from tests.support.usage import Record, content, random_record, take_all
from tui.catalogs import BOOK
from tui.record_file import RecordFile
from tui.record_money import (
    LEDGER,
    OWNED,
    TERMS,
    Page,
    PageKeeper,
    Prices,
    bring_forward,
    fold,
    keep_ledger,
    pack_page,
    put_files,
    put_ledger,
    unpack_page,
)
from tui.replay_money import MoneyThen

AT = datetime.fromtimestamp(START_MS / 1000, UTC)


def records(count: int = 3) -> list[Record]:
    """Made of random ones that follow each other: each has some hundred rows."""
    return [_long(Random(seed), f"n{seed}") for seed in range(count)]


def _long(rng: Random, node: str) -> Record:
    rows: list[Usage] = []
    placements: list[Placed] = []
    for part in range(25):
        one = random_record(rng, node, START_MS - 7_200_000 + part * 100_000)
        shift = len(placements)
        placements += [placed._replace(number=placed.number + shift) for placed in one.placements]
        rows += [row._replace(sequence=len(rows) + 1 + place, placement=row.placement + shift) for place, row in enumerate(one.rows)]
    return Record(node, f"m-{node}", rows, placements)


def keep(keeper: PageKeeper, record: Record, first: int, last: int, seconds: float) -> None:
    """The page (first, last] of a record, taken so long after AT."""
    keeper.take(
        record.node, record.meter, record.rows[first:last], record.placements, 1, last_sequence=len(record.rows),
        noticed_at=AT + timedelta(seconds=seconds),
    )  # fmt: skip


def test_a_page_comes_back_as_it_was() -> None:
    for record in records(8):
        page = Page(tuple(zip(*record.rows, strict=True)), tuple(record.placements), 1, 9, START_MS, ())
        assert unpack_page(pack_page(page)) == page
    assert unpack_page(pack_page(Page((), (), 7, None, None, ()))) == Page((), (), 7, None, None, ())


@pytest.mark.parametrize("with_base", [False, True])
def test_the_ledger_of_a_moment_is_the_one_that_the_same_pages_make(tmp_path: Path, with_base: bool) -> None:
    file, known = RecordFile.scratch(), records()
    cut = [len(record.rows) // 3 for record in known]
    base = tmp_path / "base.db"
    if with_base:
        with Ledger.open(base) as ledger:
            for record, end in zip(known, cut, strict=True):
                ledger.take(record.node, record.meter, record.rows[:end], record.placements, 1)
        assert keep_ledger(file, base, START_MS) and not keep_ledger(file, base, START_MS)
    keeper = PageKeeper(file)
    for record, end in zip(known, cut, strict=True):
        assert keeper.cursor(record.node, record.meter) == (end if with_base else 0)
        keep(keeper, record, 0, 2 * end, 10)
        keep(keeper, record, end, 2 * end, 12)  # nothing new: it is not kept
        keep(keeper, record, 2 * end, len(record.rows), 60)
    assert file.rows("SELECT COUNT(*) FROM pages") == [(6,)]
    assert PageKeeper(file).newest_meter("n1") == (known[1].meter, len(known[1].rows))
    for seconds, part in ((30, 2), (90, None)):
        with Ledger.open(tmp_path / f"expected-{seconds}.db") as expected, Ledger.open(":memory:") as empty:
            for record, end in zip(known, cut, strict=True):
                expected.take(record.node, record.meter, record.rows[: part and part * end], record.placements, 1)
            put_ledger(file, START_MS + seconds * 1000, tmp_path / f"then-{seconds}.db")
            with Ledger.open(tmp_path / f"then-{seconds}.db") as then:
                assert content(then) == content(expected) != content(empty)
    assert bring_forward(file, tmp_path / "then-30.db", START_MS + 30_000, START_MS + 90_000) == 3
    with Ledger.open(tmp_path / "then-30.db") as one, Ledger.open(tmp_path / "then-90.db") as other:
        assert content(one) == content(other)


def test_old_pages_become_part_of_the_ledger_that_it_begins_with(tmp_path: Path) -> None:
    file, record = RecordFile.scratch(), records(1)[0]
    keeper = PageKeeper(file)
    for place in range(0, len(record.rows), 50):
        keep(keeper, record, place, place + 50, place)
    middle = START_MS + len(record.rows) // 2 * 1000
    put_ledger(file, middle + 60_000, tmp_path / "before.db")
    assert not fold(file, middle) and fold(file, middle, least=1)
    assert file.rows("SELECT COUNT(*) FROM pages WHERE at_ms < ?", (middle,)) == [(0,)]
    put_ledger(file, middle + 60_000, tmp_path / "after.db")
    with Ledger.open(tmp_path / "before.db") as before, Ledger.open(tmp_path / "after.db") as after:
        assert content(before) == content(after)
    assert PageKeeper(file).cursor(record.node, record.meter) == len(record.rows)
    assert fold(file, middle + 10_000_000, least=1)
    put_ledger(file, middle + 20_000_000, tmp_path / "all.db")
    with Ledger.open(tmp_path / "all.db") as whole, Ledger.open(tmp_path / "whole.db") as expected:
        take_all(expected, record)
        assert content(whole) == content(expected)


def test_prices_and_terms_are_those_of_the_moment_and_unchanged_parts_are_kept_once(tmp_path: Path) -> None:
    home, out, file = tmp_path / "home", tmp_path / "out", RecordFile.scratch()
    home.mkdir()
    out.mkdir()
    prices = Prices(file, home / BOOK, home / TERMS)
    assert prices.look(START_MS) and not prices.look(START_MS + 1)
    (home / TERMS).write_text("first")
    assert prices.look(START_MS + 1000)
    (home / TERMS).write_text("second")
    (home / OWNED).write_text("owned")
    assert prices.look(START_MS + 2000)
    with Ledger.open(home / BOOK) as any_database:  # a book is a database like any other here
        take_all(any_database, records(1)[0])
        assert prices.look(START_MS + 3000)
        parts = file.rows("SELECT COUNT(*) FROM parts")[0][0]
        any_database.take("other", "m", [], [], 1)
        assert prices.look(START_MS + 4000)
        assert file.rows("SELECT COUNT(*) FROM parts")[0][0] <= parts + 2
    (home / TERMS).unlink()
    assert prices.look(START_MS + 5000)
    texts = []
    for seconds in (0, 1, 2, 3, 5):
        put_files(file, START_MS + seconds * 1000 + 500, out)
        texts.append([(out / name).read_text() if (out / name).is_file() else None for name in (TERMS, OWNED)])
        assert (out / BOOK).is_file() == (seconds >= 3)
    assert texts == [[None, None], ["first", None], ["second", "owned"], ["second", "owned"], [None, "owned"]]
    assert (out / LEDGER).exists() is False


def test_what_shipped_with_another_version_is_used_instead_of_what_ships_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pricing.catalog import Catalog
    from tui import record_money
    from tui.catalogs import overlaid

    file = RecordFile.scratch()
    Prices(file, None, None).keep_shipped(START_MS)
    put_files(file, START_MS, tmp_path)
    assert overlaid(tmp_path / BOOK) is Catalog.embedded()
    monkeypatch.setattr(record_money, "shipped_archive", lambda: b"other prices")
    put_files(file, START_MS, tmp_path)
    then = overlaid(tmp_path / BOOK)
    assert then is not Catalog.embedded()
    assert len(list(then.offers())) == len(list(Catalog.embedded().offers()))


def test_stepping_back_leaves_no_heap_of_ledgers() -> None:
    stage = Stage(None)
    stage.connect("gpu-01")
    stage.run(10)
    money = MoneyThen(stage.recording())
    newest = [money.go_to(START_MS + 9000 - step * 1000).ledger for step in range(8)]
    assert newest[-1].is_file() and newest[-2].is_file() and len(list(money.folder.rglob(LEDGER))) == 3
    money.close()
    assert not money.folder.exists()
