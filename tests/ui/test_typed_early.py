"""What is typed before a line is on the screen goes into the line: a burst of keys as a terminal sends them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from textual import events
from textual.pilot import Pilot
from textual.widgets import Input

from tests.support.jobs import FakeNode, asked_nodes, ident, job, job_fleet
from tests.support.screens import make_app, press, running, table
from tui.ui.app import RackrateApp
from tui.ui.screens.palette import PaletteScreen
from tui.ui.widgets.search_bar import SearchBar


async def burst(app: RackrateApp, pilot: Pilot[None], text: str) -> None:
    """All keys at once, none of them waited for."""
    names = {":": "colon", "\r": "enter", " ": "space", "@": "at", "/": "slash"}
    for sign in text:
        key = names.get(sign, f"upper_{sign.lower()}" if sign.isupper() else sign)
        app.post_message(events.Key(key, sign))
    for _ in range(20):
        await asyncio.sleep(0.01)
        await pilot.pause()


async def test_a_command_behind_the_colon_is_whole_however_fast_it_comes() -> None:
    app, _ = make_app()
    async with running(app, (100, 30)) as pilot:
        await burst(app, pilot, ":alerts")
        assert isinstance(app.screen, PaletteScreen) and app.screen.query_one("Input").value == "alerts"
        await press(pilot, "escape")
        await burst(app, pilot, ":alerts\r")
        assert type(app.screen).__name__ == "AlertsScreen"
        await press(pilot, "escape")
        await burst(app, pilot, ":help\r")
        assert type(app.screen).__name__ == "HelpScreen"


async def test_what_is_typed_behind_a_line_that_is_open_is_typed_once() -> None:
    app, _ = make_app()
    async with running(app, (100, 30)) as pilot:
        await press(pilot, "colon")
        await burst(app, pilot, "jobs user")
        assert app.screen.query_one("Input").value == "jobs user"


async def test_a_filter_behind_the_slash_is_whole_and_does_nothing_else() -> None:
    app, _ = make_app()
    async with running(app) as pilot:
        await burst(app, pilot, "/qatx")
        field = app.screen.query_one("FilterBar Input", Input)
        assert app.is_running and app.return_code is None and len(app.screen_stack) == 1 and field.value == "qatx"
        await press(pilot, "backspace", "escape")
        assert not field.value and table(app).has_focus
        await burst(app, pilot, "/user:bob\r")
        assert field.value == "user:bob" and table(app).has_focus and table(app).keys == ["a100-half"]
        table(app).focus()
        await press(pilot, "slash")
        table(app).focus()  # a click beside the line
        await burst(app, pilot, "q")
        assert field.value == "user:bobq" and field.has_focus


async def test_what_to_look_for_in_a_log_is_whole_behind_the_slash() -> None:
    app, _ = make_app(job_fleet(), **asked_nodes(FakeNode("gpu-01", (job(1),), "one\ntwo\n")))
    async with running(app, (100, 30)) as pilot:
        app.open_job("gpu-01", ident(1))
        await pilot.pause()
        await burst(app, pilot, "/qxn")
        assert app.screen.query_one(SearchBar).value == "qxn" and len(app.screen_stack) == 2


async def test_keys_before_there_is_a_screen_and_after_there_is_none_are_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    app, _ = make_app()
    monkeypatch.setattr(app, "_init_mode", _after_keys(app, app._init_mode))
    async with running(app) as pilot:
        await press(pilot, "down")
    await app.on_event(events.Key("q", "q"))


def _after_keys(app: RackrateApp, then: Any) -> Any:
    async def with_keys(mode: str) -> Any:
        for sign in "q:x":
            await app.on_event(events.Key(sign, sign))
        return await then(mode)

    return with_keys
