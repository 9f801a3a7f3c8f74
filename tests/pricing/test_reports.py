"""Reports as a person, a spreadsheet and a program get them: rounded once, adding up, whole or not at all."""

from __future__ import annotations

import csv
import io
import json
import os
import stat
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pricing.attribution import attribute
from pricing.errors import PricingError, ReportError
from pricing.grouping import KEYS
from pricing.ledger import Ledger
from pricing.report import COST_PARTS, Report, Row
from pricing.reports import FORMATS, write
from pricing.reports.table import COLUMNS, COSTS, IDLE_SPLIT, Table, table
from tests.support.examples import examples
from tests.support.report_files import write_file
from tests.support.usage import PriceList, random_record, take_all

START, END = datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 4, 1, tzinfo=UTC)
MONEY = (*COSTS, *IDLE_SPLIT, "adjustment_cost", "allocated_unused_cost")
THIRD = Fraction(1, 3)


def row(user: str = "ann", *costs: Fraction | int | None, **changes: object) -> Row:
    amounts = [*costs, *[Fraction(0)] * (4 - len(costs))]
    whole = Row((user,), 3_600_000 * 10**6, 0, 0, 0, None, *amounts, True)  # type: ignore[arg-type]
    if amounts[0] is None:
        whole = whole._replace(**dict.fromkeys((*COST_PARTS, "allocated_unused_cost")))
    return whole._replace(**changes)  # type: ignore[arg-type]


def report(*rows: Row, group_by: tuple[str, ...] = ("user",)) -> Report:
    known = [one for one in rows if one.allocated_cost is not None]
    parts = (*COST_PARTS, "allocated_unused_cost")
    sums = {part: sum((getattr(one, part) for one in known), Fraction(0)) if known else None for part in parts}
    hours = sum(one.held_share_ms for one in rows)
    totals = Row((), hours, 0, 0, 0, None, *[None] * 4, all(one.complete for one in rows))._replace(**sums)
    unpriced = () if totals.complete else ("node x: 1.00 h have no price and are in no cost.",)
    return Report(rows, totals, START, END, "UTC", "USD", group_by, unpriced, ())


def text_of(made: Report, format: str) -> str:
    stream = io.StringIO()
    write(made, stream, format)
    return stream.getvalue()


def assert_shown_adds_up(shown: Table, exact: Report) -> None:
    for line in (*shown.rows, shown.totals):
        if line["total_cost"] is not None:
            assert sum(line[part] for part in COST_PARTS) == line["total_cost"]  # type: ignore[misc]
            assert line["allocated_unused_cost"] <= line["allocated_cost"]  # type: ignore[operator]
            assert sum(line[part] for part in IDLE_SPLIT) == line["idle_cost"]  # type: ignore[misc]
    for column in MONEY:
        known = [line[column] for line in shown.rows if line[column] is not None]
        if known:
            assert sum(known) == shown.totals[column]  # type: ignore[arg-type]
    for line, behind in zip(shown.rows, exact.rows, strict=True):
        for part in COST_PARTS:
            if line[part] is not None:
                assert abs(Fraction(line[part]) - getattr(behind, part)) < Fraction(1, 100)  # type: ignore[arg-type]
    if exact.totals.total_cost is not None:
        assert shown.totals["total_cost"] == Decimal(round(exact.totals.total_cost * 100)).scaleb(-2)


def test_cents_that_rounding_leaves_over_go_to_the_largest_remainders() -> None:
    shown = table(report(*[row(user, 10 * THIRD) for user in ("ann", "bob", "cho")]))
    assert [line["allocated_cost"] for line in shown.rows] == [Decimal("3.34"), Decimal("3.33"), Decimal("3.33")]
    assert shown.totals["total_cost"] == Decimal("10.00")


AMOUNTS = st.fractions(0, 1000)
COST_ROWS = st.lists(
    st.tuples(st.lists(AMOUNTS, min_size=4, max_size=4), AMOUNTS, AMOUNTS, st.fractions(-50, 50), st.fractions(0, 1)), max_size=12
)


@settings(deadline=None)
@given(COST_ROWS)
def test_shown_rows_and_columns_add_up_to_the_exact_total_in_cents(
    costs: list[tuple[list[Fraction], Fraction, Fraction, Fraction, Fraction]],
) -> None:
    made = report(*[
        row(
            f"u{place}", *parts, idle_billing_cost=billing, unused_commitment_cost=unused, adjustment_cost=adjustment,
            allocated_unused_cost=parts[0] * part,
        )
        for place, (parts, billing, unused, adjustment, part) in enumerate(costs)
    ])  # fmt: skip
    assert_shown_adds_up(table(made), made)


