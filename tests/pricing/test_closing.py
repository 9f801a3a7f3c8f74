"""A closed month stays as it was closed; what becomes known later is a dated correction."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing as closed_at_end
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pricing import ledger_schema
from pricing.attribution import attribute
from pricing.calendar import milliseconds, parse_range
from pricing.closed import months
from pricing.closing import close, month_span, notice
from pricing.contracts import Discount
from pricing.currency import Exchange
from pricing.errors import BadRange, ClosingError
from pricing.grouping import KEYS
from pricing.items import Item
from pricing.ledger import Ledger
from pricing.money import PerHour
from pricing.owned import Commitment
from pricing.price_steps import constant
from pricing.rates import Pricing
from pricing.report import COST_PARTS, Report, Row
from pricing.sqlite_file import apply_steps
from pricing.terms import Terms
from pricing.usage import WHOLE_SHARE, Placed, Usage
from tests.support.usage import HOUR_MS, PriceList, plain_costs, random_record, take_all

FIRST, LAST = datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 4, 1, tzinfo=UTC)
NOW = datetime(2026, 4, 3, 12, tzinfo=UTC)
NEXT = datetime(2026, 5, 1, tzinfo=UTC)
START_MS = milliseconds(datetime(2026, 3, 28, 21, 17, tzinfo=UTC))
NODE = Placed(1, "node", "aws", "here", None, "gpu_box", "on_demand", "8", None, 1, "A100", {"team": "red"})
TERMS = Terms(
    (Discount("aws", Fraction(10), starts_ms=START_MS + 7 * HOUR_MS + 1),),
    (Commitment("ri", "reservation", "aws", START_MS, START_MS + 90 * HOUR_MS, Fraction(3), region="here", instance_type="gpu_box"),),
    items=(Item("storage", "data", Fraction(93), project="vision", starts_ms=milliseconds(FIRST)),),
)  # fmt: skip


def usage(sequence: int, kind: str, day: int, **changes: object) -> Usage:
    """A whole hour at noon of a day of March."""
    begin = milliseconds(FIRST) + (24 * (day - 1) + 12) * HOUR_MS
    whole = Usage(sequence, begin, begin + HOUR_MS, "GPU-0", kind, None, WHOLE_SHARE, None, None, None, None, None, None, 1)
    return whole._replace(**changes)


def take(ledger: Ledger, rows: Sequence[Usage], placed: Placed = NODE) -> None:
    for number, row in enumerate(rows):
        ledger.take(placed.node, f"{placed.node}-{row.starts_ms}-{number}", [row._replace(sequence=1)], [placed], 1)


def report(
    ledger: Ledger, by: Sequence[str] | str = "", start: datetime = FIRST, end: datetime = LAST, **options: object
) -> Report:
    options = {"catalog": PriceList(), "now": NOW} | options
    return attribute(ledger, options.pop("catalog"), start, end, by, **options)  # type: ignore[arg-type]


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2**32),
    st.lists(st.sampled_from((*KEYS, "tag:team")), unique=True),
    st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kolkata"]),
)
def test_a_closed_month_is_told_as_before_by_any_grouping_and_late_rows_are_corrections_that_close_the_gap(
    seed: int, by: list[str], tz: str
) -> None:
    start, end = month_span("2026-03", tz)
    with Ledger.open(":memory:") as ledger:
        for node in ("a", "b"):
            record = random_record(Random(f"{seed}{node}"), node, START_MS, priced=False)
            take_all(
                ledger, record._replace(placements=[one._replace(cloud="aws", region="here") for one in record.placements])
            )
        pricing = Pricing(PriceList(), terms=TERMS)
        before = report(ledger, by, start, end, tz=tz, terms=TERMS)
        made = close(ledger, pricing, "2026-03", NOW, tz=tz)
        assert made.cost == (before.totals.total_cost or 0)
        after = report(ledger, by, start, end, tz=tz, catalog=PriceList(currency="CNY"))  # neither prices nor terms count now
        assert [without(row) for row in after.rows] == [without(row) for row in before.rows]
        assert without(after.totals) == without(before.totals)
        assert notice(ledger, pricing, NOW) == []
        late = random_record(Random(f"{seed}late"), "late", START_MS)
        take_all(ledger, late)
        live = attribute_live(ledger, start, end)
        noticed = notice(ledger, pricing, NOW)
        assert notice(ledger, pricing, NOW) == []
        assert [without(row) for row in report(ledger, by, start, end, tz=tz).rows] == [without(row) for row in before.rows]
        adjusted = sum((one.cost for one in noticed), Fraction(0))
        known = live.total_cost or Fraction(0)
        if live.complete:
            assert made.cost + adjusted == known
        else:  # a late node may take a commitment from one that has no other price: what is not known any more corrects nothing
            assert made.cost + adjusted >= known
        following = report(ledger, "node", end, NEXT, tz=tz).totals
        assert following.adjustment_cost == adjusted
        assert sum(getattr(following, part) for part in COST_PARTS) == following.total_cost


def without(row: object) -> tuple[object, ...]:
    """All that adds up of a row, and by whom it is paid in whatever order."""
    names = ("keys", "held_share_ms", "idle_share_ms", "busy", "measured_share_ms", "energy_mj", "complete", *COST_PARTS)
    paid = [sorted(getattr(row, name), key=str) for name in ("committed", "unused")]
    return *(getattr(row, name) for name in (*names, "allocated_unused_cost", "list_cost", "contracted_cost")), *paid


def attribute_live(ledger: Ledger, start: datetime, end: datetime) -> Row:
    """The totals of the month if it were open: the same rows in a ledger of their own."""
    copy = sqlite3.connect(":memory:", isolation_level=None)
    with ledger.reading() as connection:
        copy.executescript("\n".join(connection.iterdump()))
    for table in ("closed_days", "closed_usage", "closed_charges", "closed_months"):
        copy.execute(f"DELETE FROM {table}")
    with Ledger(copy, "copy") as opened:
        return report(opened, (), start, end, terms=TERMS).totals


def test_late_rows_and_changed_prices_by_hand() -> None:
    with Ledger.open(":memory:") as ledger:
        take(ledger, [usage(1, "held", 5, user="ann"), usage(2, "idle", 6)])
        close(ledger, Pricing(PriceList()), "2026-03", NOW)
        take(ledger, [usage(3, "held", 7, user="bob")])
        (late,) = notice(ledger, Pricing(PriceList()), NOW)
        assert (late.corrections, late.cost) == (1, 8)
        dearer = Pricing(PriceList(), prices={"node": PerHour(Decimal(10))})
        (price,) = notice(ledger, dearer, NOW + timedelta(days=1))
        assert (price.corrections, price.cost) == (3, 6)
        assert notice(ledger, dearer, NOW + timedelta(days=2)) == []
        closed = report(ledger, "user,day")
        assert [(row.keys, row.total_cost) for row in closed.rows] == [
            (("ann", "2026-03-05"), 8),
            (("(idle)", "2026-03-06"), 8),
        ]
        assert closed.notes == ("2026-03 (UTC) was closed on 2026-04-03 and is told as it was then.",)
        april = report(ledger, "day,user,node,tag:team", LAST, NEXT)
        assert [(row.keys, row.adjustment_cost, row.total_cost) for row in april.rows] == [
            (("2026-04-03", "(adjustment)", "node", "red"), 8, 8), (("2026-04-04", "(adjustment)", "node", "red"), 6, 6),
        ]  # fmt: skip
        assert (april.totals.gpu_hours, april.totals.list_cost) == (0, 0)
        both = report(ledger, "", FIRST, NEXT)
        assert both.totals.total_cost == 30  # three hours at 10
        reasons = [text for (text,) in all_rows(ledger, "SELECT reason FROM closed_adjustments ORDER BY id")]
        assert sorted(reasons) == ["changed price", "changed price", "changed price", "late usage"]


def all_rows(ledger: Ledger, query: str) -> list[tuple[object, ...]]:
    with ledger.reading() as connection:
        return connection.execute(query).fetchall()


def test_a_price_that_is_no_longer_known_takes_nothing_back_and_one_that_became_known_is_added() -> None:
    with Ledger.open(":memory:") as ledger:
        take(ledger, [usage(1, "held", 5, user="ann")])
        take(ledger, [usage(1, "held", 5, user="bob")], NODE._replace(node="other", usd_per_hour=None))
        made = close(ledger, Pricing(PriceList()), "2026-03", NOW)
        assert (made.cost, made.unpriced_share_ms) == (8, HOUR_MS * WHOLE_SHARE)
        closed = report(ledger, "user")
        assert (closed.rows[1].total_cost, closed.totals.complete) == (None, False)
        assert "It had no price when 2026-03 was closed" in closed.unpriced[0]
        assert notice(ledger, Pricing(PriceList(currency="CNY")), NOW) == []
        (known,) = notice(ledger, Pricing(PriceList(), prices={"other": PerHour(Decimal(3))}), NOW)
        assert known.cost == 3
        assert report(ledger, "user").rows == closed.rows


def test_a_correction_never_lands_in_a_closed_month() -> None:
    with Ledger.open(":memory:") as ledger:
        take(ledger, [usage(1, "held", 5, user="ann")])
        pricing = Pricing(PriceList())
        close(ledger, pricing, "2026-02", NOW)
        close(ledger, pricing, "2026-03", NOW)
        take(ledger, [usage(2, "held", 6)])
        notice(ledger, pricing, FIRST)  # a clock that went wrong
        assert report(ledger).totals.adjustment_cost == 0
        assert report(ledger, "day", LAST, NEXT).rows[0].keys == ("2026-04-01",)


def test_a_report_that_cuts_closed_days_computes_them_anew_and_says_so() -> None:
    with Ledger.open(":memory:") as ledger:
        take(ledger, [usage(1, "held", 5, user="ann"), usage(2, "held", 6, user="ann")])
        close(ledger, Pricing(PriceList()), "2026-03", NOW)
        start, end = parse_range("2026-03-05T12:30", "2026-03-07", now=NOW)
        cut = report(ledger, "", start, end, prices={"node": PerHour(Decimal(80))})
        assert cut.totals.total_cost == 40 + 8
        assert cut.notes[1].startswith("The report cuts days of 2026-03, which was closed by days of UTC")


def test_a_closed_month_is_told_in_another_currency_only_with_a_rate() -> None:
    with Ledger.open(":memory:") as ledger:
        take(ledger, [usage(1, "held", 5, user="ann")])
        close(ledger, Pricing(PriceList(), terms=TERMS), "2026-03", NOW)
        take(ledger, [usage(2, "held", 6, user="ann")])
        notice(ledger, Pricing(PriceList(), terms=TERMS), NOW)
        plain = report(ledger, "", FIRST, NEXT, currency="EUR")
        assert (plain.totals.total_cost, plain.totals.complete) == (None, False)
        assert "no exchange rate from USD to EUR is given" in plain.unpriced[0]
        exchange = Terms(exchange=Exchange({"EUR": constant(Fraction(5, 4))}))
        in_usd = report(ledger, "", FIRST, NEXT).totals
        told = report(ledger, "", FIRST, NEXT, currency="EUR", terms=exchange).totals
        assert in_usd.adjustment_cost == 8 * Fraction(9, 10) or in_usd.adjustment_cost == 8
        assert told.total_cost == (in_usd.total_cost or 0) * Fraction(4, 5)


@pytest.mark.parametrize(("month", "sentence"), [
    ("2026-04", "2026-04 ends on 2026-05-01 00:00.00:00: a month is closed when it is over"),
    ("2026-13", "'2026-13' is no month: write one like 2026-03"), ("March", "is no month"), ("2026-3", "is no month"),
    ("9999-12", "is no month"), ("0001-01", "is no month"), ("٢٠٢٦-٠٣", "is no month"),
])  # fmt: skip
def test_a_month_that_cannot_be_closed_is_a_sentence(month: str, sentence: str) -> None:
    with Ledger.open(":memory:") as ledger:
        with pytest.raises(ClosingError, match=sentence):
            close(ledger, Pricing(PriceList()), month, NOW)
        assert all_rows(ledger, "SELECT * FROM closed_months") == []


def test_a_month_is_closed_once_and_months_of_two_zones_do_not_overlap() -> None:
    with Ledger.open(":memory:") as ledger:
        close(ledger, Pricing(PriceList()), "2026-03", NOW)
        with pytest.raises(ClosingError, match="2026-03 was closed on 2026-04-03"):
            close(ledger, Pricing(PriceList()), "2026-03", NOW)
        with pytest.raises(ClosingError, match="2026-02 overlaps 2026-03, which was closed by days of UTC"):
            close(ledger, Pricing(PriceList()), "2026-02", NOW, tz="America/New_York")
        with pytest.raises(BadRange, match="no IANA time zone"):
            close(ledger, Pricing(PriceList()), "2026-02", NOW, tz="Nowhere")
        with ledger.reading() as connection:
            assert [month.month for month in months(connection)] == ["2026-03"]


def test_a_closing_that_fails_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing(PriceList):
        def quote(self, *facts: object, **more: object):  # type: ignore[no-untyped-def, override]  # noqa: ANN201
            raise RuntimeError("the disk is gone")

    with Ledger.open(":memory:") as ledger:
        take(ledger, [usage(1, "held", 5)])
        with pytest.raises(RuntimeError):
            close(ledger, Pricing(Failing()), "2026-03", NOW)
        assert all_rows(ledger, "SELECT * FROM closed_months") == all_rows(ledger, "SELECT * FROM closed_days") == []


def test_others_may_write_while_a_month_is_added_up_and_what_they_bring_is_a_correction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger.db"
    with Ledger.open(path) as ledger, Ledger.open(path, timeout_seconds=0.1) as other:
        take(ledger, [usage(1, "held", 5, user="ann")])

        class Meanwhile(PriceList):
            def quote(self, *facts: object, **more: object):  # type: ignore[no-untyped-def, override]  # noqa: ANN202
                if not self.asked:
                    take(other, [usage(2, "held", 6, user="bob")])
                return super().quote(*facts, **more)  # type: ignore[arg-type]

        assert close(ledger, Pricing(Meanwhile()), "2026-03", NOW).cost == 8
        (late,) = notice(ledger, Pricing(PriceList()), NOW)
        assert late.cost == 8


def test_two_programs_that_look_at_once_write_a_correction_once(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with Ledger.open(path) as ledger, Ledger.open(path) as other:
        take(ledger, [usage(1, "held", 5, user="ann")])
        close(ledger, Pricing(PriceList()), "2026-03", NOW)
        take(ledger, [usage(2, "held", 6, user="bob")])

        class Meanwhile(PriceList):
            def quote(self, *facts: object, **more: object):  # type: ignore[no-untyped-def, override]  # noqa: ANN202
                if not self.asked:
                    assert len(notice(other, Pricing(PriceList()), NOW)) == 1
                return super().quote(*facts, **more)  # type: ignore[arg-type]

        assert notice(ledger, Pricing(Meanwhile()), NOW) == []
        assert notice(ledger, Pricing(PriceList()), NOW) == []
        assert report(ledger, "", LAST, NEXT).totals.adjustment_cost == 8


def test_a_ledger_of_the_first_version_gains_the_tables_and_keeps_what_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with closed_at_end(sqlite3.connect(path, isolation_level=None)) as connection:
        apply_steps(connection, "rackrate-ledger", {"0001_first": ledger_schema._first})
        connection.execute("INSERT INTO nodes (name) VALUES ('kept')")
        connection.execute(f"PRAGMA application_id = {ledger_schema.APPLICATION_ID}")
        connection.execute("PRAGMA user_version = 1")
    with Ledger.open(path) as ledger:
        assert all_rows(ledger, "PRAGMA user_version") == [(ledger_schema.SCHEMA_VERSION,)]
        assert all_rows(ledger, "SELECT name FROM nodes") == [("kept",)]
        record = random_record(Random(3), "a", START_MS)
        take_all(ledger, record)
        assert close(ledger, Pricing(PriceList()), "2026-03", NOW).cost == sum(
            plain_costs([record], milliseconds(FIRST), milliseconds(LAST)).values(), Fraction(0)
        )
