"""The line in which a filter is typed: completion from the live fleet, the spot of an error, filters that are kept."""

from __future__ import annotations

from textual.widgets import Input

from tests.support.jobs import job_fleet
from tests.support.money_app import until
from tests.support.screens import line_with, make_app, press, running, table, text


def typed(app) -> str:  # noqa: ANN001
    return app.screen.query_one("FilterBar Input", Input).value


async def test_tab_fills_in_keys_and_values_of_the_live_fleet_and_walks_on() -> None:
    app, _ = make_app()
    async with running(app) as pilot:
        await press(pilot, "slash", *"us")
        assert "Tab  user:" in text(app)
        await press(pilot, "tab")
        assert typed(app) == "user:" and "fay" in line_with(app, "Tab  ")
        await press(pilot, *"d", "tab")
        assert typed(app) == "user:dan" and table(app).keys == ["v100-broken"] and "Tab  dan  ada" in text(app)
        await press(pilot, "tab")
        assert typed(app) == "user:ada", "then those that hold what was typed"
        await press(pilot, "shift+tab")
        assert typed(app) == "user:dan"
        await press(pilot, "enter")
        assert table(app).has_focus and "/user:dan" in text(app)


async def test_right_takes_what_is_shown_behind_the_cursor() -> None:
    app, _ = make_app()
    async with running(app) as pilot:
        await press(pilot, "slash", *"!user:bo")
        field = app.screen.query_one("FilterBar Input", Input)
        await until(pilot, lambda: bool(field._suggestion))
        await press(pilot, "right")
        assert typed(app) == "!user:bob" and "a100-half" not in table(app).keys


async def test_an_error_has_a_caret_below_its_spot_and_the_filter_before_holds() -> None:
    app, _ = make_app()
    async with running(app) as pilot:
        await press(pilot, "slash", *"bob or stat:x")
        assert table(app).keys == ["a100-half"]
        lines = text(app).split("\n")
        at = next(i for i, line in enumerate(lines) if "bob or stat:x" in line)
        assert lines[at + 1].rstrip() == " " * lines[at].index("stat") + "^^^^"
        assert "did you mean `state`?" in lines[at + 2]


async def test_a_filter_that_is_kept_is_offered_and_used() -> None:
    app, _ = make_app(filters={"bobs": "user:bob or user:eve"})
    async with running(app) as pilot:
        await press(pilot, "slash", *"@b", "tab", "enter")
        assert typed(app) == "@bobs" and set(table(app).keys) == {"a100-half", "t4-stale"}


async def test_jobs_have_completion_of_their_own_and_time_goes_on_in_a_kept_comparison() -> None:
    app, _ = make_app(job_fleet(), filters={"long": "run>1h"})
    async with running(app) as pilot:
        await press(pilot, "j", "slash", *"ca", "tab", *"canc", "tab")
        assert typed(app) == "cause:cancelled"
        await press(pilot, "escape", "slash", *"@long", "enter")
        assert app.screen.table._timed  # type: ignore[attr-defined]


async def test_a_regular_expression_that_would_hang_others_leaves_the_app_alive() -> None:
    app, _ = make_app()
    async with running(app) as pilot:
        await press(pilot, "slash", *"/(a*)*(a*)*(a|aa)+$z/", "enter")
        assert app.is_running and not table(app).keys


async def test_alerts_are_filtered_with_keys_of_their_own_and_esc_shows_all_again() -> None:
    app, _ = make_app()
    async with running(app, (100, 24)) as pilot:
        await press(pilot, "a")
        assert "gpu idle held" in text(app) and "node silent" in text(app)
        await press(pilot, "slash", *"rul", "tab", *"idle", "enter")
        assert "gpu idle held" in text(app) and "node silent" not in text(app) and "/rule:idle" in text(app)
        await press(pilot, "escape")
        assert "node silent" in text(app) and type(app.screen).__name__ == "AlertsScreen"
        await press(pilot, "slash", *"cost>1000", "enter")
        assert "No alert matches this filter. Esc clears it." in text(app)
        await press(pilot, "enter", "escape", "escape")
        assert type(app.screen).__name__ == "FleetScreen"