def test_price_levels_are_the_shown_totals_where_only_the_catalog_counts_and_split_to_their_own_sum_elsewhere() -> None:
    same = [row(user, THIRD, THIRD, list_cost=2 * THIRD, contracted_cost=2 * THIRD) for user in ("ann", "bob")]
    made = report(*same)
    shown = table(replace(made, totals=made.totals._replace(list_cost=4 * THIRD, contracted_cost=4 * THIRD)))
    for line in (*shown.rows, shown.totals):
        assert line["list_cost"] == line["contracted_cost"] == line["total_cost"]
    cheap = report(*[row(user, THIRD, list_cost=2 * THIRD, contracted_cost=None) for user in ("ann", "bob")])
    shown = table(replace(cheap, totals=cheap.totals._replace(list_cost=4 * THIRD)))
    assert [line["list_cost"] for line in shown.rows] == [Decimal("0.67"), Decimal("0.66")]
    assert shown.totals["list_cost"] == Decimal("1.33") and shown.totals["contracted_cost"] is None


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 2**32), st.lists(st.sampled_from(KEYS), unique=True))
def test_any_report_of_random_usage_adds_up_as_shown_and_its_totals_do_not_depend_on_the_grouping(
    seed: int, by: list[str]
) -> None:
    with Ledger.open(":memory:") as ledger:
        for node in ("a", "b"):
            take_all(ledger, random_record(Random(f"{seed}{node}"), node, 1_774_000_000_000, priced=False))
        made = attribute(ledger, PriceList(), START, END, by)
        plain = attribute(ledger, PriceList(), START, END)
    assert_shown_adds_up(table(made), made)
    same = ("allocated_cost", *IDLE_SPLIT, "total_cost", "gpu_hours", "utilization_ratio", "complete")
    assert [table(made).totals[name] for name in same] == [table(plain).totals[name] for name in same]


def test_json_has_the_shape_that_others_rely_on() -> None:
    said = json.loads(text_of(report(row("ann", Fraction("1.005"), Fraction(2)), row("bob", None, None, None, None, complete=False)), "json"))
    assert list(said)[:7] == ["from", "to", "timezone", "currency", "group_by", "rows", "totals"]
    assert (said["from"], said["to"]) == ("2026-03-01T00:00:00Z", "2026-04-01T00:00:00Z")
    assert (said["currency"], said["group_by"], said["complete"]) == ("USD", ["user"], False)
    ann, bob = said["rows"]
    assert list(ann) == ["user", *COLUMNS]
    assert (ann["allocated_cost"], ann["idle_cost"], ann["unused_commitment_cost"], ann["total_cost"]) == ("1.00", "2.00", "0.00", "3.00")
    assert (ann["gpu_hours"], ann["utilization_ratio"], ann["energy_kwh"]) == (1.0, None, None)
    assert all(bob[name] is None for name in MONEY) and bob["complete"] is False
    assert list(said["totals"]) == list(COLUMNS) and said["totals"]["complete"] is False
    assert said["unpriced"] == ["node x: 1.00 h have no price and are in no cost."]


def test_csv_has_the_same_columns_and_empty_cells_for_what_is_unknown() -> None:
    made = report(row("Zoë, \"the\nboss\"", Fraction("1234.5")), row("bob", None, None, None, None, complete=False))
    header, *lines = csv.reader(io.StringIO(text_of(made, "csv")))
    assert header == ["user", *COLUMNS]
    assert lines[0][0] == "Zoë, \"the\nboss\"" and lines[0][header.index("allocated_cost")] == "1234.50"
    assert lines[1][header.index("total_cost")] == "" and lines[1][header.index("complete")] == "false"
    assert len(lines) == 2


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\rx"])
def test_a_csv_cell_never_starts_a_formula(name: str) -> None:
    said = text_of(report(row(name)), "csv")
    assert list(csv.reader(io.StringIO(said, newline="")))[1][0] == f"'{name}"
    assert json.loads(text_of(report(row(name)), "json"))["rows"][0]["user"] == name


