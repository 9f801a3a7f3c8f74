"""Marks on rows: they go by key, tell themselves without colour, and say what an action is for."""

from __future__ import annotations

from tests.support.fleets import NOW, many
from tests.support.jobs import job_fleet
from tests.support.screens import line_with, make_app, press, running, table, text
from tui.format import usd
from tui.ui.screens.jobs import JobsScreen


async def test_space_marks_the_row_and_moves_on_and_the_status_sums_the_marks() -> None:
    app, _ = make_app()
    async with running(app, (120, 24)) as pilot:
        rows = list(table(app).keys)
        assert table(app).targets() == rows[:1], "without marks it is the row under the cursor"
        await press(pilot, "space", "down", "space")
        assert table(app).marks == {rows[0], rows[2]} and table(app).cursor_key == rows[3]
        assert table(app).targets() == [rows[0], rows[2]]
        assert line_with(app, rows[0]).startswith(" ●") and line_with(app, rows[1]).startswith("  ")
        await press(pilot, "home")
        part = app.fleet.totals(NOW, [rows[0], rows[2]])
        assert f"● 2 marked:  {usd(part.usd_per_hour)}/h" in text(app)
        await press(pilot, "space")
        assert table(app).marks == {rows[2]}


async def test_marks_stay_with_their_rows_and_a_hidden_one_is_no_target() -> None:
    app, _ = make_app()
    async with running(app) as pilot:
        await press(pilot, "home", "space", "space")
        marks = set(table(app).marks)
        await press(pilot, "9", "r", "5")
        assert table(app).marks == marks and set(table(app).targets()) == marks
        await press(pilot, "slash", *"node:t4", "enter")
        assert "2 marks hidden" in text(app)
        assert table(app).targets() == ["t4-stale"], "none of the marked rows is shown: the row under the cursor"
        assert "1 node " in text(app) and "marked:" not in text(app)
        await press(pilot, "escape")
        assert not table(app).marks and len(table(app).keys) == 1, "the first Esc takes the marks away"
        await press(pilot, "escape")
        assert len(table(app).keys) == len(app.fleet), "the second one the filter"


async def test_a_range_of_marks_reaches_from_the_last_mark_to_the_cursor() -> None:
    app, _ = make_app(many(50))
    async with running(app) as pilot:
        await press(pilot, "down", "space", "down", "down", "V")
        assert table(app).targets() == [f"node-{n:04}" for n in range(1, 5)]
        await press(pilot, "escape", "end", "space", "pageup", "ctrl+@")
        assert table(app).targets()[-1] == "node-0049" and len(table(app).targets()) > 10


async def test_jobs_are_marked_alike_and_a_mark_goes_with_its_job() -> None:
    app, clock = make_app(job_fleet())
    async with running(app, (120, 24)) as pilot:
        await press(pilot, "j", "space", "space")
        screen = app.screen
        assert isinstance(screen, JobsScreen) and len(screen.targets()) == 2 and "● 2 marked:" in text(app)
        gone = screen.targets()[0]
        name, _, ident = gone.partition(" ")
        jobs = app.fleet[name].jobs
        for kept in (jobs._unended, jobs._ended):
            kept.pop(ident, None)
        screen.table.order_rows(clock())
        assert gone not in screen.table.marks and len(screen.targets()) == 1
