"""Each action does what it says: on a screen where it is, its key is pressed and what is seen then is what it promises."""

from __future__ import annotations

import asyncio
import time
from typing import NamedTuple

import pytest
from textual.pilot import Pilot
from textual.screen import ModalScreen

from tests.support.examples import EXPLORE
from tests.support.screens import press, running, text
from tests.support.snapshots import LONGEST_SECONDS, MODES, SIZES, Money, money, opened, prepared
from tui.fleet import Fleet
from tui.ui import actions
from tui.ui.action import SCREENS, Action, Scope
from tui.ui.app import RackrateApp
from tui.ui.screens import advice, costs, market  # noqa: F401 - else they are imported in a thread, and opened later
from tui.ui.widgets.status import FilterBar


class Seen(NamedTuple):
    """`after`: a screen (`@node`), a dialog (`#`), something else than before (`~`), or a text that is on the screen.

    `before` is pressed first; `on` is where (empty: the first screen that has the action).
    """

    after: str
    on: str = ""
    before: tuple[str, ...] = ()
    key: str = ""


EFFECTS: dict[str, Seen] = {
    "open": Seen("@node"),
    "back": Seen("@fleet", "node"),
    "leave": Seen("@fleet", "submit"),
    "filter": Seen("filter:"),
    "search_help": Seen("~"),
    "run_chosen": Seen("@node"),
    "jobs": Seen("@jobs"),
    "alerts": Seen("@alerts"),
    "jobs_from_money": Seen("@jobs"),
    "alerts_from_money": Seen("@alerts"),
    "events": Seen("@events"),
    "go_back": Seen("@fleet", "node"),
    "go_forward": Seen("@node", "node", ("minus",)),
    "keep_filter": Seen("#", "fleet", ("slash", *"live", "enter")),
    "job_node": Seen("@node", "jobs"),
    "next_node": Seen("~"),
    "previous_node": Seen("~"),
    "next_gpu": Seen("GPU 3 of 8"),
    "previous_gpu": Seen("GPU 1 of 8"),
    "longer": Seen("Last 1 h", "node"),
    "shorter": Seen("~", "node"),
    "next_attempt": Seen("~"),
    "previous_attempt": Seen("~"),
    "pane": Seen("~"),
    "whole_log": Seen("~"),
    "narrow": Seen("~", "costs"),
    "costs": Seen("@costs"),
    "budgets": Seen("@budgets"),
    "market": Seen("@market"),
    "advice": Seen("@advice"),
    "dismiss": Seen("#"),
    "dismissed": Seen("~"),
    "break_off": Seen("~"),
    "next_card": Seen("~"),
    "previous_card": Seen("~"),
    "more_days": Seen("~"),
    "fewer_days": Seen("~"),
    "costs_from_jobs": Seen("@costs"),
    "grouping": Seen("~", "costs"),
    "grouping_back": Seen("~", "costs"),
    "month_before": Seen("Costs 2026-10"),
    "month_after": Seen("Costs 2026-11"),
    "export": Seen("#"),
    "again": Seen("Costs 2026-11"),
    "submit": Seen("@submit", "jobs"),
    "submit_here": Seen("@submit"),
    "cancel": Seen("#", "jobs"),
    "signal": Seen("#", "jobs"),
    "copy": Seen("~", "jobs"),
    "log": Seen("@job"),
    "resubmit": Seen("@submit", "jobs"),
    "curves": Seen("@curves"),
    "next_figure": Seen("~"),
    "previous_figure": Seen("~"),
    "log_scale": Seen("~"),
    "curves_job": Seen("@job"),
    "try": Seen("Enter sends it to"),
    "more_fields": Seen("environment"),
    "copy_line": Seen("~"),
    "send": Seen("~"),
    "log_search": Seen("~"),
    "log_next": Seen("~", "job", ("slash", *"loss", "enter")),
    "log_previous": Seen("~", "job", ("slash", *"loss", "enter")),
    "log_pause": Seen("~"),
    "log_follow": Seen("~", "job", ("space",)),
    "log_wrap": Seen("~"),
    "drain": Seen("#", "node"),
    "pause_alerts": Seen("#", "node"),
    "mps_share": Seen("#", "gpu"),
    "copy_names": Seen("~", "node"),
    "copy_rows": Seen("~", "events"),
    "take_back": Seen("~", "node"),
    "sort_next": Seen("~", "market"),
    "sort_previous": Seen("~", "market"),
    "reverse": Seen("~", "market"),
    "sort_column": Seen("~", "market", key="2"),
    "columns": Seen("~", "market"),
    "mark": Seen("1 marked", "jobs"),
    "mark_range": Seen("marked", "jobs", ("home", "space", "down", "down")),
    "follow": Seen("~", "jobs"),
    "move": Seen("~", "market", key="pagedown"),
    "mouse": Seen("~", "market"),
    "time_back": Seen("~", "node"),
    "time_on": Seen("~", "node"),
    "time_minute_back": Seen("~", "node"),
    "time_minute_on": Seen("~", "node"),
    "time_run": Seen("~", "node"),
    "time_jump": Seen("#", "node"),
    "time_live": Seen("~", "node"),
    "help": Seen("@help"),
    "help_typing": Seen("@help"),
    "palette": Seen("#"),
    "palette_typing": Seen("#"),
    "theme": Seen("theme: rackrate-light"),
    "group_by": Seen("~", "fleet"),
    "fold": Seen("~", "fleet", ("o", "home")),
    "unfold": Seen("~", "fleet", ("home", "left")),
    "fold_all": Seen("~", "fleet"),
    "unfold_all": Seen("~", "fleet"),
    "group_by_back": Seen("~", "fleet"),
}
ELSEWHERE = {"quit", "interrupt"}
"""They end the app: tests/ui/test_app.py."""


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Money:
    return money(tmp_path_factory.mktemp("money"))


