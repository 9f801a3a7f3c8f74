"""Costs of a month: the same figures as the report, drilled into, moved by months, and written as they are seen."""

from __future__ import annotations

import csv
import re
import time
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from pricing.attribution import attribute
from pricing.calendar import month_start
from pricing.catalog import Catalog
from pricing.ledger import Ledger
from pricing.reports.table import table as cells_of
from tests.support.fleets import AT
from tests.support.money_app import filled, money_app, until
from tests.support.screens import line_with, press, running, text
from tui.costs_view import COMMITMENTS, IDLE, Day, Days, groupings_left, month_of, read_days, read_groups
from tui.format import usd
from tui.money_files import MoneyFiles
from tui.ui.app import RackrateApp
from tui.ui.background import CostsRead
from tui.ui.glyphs import to_ascii
from tui.ui.lines import width
from tui.ui.panes.costs import chart, month_lines
from tui.ui.panes.header import Costs
from tui.ui.screens import costs as costs_module
from tui.ui.screens.costs import CostsScreen
from tui.ui.theme import ANSI, DARK, LIGHT

PAINTED = [((80, 24), DARK), ((120, 40), LIGHT), ((120, 40), ANSI), ((200, 60), DARK), ((20, 5), ANSI), ((40, 10), LIGHT), ((5, 2), DARK)]


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return filled(tmp_path_factory.mktemp("costs"))


def report(ledger: Path, by: str, start: Any = None) -> Any:
    with Ledger.open(ledger) as opened:
        return attribute(opened, Catalog.embedded(), start or month_start(AT, "UTC"), AT, by, now=AT)


def screen(app: RackrateApp) -> CostsScreen:
    assert isinstance(app.screen, CostsScreen)
    return app.screen


def settled(app: RackrateApp) -> Callable[[], bool]:
    """Everything that was wanted is on the screen."""

    def holds() -> bool:
        found = screen(app)
        groups, days = found._groups, found._days
        return not groups.busy and not days.busy and (groups.error is not None or days.value is not None)

    return holds


async def opened(app: RackrateApp, pilot: Pilot[None], *keys: str) -> None:
    if not isinstance(app.screen, CostsScreen):
        await press(pilot, "c")
    await until(pilot, settled(app))
    for key in keys:
        await press(pilot, key)
        await until(pilot, settled(app))


async def test_the_rows_and_their_sum_are_those_of_the_report(ledger: Path, tmp_path: Path) -> None:
    shown = cells_of(report(ledger, "project"))
    app = money_app(tmp_path, ledger)
    async with running(app, (140, 40)) as pilot:
        await opened(app, pilot)
        for row in shown.rows:
            line = next(line for line in text(app).split("\n") if line[2:].startswith(f"{row['project']}  "))
            assert usd(row["total_cost"]) in line and usd(row["allocated_unused_cost"]) in line  # type: ignore[arg-type]
        assert f"total {usd(shown.totals['total_cost'])}" in text(app)  # type: ignore[arg-type]
        totals = [row.cells["total_cost"] for row in screen(app).table.shown]
        assert totals == sorted(totals, reverse=True), "the dearest first"


async def test_a_key_goes_through_all_groupings_and_back(ledger: Path, tmp_path: Path) -> None:
    app = money_app(tmp_path, ledger)
    async with running(app, (140, 40)) as pilot:
        await opened(app, pilot)
        seen = []
        for _ in groupings_left(()):
            seen.append(screen(app).table.columns[0].title)
            await opened(app, pilot, "g")
        assert seen[:7] == ["PROJECT", "USER", "NODE", "GPU MODEL", "INSTANCE TYPE", "CLOUD/REGION", "PURCHASE"]
        assert screen(app).table.columns[0].title == "PROJECT"
        await opened(app, pilot, "G", "G", "G", "G")
        assert "aws/us-east-1" in text(app)


async def test_enter_narrows_goes_on_to_the_next_grouping_and_esc_widens(ledger: Path, tmp_path: Path) -> None:
    both = [row for row in report(ledger, "project,user").rows if row.keys[0] == "vision"]
    app = money_app(tmp_path, ledger)
    async with running(app, (140, 40)) as pilot:
        await opened(app, pilot)
        table = screen(app).table
        table.move_to(table.position("vision"))
        await opened(app, pilot, "enter")
        assert "project vision › by user" in line_with(app, "Costs 2026-11")
        assert {row.labels[0] for row in screen(app).table.shown} == {row.keys[1] for row in both}
        assert f"total {usd(sum((row.total_cost for row in both), Fraction(0)))}" in text(app)
        await opened(app, pilot, "enter")
        assert "by node" in line_with(app, "Costs 2026-11")
        await opened(app, pilot, "escape", "escape")
        assert "› by project" in line_with(app, "Costs 2026-11") and "vision ›" not in text(app)
        await press(pilot, "escape")
        assert len(app.screen_stack) == 1


