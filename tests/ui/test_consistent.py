"""The same key means the same on every screen; Esc undoes the last thing first; sentences end where the screen ends."""

from __future__ import annotations

import pytest

from tests.support.screens import make_app, press, running, table, text
from tui import terminal
from tui.ui import actions
from tui.ui.action import LOOKS, Scope
from tui.ui.lines import at_most, hung, width, wrapped
from tui.ui.panes.header import Shown, status_line
from tui.ui.widgets.status import FilterBar

GO_TO: dict[str, Scope] = {"j": "jobs", "a": "alerts", "E": "events", "c": "costs", "B": "budgets", "m": "market", "v": "advice", "question_mark": "help"}
OF_ANOTHER = {"card": "advice", "price": "market"}
"""Screens that are shown of another one: Esc goes there."""


@pytest.mark.parametrize("key", GO_TO)
def test_a_key_that_opens_a_screen_opens_it_from_every_other(key: str) -> None:
    for scope in LOOKS:
        calls = [action.call.removeprefix("app.") for action in actions.of(scope) if key in action.keys]
        if scope == "help" or GO_TO[key] in (scope, OF_ANOTHER.get(scope)):
            assert calls == []
        else:
            assert calls == [GO_TO[key]], (scope, calls)


@pytest.mark.parametrize("key", ["o", "O", "y", "n", "t", "q", "z", "colon", "slash", "escape"])
def test_a_key_has_one_meaning_wherever_it_has_one(key: str) -> None:
    """`n` and `/` are of the log where a log is shown: there they are a pager's."""
    titles = {
        action.call.removeprefix("app.").partition("(")[0]
        for scope in LOOKS if not (scope == "job" and key in ("n", "slash"))
        for action in actions.of(scope) if key in action.keys
    }  # fmt: skip
    assert len(titles) == 1 or titles <= {"copy_id", "copy_names", "copy_rows"}, titles


async def test_esc_closes_an_empty_filter_first_and_leaves_marks_alone() -> None:
    app, _ = make_app()
    async with running(app) as pilot:
        await press(pilot, "space", "slash", "escape")
        assert not app.screen.query_one(FilterBar).is_open and table(app).has_focus and table(app).marked
        await press(pilot, "escape")
        assert not table(app).marks
        for screen in ("c", "m", "E", "B", "j"):
            await press(pilot, screen)
            depth = len(app.screen_stack)
            await press(pilot, "slash", "escape")
            assert len(app.screen_stack) == depth and not app.screen.query_one(FilterBar).is_open
            await press(pilot, "escape")
            assert len(app.screen_stack) == depth - 1


async def test_low_screens_are_named_in_the_header_and_say_their_sentences_to_the_end() -> None:
    app, _ = make_app()
    async with running(app, (80, 24)) as pilot:
        assert " RACKRATE " in text(app)
        for key, name in (("j", "jobs"), ("B", "budgets"), ("a", "alerts"), ("E", "events"), ("m", "market")):
            await press(pilot, key)
            assert text(app).startswith(f" {name}  ") and "RACKRATE" not in text(app)
            if key in "jB":
                assert "…" not in text(app)
            await press(pilot, "escape")
        await pilot.resize_terminal(80, 40)
        await press(pilot, "j")
        assert "fleet › jobs" in text(app) and "RACKRATE" in text(app)


@pytest.mark.parametrize("cells", [20, 40, 60, 80])
def test_a_hung_line_loses_nothing_and_is_nowhere_too_wide(cells: int) -> None:
    line = (("  rackrate add URL", "key"), ("    adds a node that runs jobs; they are listed here", "dim"))
    rows = hung(line, cells)
    assert all(width(row) <= cells for row in rows)
    said = " ".join(" ".join(part for part, _ in row) for row in rows).split()
    if cells > width(line[:1]):
        assert said == " ".join(part for part, _ in line).split()
    if cells >= 60:
        assert {len(row[0][0]) - len(row[0][0].lstrip()) for row in rows[1:]} <= {width(line[:1]) + 4}


@pytest.mark.parametrize("cells", [1, 8, 20, 40, 60])
def test_what_is_left_out_below_a_table_is_said_by_its_last_sign(cells: int) -> None:
    lines = wrapped("GPU 0 is held by priya, but was less than 20 % busy for 41 min: end it, or take a smaller one", "text", cells, " ")
    rows = at_most(lines, 2, cells)
    assert len(rows) == 2 and (rows == lines or "".join(part for part, _ in rows[1]).endswith("…"))
    assert all(width(row) <= max(cells, max(map(width, lines))) for row in rows) and at_most(lines, len(lines), cells) == lines


def test_lc_all_c_asks_for_ascii_though_python_would_write_utf_8() -> None:
    assert not terminal.draws_unicode({"LC_ALL": "C"}) and not terminal.draws_unicode({"LC_ALL": "POSIX"})
    assert terminal.draws_unicode({"LC_ALL": "C", "PYTHONIOENCODING": "utf-8"}) == terminal.draws_unicode({})


def test_a_long_note_has_the_whole_status_line() -> None:
    shown = Shown(sums=((("12 nodes", "text"),),), hidden_columns=5)
    said = "costs-2026-11-project.csv: the report cannot be written (no space left)."
    assert "+5 hidden" in "".join(part for part, _ in status_line(shown, (("marked", "idle"),), 80))
    line = status_line(shown, ((said, "lost"),), 80)
    assert "".join(part for part, _ in line).strip() == said and width(line) <= 80