def test_every_action_has_its_line() -> None:
    assert set(EFFECTS) | ELSEWHERE == {action.id for action in actions.ACTIONS}


def seen(app: RackrateApp) -> tuple[str, str]:
    """What is painted, and where what is typed goes."""
    return text(app), f"{app.screen.SCOPE if not isinstance(app.screen, ModalScreen) else '#'} {app.focused and app.focused.id}"  # type: ignore[attr-defined]


def holds(app: RackrateApp, wanted: str, before: tuple[str, str]) -> bool:
    if wanted == "#":
        return isinstance(app.screen, ModalScreen)
    if wanted == "~":
        return seen(app) != before
    if wanted.startswith("@"):
        return getattr(app.screen, "SCOPE", "") == wanted[1:]
    return wanted in text(app)


async def leave(app: RackrateApp, pilot: Pilot[None]) -> None:
    """Back to the fleet, from wherever an action led; filters are taken away."""
    stack = app.screen_stack[:]
    while len(app.screen_stack) > 1:
        app.pop_screen()
        await pilot.pause()
    for bar in (bar for screen in stack for bar in screen.query(FilterBar)):
        bar.put("")
    if app.screen.query_one(FilterBar).is_open:
        await press(pilot, "escape")
    app.screen.query_one(FilterBar).put("")
    await pilot.pause()


async def tried(app: RackrateApp, pilot: Pilot[None], action: Action, wanted: Seen) -> str:
    """What is wrong with it; empty: nothing."""
    on: Scope = wanted.on or action.scopes[0]  # type: ignore[assignment]
    assert on in action.scopes, (action.id, on)
    try:
        await opened(app, pilot, on)
    except AssertionError as error:
        await leave(app, pilot)
        return f"{action.id} on {on}: {error}"
    for bar in app.screen.query("StatusLine"):
        bar.note("", seconds=0)  # type: ignore[attr-defined]
    await press(pilot, *wanted.before)
    before = seen(app)
    if action.id == "mouse":
        await pilot.click(offset=(5, 12))
    else:
        await press(pilot, wanted.key or action.keys[0])
    deadline = time.monotonic() + LONGEST_SECONDS
    while app._exception is None and not holds(app, wanted.after, before) and time.monotonic() < deadline:
        await asyncio.sleep(0.02)
        await pilot.pause()
    fault = app._exception
    wrong = fault is not None or not holds(app, wanted.after, before)
    told = f"{action.id} on {on}: {fault or f'`{wanted.after}` is not there'}; it is {seen(app)[1]}\n{text(app)}" if wrong else ""
    await leave(app, pilot)
    return told


