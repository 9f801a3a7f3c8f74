"""Parquet, Markdown, HTML and CSV of the same cells: golden bytes, sums, and text from outside that stays text."""

from __future__ import annotations

import csv
import html.parser
import io
import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from xml.etree import ElementTree

import pyarrow
import pytest
from pyarrow import parquet

from pricing.attribution import attribute
from pricing.budgets import Budget, budget_states
from pricing.catalog import Catalog
from pricing.errors import ReportError
from pricing.ledger import Ledger
from pricing.money import Money
from pricing.report import Report, Row
from pricing.reports import FORMATS, views, write
from pricing.reports import csv as csv_report
from pricing.reports.burns import burn_of
from pricing.reports.charts import stacked_bars
from pricing.reports.html import HtmlReport, write_page
from pricing.reports.json import document
from pricing.reports.pages import LongReport, attributed, calendar_months, head_of, tables, whole
from pricing.reports.table import COLUMNS, table
from tests.support.report_files import write_file
from tests.support.sample_ledger import fill

START, END = datetime(2026, 10, 30, tzinfo=UTC), datetime(2026, 11, 3, tzinfo=UTC)
EVIL = '<script>alert("x")</script>|`*_[a](http://b)\x1b[2J\u202e\n@here'
GOLDEN = Path(__file__).parents[1] / "golden" / "reports"


@pytest.fixture(scope="module")
def ledger() -> Iterator[Ledger]:
    with Ledger.open(":memory:") as made:
        fill(made, START, 96, 3)
        yield made


def small() -> Report:
    """Two users and idle time, one of them called like an attack; not complete."""
    hour = 3_600_000 * 10**6
    rows = (
        Row(("ann",), 3 * hour, 0, 2 * hour, 3 * hour, 3_600_000_000, Fraction(10, 3), *[Fraction(0)] * 3, True, list_cost=Fraction(4)),
        Row((EVIL,), hour, 0, 0, 0, None, *[None] * 4, False, *[None] * 6),  # type: ignore[arg-type]
        Row(("(idle)",), 0, hour, 0, 0, None, Fraction(0), Fraction(5, 4), Fraction(1, 8), Fraction(0), True, list_cost=Fraction(2)),
    )  # fmt: skip
    totals = Row(
        (),
        4 * hour,
        hour,
        2 * hour,
        3 * hour,
        3_600_000_000,
        Fraction(10, 3),
        Fraction(5, 4),
        Fraction(1, 8),
        Fraction(0),
        False,
        list_cost=Fraction(6),
    )
    return Report(
        rows, totals, START, END, "Europe/Berlin", "USD", ("user",), (f"node {EVIL}: 1.00 h have no price.",), (), ("A note.",)
    )


def text_of(report: Report, format: str) -> str:
    stream = io.StringIO(newline="")
    write(report, stream, format)
    return stream.getvalue()


@pytest.mark.parametrize("format", [name for name in FORMATS if name != "html"])
def test_small_reports_are_the_golden_ones_to_the_byte(format: str) -> None:
    """After a wanted change: delete the file and run the test twice."""
    path, said = GOLDEN / f"small.{format}", text_of(small(), format).encode()
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(said)
        pytest.fail(f"{path.name} was missing and has been written: look at it, and run again")
    assert said == path.read_bytes()


def test_markdown_keeps_a_name_from_outside_in_its_cell() -> None:
    said = text_of(small(), "markdown")
    lines = [line for line in said.splitlines() if line.startswith("|")]
    assert len(lines) == 6 and all(
        len(re.findall(r"(?<!\\)\|", line)) == len(re.findall(r"(?<!\\)\|", lines[0])) for line in lines
    )
    assert "\x1b" not in said and "\u202e" not in said and "<script" not in said.replace("\\<script", "")
    assert "@here" not in said and "http://" not in said
    assert "- node" in said and "not complete" in said and "- A note." in said
    assert "| **Total** |" in said and "**4.71\\***" in said


