"""Retention: what a report says of hours that were rolled up is what it said before, to the last digit."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pricing import closing as months
from pricing.attribution import attribute
from pricing.billing import Rule
from pricing.calendar import instant, milliseconds
from pricing.errors import BadRange, LedgerDamaged
from pricing.grouping import KEYS
from pricing.ledger import Ledger, Taken
from pricing.ledger_retention import RolledUp, retain
from pricing.rates import Pricing
from pricing.report import Report
from pricing.terms import Terms
from pricing.usage import WHOLE_SHARE, Placed, Usage
from tests.support.examples import examples
from tests.support.usage import HOUR_MS, PriceList, Record, random_record, take_all

START = datetime(2026, 3, 28, 21, 0, tzinfo=UTC)
START_MS = milliseconds(START)
NOW = datetime(2027, 6, 1, tzinfo=UTC)
ALL_KEYS = (*KEYS, "tag:team")
FAR = datetime(2020, 1, 1, tzinfo=UTC), datetime(2030, 1, 1, tzinfo=UTC)
SEEDS = st.integers(0, 2**32)
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Tokyo"]
HALF_HOUR_ZONES = ["Asia/Kolkata", "Asia/Kathmandu", "Australia/Lord_Howe", "America/St_Johns"]


@contextmanager
def fleet(seed: int) -> Iterator[tuple[Ledger, list[Record]]]:
    rng = Random(seed)
    records = [random_record(rng, f"node-{n}", START_MS, priced=False) for n in range(rng.randrange(1, 4))]
    with Ledger.open(":memory:") as ledger:
        for record in records:
            take_all(ledger, record)
        yield ledger, records


def told(report: Report) -> tuple[object, ...]:
    """All that a report says."""
    return report.rows, report.totals, report.unpriced, report.missing, report.notes


def counts(ledger: Ledger, query: str) -> int:
    with ledger.reading() as connection:
        return connection.execute(query).fetchone()[0]


@settings(max_examples=examples(60), deadline=None)
@given(SEEDS, st.lists(st.sampled_from(ALL_KEYS), unique=True), st.sampled_from(ZONES + HALF_HOUR_ZONES), st.integers(0, 9))
def test_reports_by_anything_are_the_same_before_and_after(seed: int, by: list[str], tz: str, days: int) -> None:
    with fleet(seed) as (ledger, _):
        before = told(attribute(ledger, PriceList(), *FAR, by, tz=tz))
        assert ledger.check() == []
        done = retain(ledger, START + timedelta(days=days), NOW, zones=[tz])
        assert told(attribute(ledger, PriceList(), *FAR, by, tz=tz)) == before
        assert ledger.check() == []
        assert counts(ledger, "SELECT COUNT(*) FROM usage WHERE hour * 3600000 < " + str(milliseconds(done.until))) == 0 or (
            done.kept_hours
        )


def test_every_grouping_and_every_range_of_whole_hours_is_the_same() -> None:
    with fleet(6) as (ledger, records):
        last = max(row.ends_ms for record in records for row in record.rows)
        hours = [instant(START_MS + n * HOUR_MS) for n in range((last - START_MS) // HOUR_MS + 2)]
        rng = Random(1)
        ranges = [sorted(rng.sample(hours, 2)) for _ in range(12)]
        groupings = [by for count in (0, 1, 2, len(ALL_KEYS)) for by in combinations(ALL_KEYS, count)]

        def all_reports() -> list[tuple[object, ...]]:
            reports = [attribute(ledger, PriceList(), *FAR, by, tz="Europe/Berlin") for by in groupings]
            reports += [attribute(ledger, PriceList(), *pair, ("day", "user"), tz=tz) for pair in ranges for tz in ZONES]
            return [told(report) for report in reports]

        before = all_reports()
        assert retain(ledger, NOW, NOW).ledger_rows == counts(ledger, "SELECT SUM(ledger_rows) FROM rollups") > 10
        assert counts(ledger, "SELECT COUNT(*) FROM usage") == 0
        assert all_reports() == before


def test_a_half_hour_zone_keeps_the_one_hour_a_day_that_its_days_cut() -> None:
    with Ledger.open(":memory:") as ledger:
        ledger.take("node", "meter", [usage(1, 0, 72 * 3600)], PLACED, 1)
        done = retain(ledger, NOW, NOW, zones=["Asia/Kolkata"])
        assert (done.hours, done.kept_hours) == (69, 3)
        with ledger.reading() as connection:
            assert {hour % 24 for (hour,) in connection.execute("SELECT DISTINCT hour FROM usage")} == {18}
        assert ledger.check() == []


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.lists(st.floats(0, 1), min_size=1, max_size=5), st.sampled_from(HALF_HOUR_ZONES))
def test_ranges_that_cut_hours_that_were_rolled_up_still_add_up_and_say_so(seed: int, cuts: list[float], tz: str) -> None:
    with fleet(seed) as (ledger, records):
        last = max(row.ends_ms for record in records for row in record.rows)
        whole = attribute(ledger, PriceList(), *FAR).totals
        retain(ledger, NOW, NOW)
        edges = sorted({*FAR, *(instant(START_MS + round((last - START_MS) * cut)) for cut in cuts)})
        parts = [attribute(ledger, PriceList(), one, two, "day", tz=tz) for one, two in zip(edges, edges[1:], strict=False)]
        for name in ("held_share_ms", "idle_share_ms", "busy", "measured_share_ms"):
            assert sum(getattr(part.totals, name) for part in parts) == getattr(whole, name)
        assert sum((part.totals.total_cost or Fraction(0) for part in parts), Fraction(0)) == (whole.total_cost or 0)
        for part in parts:
            starts = {row.keys for row in part.rows}
            assert not starts or all("spread evenly" in note for note in part.notes)


def test_a_range_that_cuts_a_rolled_up_hour_takes_its_part_of_the_time(tmp_path: Path) -> None:
    rows = [usage(1, 0, 900), usage(2, 900, 3600, user=None, kind="idle")]
    half = (START, START + timedelta(minutes=30))
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        ledger.take("node", "meter", rows, PLACED, 1)
        exact = attribute(ledger, PriceList(), *half).totals
        retain(ledger, NOW, NOW)
        report = attribute(ledger, PriceList(), *half)
    assert (exact.held_share_ms, exact.idle_share_ms) == (900_000 * WHOLE_SHARE, 900_000 * WHOLE_SHARE)
    assert (report.totals.held_share_ms, report.totals.idle_share_ms) == (450_000 * WHOLE_SHARE, 1_350_000 * WHOLE_SHARE)
    assert report.totals.total_cost == exact.total_cost == Fraction(4)
    assert report.notes == (
        "The report cuts one hour of which the ledger keeps only the sums (`rackrate ledger retain`): they are spread evenly.",
    )


PLACED = [Placed(1, "node", "aws", "here", None, "gpu_box", "on_demand", usd_per_hour="8", gpu_count=1)]


def usage(sequence: int, starts: int, ends: int, **changes: object) -> Usage:
    whole = Usage(
        sequence, START_MS + starts * 1000, START_MS + ends * 1000, "GPU-0", "held", None, WHOLE_SHARE, "ann", None, None,
        0.5, 1000, "counter", 1,
    )  # fmt: skip
    return whole._replace(**changes)


@settings(max_examples=examples(60), deadline=None)
@given(SEEDS, st.integers(1, 9), st.integers(0, 12), st.sampled_from(["UTC", "Asia/Kolkata"]))
def test_late_rows_of_rolled_up_hours_are_taken_once_and_counted_right(seed: int, page: int, days: int, tz: str) -> None:
    rng = Random(seed)
    record = random_record(rng, "node", START_MS)
    with Ledger.open(":memory:") as whole, Ledger.open(":memory:") as ledger:
        take_all(whole, record)
        taken = 0
        for begin in range(0, len(record.rows), page):
            rows = record.rows[max(0, begin - rng.randrange(3)) : begin + page]
            taken += ledger.take("node", record.meter, rows, record.placements, 1).new
            if rng.random() < 0.7:
                retain(ledger, START + timedelta(days=rng.randrange(days + 1)), NOW, zones=[tz])
            assert [fault for fault in ledger.check() if "has shares of" not in fault] == []  # half a moment may be here
        assert taken == len(record.rows)
        assert ledger.check() == []
        assert ledger.take("node", record.meter, record.rows, record.placements, 1) == Taken(0, taken, 0)
        for by in ("user,job,node", "day,project,tag:team"):
            assert told(attribute(ledger, PriceList(), *FAR, by)) == told(attribute(whole, PriceList(), *FAR, by))


def test_a_dry_run_tells_the_same_and_does_nothing() -> None:
    with fleet(6) as (ledger, _):
        rows = counts(ledger, "SELECT COUNT(*) FROM usage")
        planned = retain(ledger, NOW, NOW, dry_run=True)
        assert counts(ledger, "SELECT COUNT(*) FROM usage") == rows == planned.ledger_rows
        assert counts(ledger, "SELECT COUNT(*) FROM rollups") == 0
        done = []
        assert retain(ledger, NOW, NOW, on_progress=done.append) == planned
        assert done == sorted(set(done)) and all(day.hour == 0 for day in done)
        assert retain(ledger, NOW, NOW) == RolledUp(planned.until, 0, 0, 0, 0)


def test_only_whole_utc_days_before_the_moment_go() -> None:
    with Ledger.open(":memory:") as ledger:
        ledger.take("node", "meter", [usage(1, 0, 30 * 3600)], PLACED, 1)
        done = retain(ledger, datetime(2026, 3, 29, 23, 59, tzinfo=UTC), NOW)
        assert (done.until, done.hours) == (datetime(2026, 3, 29, tzinfo=UTC), 3)
        assert counts(ledger, "SELECT COUNT(*) FROM usage") == 27
        assert ledger.check() == []


def test_a_zone_that_is_none_rolls_up_nothing() -> None:
    with Ledger.open(":memory:") as ledger:
        ledger.take("node", "meter", [usage(1, 0, 3600)], PLACED, 1)
        with pytest.raises(BadRange):
            retain(ledger, NOW, NOW, zones=["Mars/Olympus"])
        assert counts(ledger, "SELECT COUNT(*) FROM usage") == 1


def test_a_day_whose_sums_are_wrong_keeps_its_rows() -> None:
    with Ledger.open(":memory:") as ledger:
        ledger.take("node", "meter", [usage(1, 0, 30 * 3600)], PLACED, 1)
        with ledger.writing() as connection:
            connection.execute("UPDATE hours SET busy = busy + 1 WHERE at = (SELECT MAX(at) FROM hours)")
        with pytest.raises(LedgerDamaged, match="1 sums of 2026-03-30 are not those of its rows, so these rows were kept"):
            retain(ledger, NOW, NOW)
        assert counts(ledger, "SELECT COUNT(*) FROM usage") == 3
        assert any("sums of hours" in fault for fault in ledger.check())


FAULTS = {
    "UPDATE rolled_hours SET rows = rows - 1 WHERE rows": "were taken, but",
    "UPDATE hours SET share_ms = share_ms + 1 WHERE at = (SELECT MIN(at) FROM hours)": "sums of hours",
    "UPDATE hours SET energy_mj = NULL": "sums of hours",
    "UPDATE hours SET kind = 1 WHERE at = (SELECT MIN(at) FROM hours)": "sums of days",
    "DELETE FROM hours WHERE at = (SELECT MIN(at) FROM hours)": "sums of hours",
    "DELETE FROM rolled_hours": "sums of hours",
    "UPDATE days SET busy = busy + 1": "sums of days",
    "DELETE FROM usage WHERE hour = (SELECT MIN(hour) FROM usage)": "has a hole",
    "UPDATE rolled_gpus SET ends_ms = ends_ms + 1": "overlaps itself",
    "UPDATE rolled_gpus SET ends_ms = ends_ms - 1": "has a hole",
}


@pytest.mark.parametrize(("statement", "sentence"), FAULTS.items())
def test_a_check_finds_what_does_not_add_up_in_rolled_up_hours(statement: str, sentence: str) -> None:
    with Ledger.open(":memory:") as ledger:
        ledger.take("node", "meter", [usage(n, n * 7200, n * 7200 + 7200) for n in range(1, 9)], PLACED, 1, last_sequence=8)
        retain(ledger, datetime(2026, 3, 29, tzinfo=UTC), NOW)
        assert ledger.check() == []
        with ledger.writing() as connection:
            connection.execute(statement)
        assert any(sentence in fault for fault in ledger.check())


def test_a_late_row_too_much_beside_rolled_up_ones_is_found_where_rows_tell() -> None:
    with Ledger.open(":memory:") as ledger:
        ledger.take("node", "meter", [usage(1, 0, 3600)], PLACED, 1)
        retain(ledger, NOW, NOW)
        ledger.take("node", "other", [usage(1, 0, 1800), usage(2, 900, 1800, user="bob")], PLACED, 1)
        assert any("has shares of 2000000 millionths" in fault for fault in ledger.check())


def test_billing_minimums_of_machines_that_ended_long_ago_stay() -> None:
    terms = Terms(count_minimum=True, rules=(Rule("aws", minimum_seconds=600),))
    with Ledger.open(":memory:") as ledger:
        ledger.take("node", "meter", [usage(1, 0, 60)], PLACED, 1)
        before = told(attribute(ledger, PriceList(), *FAR, "node", terms=terms))
        retain(ledger, NOW, NOW)
        assert told(attribute(ledger, PriceList(), *FAR, "node", terms=terms)) == before
        assert attribute(ledger, PriceList(), *FAR, terms=terms).totals.idle_billing_cost == Fraction(8 * 540, 3600)


def test_a_closed_month_is_not_corrected_by_retention() -> None:
    with fleet(6) as (ledger, _):
        pricing = Pricing(PriceList())
        months.close(ledger, pricing, "2026-03", NOW, tz="Asia/Kolkata")
        before = told(attribute(ledger, PriceList(), *FAR, "day,user", tz="Asia/Kolkata"))
        retain(ledger, NOW, NOW)
        assert months.notice(ledger, pricing, NOW) == []
        assert told(attribute(ledger, PriceList(), *FAR, "day,user", tz="Asia/Kolkata")) == before


def test_a_ledger_of_the_format_before_gets_the_tables_and_keeps_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with Ledger.open(path) as ledger:
        ledger.take("node", "meter", [usage(1, 0, 7200)], PLACED, 1)
    with closing(sqlite3.connect(path)) as connection, connection:
        for table in ("rolled_hours", "rolled_gpus", "rolled_placements", "rollups"):
            connection.execute(f"DROP TABLE {table}")
        connection.execute("DELETE FROM _sqlite_migrations WHERE name = '0003_roll_ups'")
        connection.execute("PRAGMA user_version = 2")
    with Ledger.open(path) as ledger:
        assert ledger.check() == []
        assert retain(ledger, NOW, NOW).hours == 2
        assert ledger.check() == []
