"""Keys that come in one burst (a script, a line that stalled) have their effect in the order in which they were typed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

from textual import events
from textual.widgets import Input

from tests.support.jobs import FakeNode, asked_nodes, ident, job, job_fleet
from tests.support.screens import make_app, press, running, table
from tui.ui.app import RackrateApp
from tui.ui.drivers import _takes
from tui.ui.screens.ask_text import AskText
from tui.ui.screens.confirm import ConfirmScreen
from tui.ui.screens.palette import PaletteScreen
from tui.ui.screens.submit import SubmitScreen
from tui.ui.widgets.form import Switch
from tui.ui.widgets.search_bar import SearchBar

NAMES = {":": "colon", " ": "space", "/": "slash", "-": "minus", ".": "full_stop"}


def send(app: RackrateApp, text: str) -> None:
    """All at once, none of them waited for; names of keys stand in `<>`."""
    for name, sign in re.findall(r"<([a-z+]+)>|(.)", text):
        app.post_message(events.Key(name or NAMES.get(sign, sign), sign or None))


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.01)


def typed(app: RackrateApp) -> str:
    return app.screen.query_one(Input).value


def form() -> RackrateApp:
    app, _ = make_app(job_fleet(), **asked_nodes(FakeNode("gpu-01"), FakeNode("gpu-02")))
    app._import_slowly = lambda: None  # type: ignore[method-assign]
    return app


async def test_each_field_of_the_form_gets_what_was_typed_between_two_tabs() -> None:
    app = form()
    async with running(app, (100, 34)) as pilot:
        await press(pilot, "j", "n")
        assert isinstance(app.screen, SubmitScreen)
        send(app, "ab<backspace>c<tab>gpu-01<tab>24<left><delete><down>0.5<shift+tab><up><home>x<tab><end>8<down><down>9")
        wanted = {"command": "ac", "node": "xgpu-01", "gpus": "28", "gpu_share": "0.5", "gpu_memory": "9"}
        await until(lambda: {key: value for key, value in app.screen.draft.items() if value} == wanted)  # type: ignore[attr-defined]


async def test_blanks_of_a_name_turn_no_switch_that_had_the_focus_before() -> None:
    app = form()
    async with running(app, (100, 34)) as pilot:
        await press(pilot, "j", "n")
        first = next(iter(app.screen.query(Switch)))
        app.screen.set_focus(first)
        send(app, "<space><tab><space><shift+tab><up>my own job<tab><space><space><space>")
        await until(lambda: app.screen.draft["project"] == "my own job" and app.screen.draft["shell"] == "yes")  # type: ignore[attr-defined]
        await until(lambda: app.screen.draft["interruptible"] == "" and first.has_focus)  # type: ignore[attr-defined]


async def test_tab_in_the_palette_completes_all_that_was_typed_before_it() -> None:
    app, _ = make_app()
    async with running(app, (100, 30)) as pilot:
        await press(pilot, "colon")
        send(app, "alx<backspace><tab>")
        await until(lambda: typed(app) == "alerts ")
        await press(pilot, "escape")
        send(app, ":alex<backspace><backspace><tab>")
        await until(lambda: isinstance(app.screen, PaletteScreen) and typed(app) == "alerts ")


async def test_keys_behind_the_end_of_a_filter_are_for_the_rows() -> None:
    app, _ = make_app()
    async with running(app) as pilot:
        await press(pilot, "slash")
        send(app, "user:dax<backspace>n<enter> ")
        await until(lambda: bool(table(app).marks))
        assert typed(app) == "user:dan" and table(app).has_focus and table(app).marked == ["v100-broken"]
        await press(pilot, "escape", "escape")
        send(app, "/user:bob<enter> ")
        await until(lambda: bool(table(app).marks))
        assert typed(app) == "user:bob" and table(app).marked == ["a100-half"]
        await press(pilot, "escape", "escape", "slash")
        send(app, "half or stale<enter><down> ")
        await until(lambda: bool(table(app).marks))
        assert table(app).keys == ["a100-half", "t4-stale"] and table(app).marked == ["t4-stale"]
        await press(pilot, "escape", "slash")
        send(app, "xyz<escape> ")
        await until(lambda: bool(table(app).marks))
        assert typed(app) == "" and len(table(app).marked) == 1 and len(table(app).keys) > 1


async def test_a_filter_that_was_typed_in_one_go_is_among_those_of_before() -> None:
    app, _ = make_app()
    async with running(app) as pilot:
        await press(pilot, "slash")
        send(app, "user:dan<enter>")
        await until(lambda: table(app).has_focus and table(app).keys == ["v100-broken"])
        await press(pilot, "escape", "slash", "up")
        assert typed(app) == "user:dan"


async def test_keys_behind_the_end_of_a_search_are_for_the_log() -> None:
    app, _ = make_app(job_fleet(), **asked_nodes(FakeNode("gpu-01", (job(1),), "one\ntwo\n")))
    async with running(app, (100, 30)) as pilot:
        app.open_job("gpu-01", ident(1))
        await pilot.pause()
        await press(pilot, "slash")
        bar = app.screen.query_one(SearchBar)
        send(app, "txw<left><backspace><end>o<enter>nnn")
        await until(lambda: not bar.has_class("-open"))
        await pilot.pause()
        assert bar.value == "two" and not bar.has_focus


async def test_what_is_corrected_in_a_dialog_is_corrected_where_it_was_typed() -> None:
    app, _ = make_app()
    answers: list[object] = []
    async with running(app) as pilot:
        app.push_screen(AskText("Why?", "A reason."), answers.append)
        await pilot.pause()
        send(app, "ab<backspace>c<enter>")
        await until(lambda: answers == ["ac"])
        app.push_screen(ConfirmScreen("All?", [("They end.", "text")], "Cancel", "Stop", count=13), answers.append)
        await pilot.pause()
        send(app, "12<backspace>3<right><enter>")
        await until(lambda: answers == ["ac", True])


async def test_no_key_waits_for_a_line_that_was_taken_down() -> None:
    app, _ = make_app()
    async with running(app) as pilot:
        gone = Input()
        await app.screen.mount(gone)
        await gone.remove()
        app._dealing = (gone, events.Key("tab", None))
        send(app, "<down> ")
        await until(lambda: bool(table(app).marks))
        await pilot.pause()
        assert table(app).marked == [table(app).keys[1]]


def test_text_that_looks_pasted_is_for_a_form_as_long_as_it_is_one_line() -> None:
    switch = Switch("", False)
    assert _takes(Input(), "abcd\r") and _takes(switch, "\tabcd") and not _takes(switch, "abcd\r") and not _takes(None, "abcd")