async def test_every_action_does_what_it_says(known: Money) -> None:
    app, _ = prepared(MODES["dark"], known)
    app.copy_to_clipboard = lambda text: None  # type: ignore[method-assign]
    by_id = {action.id: action for action in actions.ACTIONS}
    async with running(app, (120, 36)) as pilot:
        told = [told for ident, wanted in EFFECTS.items() if (told := await tried(app, pilot, by_id[ident], wanted))]
    assert not told, f"{len(told)} actions:\n" + "\n".join(told)


OPENS = {
    f"app.{name}" for name in ("costs", "budgets", "market", "advice", "alerts", "events", "help", "palette", "submit", "leave", "travel(-1)", "travel(1)", "next_theme")
} | {"jobs", "back"}  # fmt: skip
"""The same from wherever they are called; the table above calls them."""
EVERYWHERE = ("fleet", "node", "gpu", "alerts", "events", "jobs", "job", "curves", "submit", "costs", "budgets", "market", "help")


async def call_all(app: RackrateApp, pilot: Pilot[None], screens: tuple[str, ...]) -> None:
    """All actions of the screens, but for those that only open another one."""
    for screen in screens:
        await leave(app, pilot)
        await opened(app, pilot, screen, wait=False)  # type: ignore[arg-type]
        top = app.screen
        for action in actions.of(screen):  # type: ignore[arg-type]
            if not action.call or action.call in OPENS:
                continue
            await app.run_action("sort_key('2')" if action.id == "sort_column" else action.call, top)
            await pilot.pause()
            assert app.is_running and app._exception is None, (screen, action.id, app._exception)
            while len(app.screen_stack) > 1 and app.screen is not top and top in app.screen_stack:
                app.pop_screen()
                await pilot.pause()
            if app.screen is not top:
                await opened(app, pilot, screen, wait=False)  # type: ignore[arg-type]
                top = app.screen


TRIED = ((20, 5), *SIZES[::2]) if EXPLORE else ((20, 5),)
"""The table above is of 120x36, the test of what is empty of 80x24; `make explore` looks at larger ones too."""


@pytest.mark.parametrize("size", TRIED, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_no_action_of_any_screen_fails_at_any_size(size: tuple[int, int]) -> None:
    app, _ = prepared(MODES["dark"], None)
    async with running(app, (120, 36)) as pilot:
        await pilot.resize_terminal(*size)
        await call_all(app, pilot, EVERYWHERE)


async def test_nothing_changes_anything_where_it_is_read_only_and_no_action_fails() -> None:
    app, _ = prepared(MODES["dark"], None, read_only=True)
    try:
        async with running(app) as pilot:
            for screen in SCREENS:
                assert not any(action.changes for action in actions.of(screen))
            for action in (action for action in actions.ACTIONS if action.changes):
                await app.run_action(action.call, app.screen)
                assert len(app.screen_stack) == 1, action.id
            await call_all(app, pilot, ("node", "gpu", "jobs", "job"))
    finally:
        actions.put_in_force()


async def test_no_action_fails_where_there_is_nothing_at_all() -> None:
    app, _ = prepared(MODES["dark"], None, Fleet())
    async with running(app) as pilot:
        await call_all(app, pilot, ("fleet", "alerts", "events", "jobs", "submit", "costs", "budgets", "market", "help"))