def test_a_csv_for_excel_begins_with_a_mark_that_pandas_habit_drops() -> None:
    stream = io.StringIO(newline="")
    csv_report.write(small(), stream, bom=True)
    raw = stream.getvalue().encode()
    assert raw.startswith(b"\xef\xbb\xbfuser,")
    rows = list(csv.DictReader(io.StringIO(raw.decode("utf-8-sig"), newline="")))
    assert rows[0]["allocated_cost"] == "3.33" and rows[1]["total_cost"] == ""
    assert not any("," in cell or "$" in cell for row in rows for name, cell in row.items() if name != "user")


def test_parquet_has_a_schema_that_does_not_depend_on_the_rows(ledger: Ledger, tmp_path: Path) -> None:
    daily = attribute(ledger, Catalog.embedded(), START, END, ("day", "user"))
    empty = replace(daily, rows=())
    for name, report in (("full", daily), ("empty", empty)):
        write_file(report, tmp_path / f"{name}.parquet", "parquet")
    full, none = (parquet.read_table(tmp_path / f"{name}.parquet") for name in ("full", "empty"))
    assert full.schema.equals(none.schema) and none.num_rows == 0
    assert full.schema.field("total_cost").type == pyarrow.decimal128(18, 2)
    assert full.schema.field("day").type == pyarrow.date32() and full.column_names == ["day", "user", *COLUMNS]
    shown = table(daily)
    assert full["total_cost"].to_pylist() == [row["total_cost"] for row in shown.rows]
    assert full["day"][0].as_py() == date(2026, 10, 30)
    facts = json.loads(full.schema.metadata[b"rackrate"])
    assert facts["currency"] == "USD" and facts["from"] == "2026-10-30T00:00:00+00:00" and facts["complete"] is True


def test_without_pyarrow_a_sentence_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ReportError, match=r"pip install 'rackrate\[report\]'"):
        write_file(small(), tmp_path / "x.parquet", "parquet")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ReportError, match="parquet is no text"):
        text_of(small(), "parquet")


def monthly(ledger: Ledger, by: tuple[str, ...], tz: str = "UTC") -> LongReport | Report:
    def asked(start: datetime, end: datetime, keys: object) -> Report:
        return attribute(ledger, Catalog.embedded(), start, end, keys, tz=tz)  # type: ignore[arg-type]

    return attributed(asked, START, END, by, tz)


@pytest.mark.parametrize("by", [("day",), ("day", "user", "job"), ("project", "day")])
@pytest.mark.parametrize("tz", ["UTC", "Asia/Kolkata"])
def test_a_report_written_piece_by_piece_sums_to_the_totals_of_the_range(ledger: Ledger, by: tuple[str, ...], tz: str) -> None:
    long = monthly(ledger, by, tz)
    assert isinstance(long, LongReport) and len(list(tables(long))) == (2 if by[0] != "day" else 4 if tz == "UTC" else 5)
    plain = table(attribute(ledger, Catalog.embedded(), START, END, ("user",), tz=tz))
    shown = whole(long)
    assert shown.totals == plain.totals
    for name in COLUMNS:
        known = [row[name] for row in shown.rows if isinstance(row[name], Decimal)]
        if name != "utilization_ratio" and isinstance(plain.totals[name], Decimal):
            assert sum(known) == plain.totals[name], name
    stream = io.StringIO(newline="")
    write(long, stream, "csv")
    rows = list(csv.DictReader(io.StringIO(stream.getvalue(), newline="")))
    assert sum(Decimal(row["total_cost"]) for row in rows) == plain.totals["total_cost"]
    assert len(rows) == len(shown.rows) == len(attribute(ledger, Catalog.embedded(), START, END, by, tz=tz).rows)
    assert (
        json.loads(text_of(long, "json"))["totals"]
        == json.loads(text_of(attribute(ledger, Catalog.embedded(), START, END, ("user",), tz=tz), "json"))["totals"]
    )  # type: ignore[arg-type]


