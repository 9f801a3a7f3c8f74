"""The registry of actions: one source for keys, footer, help and palette."""

from __future__ import annotations

import string

import pytest

from tests.support.screens import make_app, press, running, text
from tui.columns import FLEET_COLUMNS
from tui.ui import actions
from tui.ui.screens.help import help_lines


@pytest.mark.parametrize("scope", actions.SCREENS)
def test_no_key_means_two_things_on_one_screen(scope: actions.Scope) -> None:
    keys = [key for action in (*actions.of(scope), *actions.of("app")) for key in action.keys]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize("action", actions.ACTIONS, ids=lambda action: action.id)
def test_every_action_can_be_reached_without_letters(action: actions.Action) -> None:
    without = [key for key in action.keys if key not in string.ascii_letters and not (len(key) > 1 and key in _TYPED)]
    assert without or action.palette or not action.keys


_TYPED = {"slash", "question_mark", "colon", "left_square_bracket", "right_square_bracket"}


@pytest.mark.parametrize("scope", actions.SCREENS)
def test_the_palette_itself_needs_no_letter(scope: actions.Scope) -> None:
    assert any({"f2", "ctrl+p"} & set(action.keys) for action in actions.of(scope) if action.call == "app.palette")


def test_every_action_is_in_the_help_with_its_key() -> None:
    lines = ["".join(part for part, _ in line) for line in help_lines(100)]
    for action in actions.ACTIONS:
        assert any(action.title in line and action.shown in line for line in lines), action.id
    for column in FLEET_COLUMNS:
        assert any(column.title in line for line in lines)


@pytest.mark.parametrize("scope", actions.SCREENS)
def test_the_footer_names_only_what_exists_there(scope: actions.Scope) -> None:
    known = {(action.shown, action.footer) for action in actions.of(scope)}
    assert set(actions.footer(scope)) <= known and actions.footer(scope)


def test_what_changes_something_on_a_node_is_marked_so_and_nothing_else_is() -> None:
    words = ("kill", "stop", "delete", "remove", "signal", "drain", "submit", "send", "pause alerts", "share")
    named = {action.id for action in actions.ACTIONS if any(word in action.title.casefold() for word in words)}
    assert named == {action.id for action in actions.ACTIONS if action.changes} == {
        "cancel", "drain", "mps_share", "pause_alerts", "resubmit", "send", "signal", "submit", "submit_here",
    }  # fmt: skip


@pytest.mark.parametrize("scope", actions.SCREENS)
def test_every_key_is_bound_to_its_action(scope: actions.Scope) -> None:
    """What the actions do is in tests/ui/test_every_action.py."""
    bound = {one.key: one.action for one in actions.bindings(scope)}
    for action in actions.of(scope):
        for key in action.keys:
            assert bound[key] == (f"sort_key({key!r})" if action.id == "sort_column" else action.call)


async def test_the_palette_narrows_and_runs_on_the_screen_below() -> None:
    app, _ = make_app()
    async with running(app) as pilot:
        await press(pilot, "f2", *"alerts")
        assert "Alerts of the whole fleet" in text(app) and "Next theme" not in text(app)
        await press(pilot, "enter")
        assert type(app.screen).__name__ == "AlertsScreen"


async def test_the_palette_can_be_used_with_arrows_and_left_with_esc() -> None:
    app, _ = make_app()
    async with running(app) as pilot:
        await press(pilot, "ctrl+p", *"qui", "down", "up", "enter")
        assert not app.is_running or app.return_code == 0


async def test_an_empty_palette_choice_does_nothing() -> None:
    app, _ = make_app()
    async with running(app) as pilot:
        await press(pilot, "colon", *"zzzz", "enter")
        assert len(app.screen_stack) == 2 and "no screen or command `zzzz`" in text(app), "what is wrong stays to be mended"
        await press(pilot, "escape")
        assert len(app.screen_stack) == 1
        await press(pilot, "colon", "escape")
        assert len(app.screen_stack) == 1