def test_no_text_from_outside_steers_the_terminal_or_breaks_the_table() -> None:
    said = text_of(report(row("\x1b[2Jevil\u202e\nname", Fraction(5)), row("漢字", Fraction(7))), "text")
    assert "\x1b" not in said and "\u202e" not in said
    header, *lines = said.splitlines()
    assert len(lines) == 4
    assert header.split() == ["USER", "GPU-HOURS", "IDLE", "GPU-H", "UTIL", "KWH", "ALLOCATED", "IDLE", "TOTAL"]
    assert lines[-1].split() == ["total", "2.00", "0.00", "–", "–", "12.00", "0.00", "12.00"]


def test_the_text_marks_what_is_not_complete() -> None:
    said = text_of(report(row("ann", Fraction(5)), row("bob", None, None, None, None, complete=False)), "text")
    assert "5.00*" in said.splitlines()[-2] and said.splitlines()[-1].startswith("* not complete")
    assert "*" not in said.splitlines()[1] and "–*" in said.splitlines()[2]


@pytest.mark.parametrize("format", FORMATS)
def test_a_report_without_rows_is_written_in_every_format(format: str) -> None:
    empty = report(group_by=())
    assert text_of(replace(empty, totals=empty.totals._replace(**dict.fromkeys(COST_PARTS, Fraction(0)))), format)


def test_a_text_that_is_no_unicode_is_written_with_replacement() -> None:
    for format in ("csv", "json"):
        text_of(report(row("a\udcffb")), format).encode("utf-8")


@pytest.mark.parametrize("format", FORMATS)
def test_a_file_is_replaced_whole_with_ordinary_rights(tmp_path: Path, format: str) -> None:
    path = tmp_path / "out.txt"
    path.write_text("old")
    write_file(report(row("ann", 1)), path, format)
    assert path.read_bytes() == text_of(report(row("ann", 1)), format).encode()
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask
    assert os.listdir(tmp_path) == ["out.txt"]


def test_a_file_that_cannot_be_written_is_a_sentence_and_the_old_one_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.csv"
    path.write_text("old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(PricingError, match="no space is left on the device"):
        write_file(report(row("ann", 1)), path, "csv")
    assert (path.read_text(), os.listdir(tmp_path)) == ("old", ["out.csv"])
    with pytest.raises(PricingError, match="no such file or directory"):
        write_file(report(), tmp_path / "nowhere" / "out.csv", "csv")


def test_what_a_killed_program_left_beside_it_goes_after_a_day(tmp_path: Path) -> None:
    for name in (".out.csv.7.part", ".out.csv.8.part", ".other.csv.7.part", "out.csv.7.part"):
        (tmp_path / name).write_text("half")
    old = (tmp_path / "out.csv.7.part").stat().st_mtime - 90_000
    for name in (".out.csv.7.part", ".other.csv.7.part", "out.csv.7.part"):
        os.utime(tmp_path / name, (old, old))
    write_file(report(row("ann", 1)), tmp_path / "out.csv", "csv")
    assert sorted(os.listdir(tmp_path)) == [".other.csv.7.part", ".out.csv.8.part", "out.csv", "out.csv.7.part"]


def test_a_link_is_followed_and_a_device_written_to(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    (tmp_path / "link").symlink_to(path)
    write_file(report(row("ann", 1)), tmp_path / "link", "csv")
    assert (tmp_path / "link").is_symlink() and path.read_text().startswith("user,")
    write_file(report(row("ann", 1)), "/dev/null", "csv")
    with pytest.raises(PricingError, match="no space is left"):
        write_file(report(row("ann", 1)), "/dev/full", "csv")


def test_an_unknown_format_is_a_sentence() -> None:
    with pytest.raises(ReportError, match="'xlsx' is no report format: use text, csv, json"):
        text_of(report(), "xlsx")


def test_the_text_shows_unused_commitments_and_corrections_where_there_are_some_so_that_its_columns_sum_to_the_total() -> None:
    plain = text_of(report(row("ann", Fraction(5))), "text").splitlines()[0]
    assert "UNUSED CMT" not in plain and "ADJUSTED" not in plain
    said = text_of(
        report(row("ann", Fraction(5)), row("(adjustment)", 0, adjustment_cost=Fraction(-2)), row("(unused commitment)", 0, unused_commitment_cost=Fraction(4))),
        "text",
    ).splitlines()  # fmt: skip
    assert said[0].split()[-6:] == ["ALLOCATED", "IDLE", "UNUSED", "CMT", "ADJUSTED", "TOTAL"]
    assert said[-1].split()[-5:] == ["5.00", "0.00", "4.00", "-2.00", "7.00"]
    assert text_of(replace(report(row()), currency="CNY"), "text").splitlines()[-1] == "(all in CNY)"
