"""Nothing is changed by itself: not by leaving, not by any text, not in read-only; each action asks and sends what it said."""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.support.acting import (
    acting,
    big_fleet,
    changes,
    confirm,
    let_be,
    mark_all,
    paste_raw,
    shown,
    until,
)
from tests.support.examples import EXPLORE
from tests.support.fleets import NOW
from tests.support.screens import make_app, press, running, text
from tui.ui import actions
from tui.ui.blast import ask
from tui.ui.node_actions import drain_plan
from tui.ui.screens.ask_text import AskText
from tui.ui.screens.confirm import ConfirmScreen, SignalScreen


async def test_leaving_within_the_five_seconds_sends_nothing_and_says_so() -> None:
    app, clock, nodes = acting()
    async with running(app, (100, 30)) as pilot:
        await press(pilot, "j", "down", "x", "right", "enter", "q")
        clock.at += 10
        await asyncio.sleep(0.3)
    assert not changes(nodes)
    assert app.unsent() == ["stopping train-1: not sent, the app was left before its five seconds were over"]


async def test_a_small_screen_shows_the_question_and_both_answers() -> None:
    app, clock, nodes = acting(big_fleet())
    async with running(app, (20, 5)) as pilot:
        await press(pilot, "j")
        mark_all(app)
        await press(pilot, "x")
        assert "Stop 12 jobs" in shown(app) and "Type 12" in shown(app)
        await press(pilot, "1", "2")
        await confirm(app, pilot, clock)
        assert len(changes(nodes)) == 12


PLACES = {
    "fleet": (), "node": ("enter",), "gpu": ("enter", "enter"), "alerts": ("a",), "jobs": ("j",), "job": ("j", "enter"), "submit": ("j", "n"), "costs": ("c",),
    "help": ("question_mark",),
}  # fmt: skip
TEXTS = (
    "dy\n", "x\nyes\n", "1111\n", "x\t\n", "x\t\t\n\n", "kTERM\n\n", "kterm\n\t\n", "dnew fan\n\t\n", "p\n\t\n",
    "i0 50%\n\n", ":stop\n\n\n", ":drain\n\n\n", "Vx12\n\t\n", " x\n", "  d\n\n", "x12\n", "n\nls\n\n", "e\n\n", "z\n",
)  # fmt: skip


SIGNS = 60 if EXPLORE else 14
"""Of a text that is made up: each opens a screen or two, which is what it costs."""


def _text(seed: int) -> str:
    """Of the keys that do something above all, and of what closes and answers dialogs."""
    signs = "xkdpinyezja :/\n\n\n\t 12yes" + "qwertzuiopasdfghjklyxbnQWERTZUIOP0123456789!?.,;-_'"
    return "".join(random.Random(seed).choices(signs, k=SIGNS))


PASTES = [("jobs" if text[0] in "xk1 en" else "fleet", text) for text in TEXTS]
PASTES += [(place, _text(seed)) for seed, place in enumerate(PLACES)]


async def test_no_text_changes_anything_on_any_screen_however_it_is_pasted_raw() -> None:
    """Letters, digits, blanks, tabs and line feeds come as keys where a terminal knows no bracketed paste."""
    app, clock, nodes = acting(big_fleet())
    app.action_leave = lambda: None  # type: ignore[method-assign]
    async with running(app, (60, 14)) as pilot:
        for place, paste in PASTES:
            while len(app.screen_stack) > 1:
                await until(lambda: app.screen.is_mounted)
                app.pop_screen()
            app.screen.table.marks = set(app.screen.table.passing)  # type: ignore[attr-defined]
            paste_raw(app, "".join(PLACES[place]).replace("question_mark", "?").replace("enter", "\n") + paste)
            await pilot.pause()
            assert not app.pending, (place, paste)
        await let_be(app, pilot, clock)
    assert not changes(nodes)


async def test_two_answers_faster_than_the_dialog_goes_are_one_and_close_nothing_below() -> None:
    app, _, _nodes = acting()
    async with running(app, (100, 30)) as pilot:
        await press(pilot, "j", "down", "x", "right")
        paste_raw(app, "\n\n")
        await until(lambda: app.pending)
        await pilot.pause()
        assert len(app.pending) == 1 and len(app.screen_stack) >= 2
        app.pop_screen()
        app.pop_screen()
        app.pop_screen()
        await pilot.pause()
        assert len(app.screen_stack) == 1 and app.is_running


# -- every action that changes something ----------------------------------------------------------------------------

WAYS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "cancel": (("j",), ("right", "enter")),
    "signal": (("j",), (*"usr1", "enter", "right", "enter")),
    "drain": ((), ("enter", "right", "enter")),
    "pause_alerts": ((), ("enter", "right", "enter")),
    "mps_share": (("enter",), (*"50%", "enter", "right", "enter")),
}
"""Action -> how to get to it, and what confirms it."""
FORMS = {"submit", "submit_here", "resubmit", "send"}
"""They open the form of a job, or send it: `test_submit_screen`."""
CALLS = {"cancel": "cancel", "signal": "signal", "drain": "drain", "pause_alerts": "pause_alerts", "mps_share": "mps_set"}


def test_every_action_that_changes_something_is_known_here() -> None:
    assert {action.id for action in actions.ACTIONS if action.changes} == {*WAYS, *FORMS}


@pytest.mark.parametrize("name", WAYS)
async def test_every_action_that_changes_something_asks_and_sends_what_it_said(name: str) -> None:
    action = next(action for action in actions.ACTIONS if action.id == name)
    there, answers = WAYS[name]
    app, clock, nodes = acting(big_fleet(2))
    async with running(app, (100, 34)) as pilot:
        await press(pilot, *there, action.keys[0])
        assert not changes(nodes) and type(app.screen).__name__ in ("ConfirmScreen", "SignalScreen", "AskText")
        await press(pilot, *answers)
        assert not changes(nodes) and len(app.pending) == 1
        plan = app.pending[0].plan
        await let_be(app, pilot, clock)
        assert [call[1] for call in changes(nodes)] == [CALLS[name]] * len(plan.targets)
        assert {call[0] for call in changes(nodes)} == {target.node for target in plan.targets}


async def test_every_action_that_changes_something_is_refused_in_read_only_however_it_is_called() -> None:
    app, clock, nodes = acting(big_fleet(2), read_only=True)
    async with running(app, (100, 34)) as pilot:
        for name, (there, _) in WAYS.items():
            action = next(action for action in actions.ACTIONS if action.id == name)
            await press(pilot, *there, action.keys[0])
            assert f"{action.shown} is off: this is read-only." in text(app)
            await app.run_action(action.call, app.screen)
            await pilot.pause()
            assert not isinstance(app.screen, ConfirmScreen | SignalScreen | AskText), name
            while len(app.screen_stack) > 1:
                await press(pilot, "escape")
        plan = drain_plan(list(app.fleet), None, NOW)
        ask(app, plan)
        assert not isinstance(app.screen, ConfirmScreen)
        await pilot.pause()
        assert "draining 2 nodes: refused, this is read-only." in text(app)
        app.will_send(plan)
        await let_be(app, pilot, clock)
        assert not changes(nodes)
    make_app()
