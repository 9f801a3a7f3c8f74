"""Help: those of this screen first, searched, and what is chosen is run; F1 where something is typed."""

from __future__ import annotations

from tests.support.jobs import job_fleet
from tests.support.screens import line_with, make_app, press, running, text
from tui.ui import actions
from tui.ui.screens.help import help_rows


async def test_help_is_searched_and_runs_what_is_chosen() -> None:
    app, _ = make_app(job_fleet())
    async with running(app) as pilot:
        theme = app.theme
        await press(pilot, "question_mark")
        assert "On this screen (fleet)" in text(app) and text(app).index("On this screen") < text(app).index("Filter the rows")
        await press(pilot, "slash", *"next theme", "enter")
        assert "▌   t" in text(app) and "1 action" in text(app) and "Filter the rows" not in text(app)
        await press(pilot, "enter")
        assert app.theme != theme and app.screen.SCOPE == "fleet"  # type: ignore[attr-defined]
        await press(pilot, "question_mark", "slash", *"whole log", "enter", "enter")
        assert "is not for this screen, but for: job" in text(app)
        await press(pilot, "escape", "slash", *"zzz", "enter")
        assert "Nothing of that name" in text(app)
        await press(pilot, "escape", "escape")
        assert app.screen.SCOPE == "fleet"  # type: ignore[attr-defined]
        await press(pilot, "j", "question_mark", "slash", *"alerts of the", "enter", "enter")
        assert app.screen.SCOPE == "alerts" and [place.kind for place in app.path()] == ["fleet", "jobs", "alerts"]  # type: ignore[attr-defined]


async def test_f1_explains_the_filter_and_dialogs_and_what_was_typed_stays() -> None:
    app, _ = make_app(job_fleet())
    async with running(app) as pilot:
        await press(pilot, "j", "slash", *"us", "f1")
        assert "What can be typed here" in text(app) and "cause" in text(app) and "key:value" in text(app)
        await press(pilot, "f1", *"er:ada", "enter")
        assert "/user:ada" in text(app)
        await press(pilot, "x", "f1")
        assert "What can be done here" in text(app) and "harmless" in text(app)
        await press(pilot, "escape", "escape")
        assert app.screen.SCOPE == "jobs"  # type: ignore[attr-defined]
        await press(pilot, "K", "f1")
        assert "Enter takes it" in text(app)
        await press(pilot, "escape", "escape", "G")
        assert line_with(app, "does nothing here")
        await pilot.resize_terminal(20, 5)
        await press(pilot, "question_mark")
        assert "Enter" in text(app)


def test_what_is_of_this_screen_stands_first_and_once() -> None:
    for scope in actions.SCREENS:
        rows = help_rows(100, scope)
        listed = [row.action.id for row in rows if row.action is not None]
        assert len(listed) == len(set(listed)) == len(actions.in_force())
        here = {action.id for action in actions.of(scope)}
        assert set(listed[: len(here)]) == here