async def test_what_nobody_held_is_not_asked_for_holders(ledger: Path, tmp_path: Path) -> None:
    app = money_app(tmp_path, ledger)
    async with running(app, (140, 40)) as pilot:
        await opened(app, pilot)
        table = screen(app).table
        table.move_to(table.position("(idle)"))
        await opened(app, pilot, "enter")
        assert "by node" in line_with(app, "Costs 2026-11") and "node-00" in text(app)


async def test_a_filter_lets_rows_through_and_the_sum_is_of_them(ledger: Path, tmp_path: Path) -> None:
    app = money_app(tmp_path, ledger)
    async with running(app, (140, 40)) as pilot:
        await opened(app, pilot)
        await press(pilot, "slash", *"!vision idle<1", "enter")
        rows = screen(app).table.shown
        assert rows and all(row.name != "vision" and row.cells["idle_cost"] < 1 for row in rows)
        assert f"total {usd(sum((row.cells['total_cost'] for row in rows), Decimal(0)))}" in text(app)
        await press(pilot, "escape")
        assert len(screen(app).table.shown) > len(rows)


async def test_the_month_before_is_a_whole_month_and_there_is_none_after_this_one(ledger: Path, tmp_path: Path) -> None:
    app = money_app(tmp_path, ledger)
    async with running(app, (140, 40)) as pilot:
        await opened(app, pilot, "left_square_bracket")
        assert "2026-10" in line_with(app, "Costs ") and "Nothing was recorded" in text(app)
        await opened(app, pilot, "right_square_bracket")
        assert "2026-11" in line_with(app, "Costs ") and "vision" in text(app)
        await press(pilot, "right_square_bracket")
        assert "This is the newest month" in text(app)
    october = month_of(AT, "Europe/Berlin", 1)
    assert (october.label, october.days) == ("2026-10", 31)
    assert october.end == month_of(AT, "Europe/Berlin").start and october.end - october.start == timedelta(days=31, hours=1)