@pytest.mark.parametrize("by", [(), ("user",), ("day", "user"), ("project", "day")])
def test_json_is_written_piece_by_piece_as_it_would_be_in_one(ledger: Ledger, by: tuple[str, ...]) -> None:
    source = monthly(ledger, by)
    assert text_of(source, "json") == json.dumps(document(source), indent=2) + "\n"  # type: ignore[arg-type]
    nothing = replace(head_of(source), rows=())
    assert text_of(nothing, "json") == json.dumps(document(nothing), indent=2) + "\n"


def test_a_json_of_many_days_holds_one_of_them_in_memory(ledger: Ledger) -> None:
    held: list[int] = []
    written: list[int] = []

    def asked(start: datetime, end: datetime, keys: Sequence[str]) -> Report:
        if keys:
            held.append(sum(written))
        return attribute(ledger, Catalog.embedded(), start, end, keys)

    class Stream(io.StringIO):
        def write(self, text: str) -> int:
            written.append(text.count("total_cost"))
            return len(text)

    write(attributed(asked, START, END, ("day", "user"), "UTC"), Stream(), "json")
    assert len(held) == 4 and held == sorted(set(held)), "each day is asked for when the day before was written"


def test_without_days_a_report_is_one_piece(ledger: Ledger) -> None:
    assert isinstance(monthly(ledger, ("user",)), Report)
    months = [month.label for month in calendar_months(START, END, "UTC")]
    assert months == ["2026-10", "2026-11"] and head_of(monthly(ledger, ("day",))).rows == ()
    whole_year = list(
        calendar_months(datetime(2025, 12, 31, 23, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC), "America/New_York")
    )
    assert len(whole_year) == 13 and whole_year[0].end == datetime(2026, 1, 1, 5, tzinfo=UTC)