async def test_the_export_holds_the_rows_and_cells_of_the_screen_in_their_order(
    ledger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    app = money_app(tmp_path, ledger)
    async with running(app, (140, 40)) as pilot:
        await opened(app, pilot)
        await press(pilot, "slash", *"!idle", "enter", "e")
        assert app.screen.query_one(Input).value == "costs-2026-11-project.csv"
        await press(pilot, "escape")
        assert not list(tmp_path.glob("*.csv")), "Esc writes nothing"
        await press(pilot, "e", "enter")
        await until(pilot, lambda: (tmp_path / "costs-2026-11-project.csv").exists())
        await until(pilot, lambda: "wrote" in text(app))
        rows = screen(app).table.shown
        await press(pilot, "e", "enter")
        await until(pilot, lambda: "is there already" in text(app))
    with (tmp_path / "costs-2026-11-project.csv").open(newline="", encoding="utf-8") as stream:
        read = list(csv.DictReader(stream))
    assert [row["project"] for row in read] == [row.name for row in rows]
    assert [Decimal(row["total_cost"]) for row in read] == [row.cells["total_cost"] for row in rows]
    assert "allocated_unused_cost" in read[0]


async def test_budgets_stand_beside_or_below_with_spent_forecast_and_interval(ledger: Path, tmp_path: Path) -> None:
    app = money_app(tmp_path, ledger)
    async with running(app, (80, 24)) as pilot:
        await opened(app, pilot)
        line = line_with(app, " of $9,000")
        assert "→ $" in line and " to $" in line and " +1\n" in text(app)
        await pilot.resize_terminal(140, 40)
        await pilot.pause()
        for part in ("project vision", "of $9,000", "everything", "user ann"):
            assert part in text(app)


async def test_a_sync_reads_the_ledger_again_and_the_screen_is_left_as_it_was(ledger: Path, tmp_path: Path) -> None:
    app = money_app(tmp_path, ledger)
    async with running(app, (140, 40)) as pilot:
        await opened(app, pilot, "g")
        first = screen(app)._groups.value
        screen(app)._groups._took = 0.0
        app.post_message(CostsRead(Costs(today=Fraction(1))))
        await pilot.pause()
        await until(pilot, lambda: screen(app)._groups.value is not first and settled(app)())
        await press(pilot, "escape")
        assert len(app.screen_stack) == 1
        await press(pilot, "c")
        assert "by user" in line_with(app, "Costs 2026-11")


async def test_an_empty_ledger_is_read_again_at_once_when_a_sync_brought_something(ledger: Path, tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    app = money_app(tmp_path, path)
    async with running(app, (100, 30)) as pilot:
        await opened(app, pilot)
        assert "Nothing was recorded" in text(app) and "┤" not in text(app)
        path.write_bytes(ledger.read_bytes())
        app.post_message(CostsRead(Costs(today=Fraction(1))))
        await pilot.pause()
        await until(pilot, lambda: settled(app)() and "vision" in text(app) and "┤" in text(app), tell=lambda: text(app))


async def test_a_ledger_that_cannot_be_read_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "ledger.db").write_bytes(b"no database, but long enough to be taken for one" * 99)
    app = money_app(tmp_path, tmp_path / "ledger.db")
    async with running(app, (140, 40)) as pilot:
        await opened(app, pilot)
        assert "ledger" in line_with(app, str(tmp_path)[:20])
        assert app._exception is None


@pytest.mark.parametrize(("size", "theme"), PAINTED)
async def test_every_size_and_theme_can_be_painted(ledger: Path, tmp_path: Path, size: tuple[int, int], theme: str) -> None:
    app = money_app(tmp_path, ledger, theme=theme)
    async with running(app, size) as pilot:
        await opened(app, pilot)
        rows = text(app).split("\n")
        assert len(rows) == size[1] and app._exception is None
        if size[1] >= 24:
            for part in ("vision", "$9,000", "┤", "╱", "TOTAL"):
                assert part in text(app), part
            assert "vision" in to_ascii(text(app)) and to_ascii(text(app)).isascii()


def a_month(ledger: Path) -> Days:
    return read_days(MoneyFiles(ledger), month_of(AT, "UTC"), (), AT)


def test_days_and_groups_sum_to_the_report(ledger: Path) -> None:
    whole = report(ledger, "")
    days = a_month(ledger)
    assert sum((cost for day in days.days for cost in day.parts.values()), Fraction(0)) == whole.totals.total_cost
    groups = read_groups(MoneyFiles(ledger), days.month, (("project", "vision"), ("user", "ann")), groupings_left(())[2], AT)
    same = [row for row in report(ledger, "project,user,node").rows if row.keys[:2] == ("vision", "ann")]
    assert groups.report.totals.total_cost == sum((row.total_cost for row in same), Fraction(0))
    assert groups.report.totals.held_share_ms == sum(row.held_share_ms for row in same)


@pytest.mark.parametrize("cells", [40, 80, 120, 200])
def test_no_line_of_the_month_is_too_wide_and_patterns_differ(ledger: Path, cells: int) -> None:
    days = a_month(ledger)
    for rows in (14, 24, 40, 60):
        assert all(width(line) <= cells for line in month_lines(days, cells, rows))
    signs = {sign for line in chart(days, 200, 10) for text, _ in line for sign in text} & set("█▓▒░╱")
    assert len(signs) == 5 == len({to_ascii(sign) for sign in signs})


def test_a_day_is_drawn_to_scale_and_one_without_a_price_is_a_question_mark() -> None:
    month = month_of(AT, "UTC")
    days = (
        Day(1, {"a": Fraction(60), IDLE: Fraction(40)}, True),
        Day(2, {"a": Fraction(50)}, True),
        Day(3, {}, False),
        Day(4, {COMMITMENTS: Fraction(1, 100)}, True),
    )
    drawn = chart(Days(month, (), "project", ("a", IDLE, COMMITMENTS), days, ()), 9 + 30, 10)
    plain = ["".join(text for text, _ in line) for line in drawn]
    columns = ["".join(line[9 + place : 10 + place] for line in plain[:10]) for place in range(4)]
    assert columns[0] == "╱╱╱╱██████" and columns[1].strip() == "█████" and columns[2].strip() == "?" and columns[3].strip() == "▁"
    assert "$100" in plain[0]


async def test_what_takes_long_tells_the_time_and_can_be_broken_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    gate, real = threading.Event(), costs_module.read_groups

    def slow(*arguments):  # noqa: ANN202, ANN002
        gate.wait(600)
        return real(*arguments)

    monkeypatch.setattr(costs_module, "read_groups", slow)
    app = money_app(tmp_path, filled(tmp_path, 2, 1))
    async with running(app, (120, 30)) as pilot:
        await press(pilot, "c")
        screen = app.screen
        assert isinstance(screen, CostsScreen)
        for ago, told in ((-3600, r"reading \.\.\."), (5, r"reading (?:[5-9]|\d\d)s \.\.\.  b breaks it off")):
            screen._groups._began = time.monotonic() - ago
            app.redraw()
            await pilot.pause()
            assert re.search(told, text(app)), text(app)
        await press(pilot, "b")
        assert "Broken off; u reads it anew." in text(app) and not app.is_reading
        app.ledger_version += 1
        app.redraw()
        gate.set()
        await pilot.pause()
        assert screen._groups.value is None, "news do not begin it again, and a late answer is not taken"
        await press(pilot, "u")
        await until(pilot, lambda: screen._groups.value is not None)
        await press(pilot, "b")
        assert "Nothing is being read." in text(app) or not app.is_reading