class Page(html.parser.HTMLParser):
    """Tables with their cells, and what the page would fetch or run."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tables: dict[str, list[list[str]]] = {}
        self.tags: set[str] = set()
        self.addresses: list[str] = []
        self._rows: list[list[str]] = []
        self._caption = ""
        self._within = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.addresses += [
            value or "" for name, value in attrs if name in ("src", "href", "xlink:href") or name.startswith("on")
        ]
        if tag == "table":
            self._rows = []
        elif tag == "tr":
            self._rows.append([])
        elif tag in ("td", "th"):
            self._rows[-1].append("")
        if tag in ("td", "th", "caption"):
            self._within, self._caption = tag, "" if tag == "caption" else self._caption

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th", "caption"):
            self._within = ""
        elif tag == "table":
            self.tables[self._caption] = self._rows

    def handle_data(self, data: str) -> None:
        if self._within == "caption":
            self._caption += data
        elif self._within:
            self._rows[-1][-1] += data


def money(text: str) -> Decimal:
    return Decimal(text.replace("$", "").replace(",", "").rstrip("*"))


@pytest.fixture(scope="module")
def page(ledger: Ledger) -> str:
    def asked(keys: object, start: datetime = START, end: datetime = END, tz: str = "UTC", currency: str = "USD") -> Report:
        return attribute(ledger, Catalog.embedded(), start, end, keys, tz=tz, currency=currency)  # type: ignore[arg-type]

    budget = Budget("all", Money.parse("900"))
    (state,) = budget_states([budget], asked, END - timedelta(hours=1))
    burn = burn_of(state, asked(("day",), state.start, state.at))
    assert burn.spent[-1] is None and Fraction(burn.spent[1] or 0) == round(state.spent * 100) / Fraction(100)
    stream = io.StringIO()
    write_page(HtmlReport(asked(("project", "user")), monthly(ledger, ("day", "project")), asked(("job",)), (burn,), END), stream)
    return stream.getvalue()


def test_the_page_needs_nothing_from_elsewhere_and_no_script(page: str) -> None:
    read = Page(page)
    assert not read.tags & {"script", "link", "img", "iframe", "object"} and read.addresses == []
    assert not re.search(r"https?:|//[a-z]|@import|url\((?!#)", page)
    assert "prefers-color-scheme:dark" in page and "@media print" in page
    for svg in re.findall(r"<svg viewBox.*?</svg>", page, re.DOTALL):
        tree = ElementTree.fromstring(svg)
        if tree.get("role") == "img":
            assert tree.find("title").text and tree.find("desc").text  # type: ignore[union-attr]
            assert tree.get("aria-labelledby") == f"{tree[0].get('id')} {tree[1].get('id')}"


def test_every_table_of_the_page_sums_to_the_reports_totals(page: str, ledger: Ledger) -> None:
    read, totals = Page(page), table(attribute(ledger, Catalog.embedded(), START, END, ())).totals
    assert set(read.tables) == {
        "Cost per day by project", "Utilisation and hours", "Idle cost by reason", "Cost by job",
        "Budget all, 2026-11, spent by the end of each day", "Cost by project, user",
    }  # fmt: skip
    for caption in ("Cost per day by project", "Cost by job", "Cost by project, user"):
        header, *rows, foot = read.tables[caption]
        assert money(foot[-1]) == sum(money(row[-1]) for row in rows) == totals["total_cost"], caption
    header, *rows, foot = read.tables["Cost per day by project"]
    assert all(sum(map(money, row[1:-1])) == money(row[-1]) for row in (*rows, foot))
    assert [row[0] for row in rows] == ["2026-10-30", "2026-10-31", "2026-11-01", "2026-11-02"]
    *_, foot = read.tables["Idle cost by reason"]
    assert money(foot[1]) == totals["idle_cost"] == sum(money(row[1]) for row in read.tables["Idle cost by reason"][1:-1])
    *_, foot = read.tables["Utilisation and hours"]
    assert Decimal(foot[1].replace(",", "")) == round(totals["gpu_hours"], 1)  # type: ignore[call-overload,arg-type]


def test_bars_are_as_high_as_their_numbers(ledger: Ledger) -> None:
    daily = attribute(ledger, Catalog.embedded(), START, END, ("day", "project"))
    view = views.by_day(daily)
    svg = stacked_bars("x", "t", [short for short, _ in view.labels], view.series, str)
    heights = [float(bar.get("height") or 0) for bar in ElementTree.fromstring(svg).iter("rect")]
    values = [float(one.values[place]) for place in range(len(view.labels)) for one in view.series if one.values[place]]
    scale = sum(heights) / sum(values)
    assert all(abs(height - max(value * scale, 0.5)) < 0.2 for height, value in zip(heights, values, strict=True))


def test_text_from_outside_stays_text_in_the_page() -> None:
    said = text_of(small(), "html")
    assert "<script" not in said and "\x1b" not in said and "\u202e" not in said
    read = Page(said)
    assert "script" not in read.tags
    rows = read.tables["Cost by user"]
    assert rows[2][0].startswith('<script>alert("x")</script>|') and rows[2][-1] == "–*"
    assert "Not complete." in said and "1.00 h have no price" in said and "A note." in said
    assert "30 October 2026" not in said.split("</header>")[0].replace("2026-10-30 01:00", "") and "2026-10-30 01:00" in said


def test_a_long_range_is_drawn_by_month_and_many_rows_are_added_up(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "MOST_DAYS", 3)
    monkeypatch.setattr("pricing.reports.html.MOST_ROWS", 2)
    by_user, daily = (attribute(ledger, Catalog.embedded(), START, END, by) for by in (("user",), ("day", "project")))
    stream = io.StringIO()
    write_page(HtmlReport(by_user, daily), stream)
    read = Page(stream.getvalue())
    assert [row[0] for row in read.tables["Cost per month by project"][1:]] == ["2026-10", "2026-11", "Total"]
    _, *rows, foot = read.tables["Cost by user"]
    assert (
        len(rows) == 3
        and rows[-1][0].endswith("more rows: see the CSV)")
        and sum(money(row[-1]) for row in rows) == money(foot[-1])
    )
