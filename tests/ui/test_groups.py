"""The fleet in groups: they fold, they add up, and marks and the cursor find their way."""

from __future__ import annotations

from fractions import Fraction
from random import Random

from tests.support.fleets import NOW, Clock, small_fleet
from tests.support.screens import line_with, make_app, press, running, table, text, tick
from tests.tui.test_groups import random_fleet
from tui.format import usd
from tui.groups import is_group, key_of


async def test_o_groups_by_one_thing_after_the_other_and_comes_back() -> None:
    app, _ = make_app(random_fleet(Random(1), 12))
    async with running(app, (120, 40)) as pilot:
        seen = []
        for _ in range(8):
            await press(pilot, "o")
            seen.append(table(app).by)
            assert sum(not is_group(key) for key in table(app).keys) == len(app.fleet)
        assert seen == ["cloud", "region", "type", "project", "user", "state", "tag:team", ""]
        await press(pilot, "O")
        assert table(app).by == "tag:team" and "group team" in text(app)
        assert table(app).targets() == [table(app).cursor_key], "the cursor stays on its node"


async def test_a_group_tells_its_sums_and_folds_by_left_enter_and_all_at_once() -> None:
    app, _ = make_app(small_fleet())
    async with running(app, (120, 24)) as pilot:
        app.screen.action_group_by("user")  # type: ignore[attr-defined]
        await press(pilot, "home")
        ada = key_of("user", "ada")
        names = table(app).keys_under(ada)
        assert names == ["a100-busy"] and table(app).keys[:2] == [ada, "a100-busy"]
        part = app.fleet.totals(NOW, names)
        assert usd(part.usd_per_hour) in line_with(app, "ada ") and "8/8" in line_with(app, "ada ") and "▾ 1" in line_with(app, "ada ")
        await press(pilot, "down", "left")
        assert table(app).cursor_key == ada and "a100-busy" not in table(app).keys and "▸ 1" in line_with(app, "ada ")
        whole = app.fleet.totals(NOW)
        assert f"{len(app.fleet)} nodes  ~{usd(whole.usd_per_hour)}/h" in text(app), "what is folded is still counted"
        await press(pilot, "right")
        assert "a100-busy" in table(app).keys
        await press(pilot, "enter")
        assert "a100-busy" not in table(app).keys and len(app.screen_stack) == 1
        await press(pilot, "shift+right", "shift+left")
        assert all(is_group(key) for key in table(app).keys)
        await press(pilot, "o", "O")
        assert all(is_group(key) for key in table(app).keys), "what was folded stays folded"


async def test_space_on_a_group_marks_its_nodes_and_actions_are_for_them() -> None:
    app, clock = make_app(random_fleet(Random(3), 20))
    async with running(app, (120, 40)) as pilot:
        app.screen.action_group_by("tag:team")  # type: ignore[attr-defined]
        red = key_of("tag:team", "red")
        await press(pilot, "shift+left")
        table(app).move_to(table(app).position(red))
        names = table(app).keys_under(red)
        assert table(app).targets() == names, "an action on a group is for its nodes"
        await press(pilot, "space")
        assert table(app).marks == set(names) == set(table(app).targets()) and line_with(app, "red ").startswith(" ●")
        part = app.fleet.totals(NOW, names)
        about = "~" * bool(part.unpriced)
        assert f"● {len(names)} marked:  {about}{usd(part.usd_per_hour)}/h" in text(app)
        await press(pilot, "shift+right")
        table(app).move_to(table(app).position(names[0]))
        await press(pilot, "space")
        assert line_with(app, "red ").startswith(" ○"), "some of it"
        await press(pilot, "escape", "slash", *"tag:blue", "enter")
        await tick(app, pilot, clock, 5)
        assert set(table(app).passing) == set(table(app).keys_under(key_of("tag:team", "blue")))


async def test_groups_are_ordered_by_their_sums_and_their_money_is_that_of_their_nodes() -> None:
    clock = Clock()
    app, _ = make_app(random_fleet(Random(5), 40), clock)
    async with running(app, (160, 60)) as pilot:
        app.screen.action_group_by("type")  # type: ignore[attr-defined]
        await press(pilot, "8")
        groups = [table(app).group(key) for key in table(app).keys if is_group(key)]
        known = [each.totals.usd_per_hour for each in groups if not each.totals.cost_unknown]
        assert known == sorted(known, reverse=True) and groups[-1].totals.cost_unknown
        sums = (sum((view.usd_per_hour or Fraction(0) for view in each.views), Fraction(0)) for each in groups)
        assert [each.totals.usd_per_hour for each in groups] == list(sums)
        await press(pilot, "home")
        assert groups[0].title in text(app).split("─" * 20)[-1], "the group under the cursor is told below"


async def test_the_cursor_goes_to_the_group_when_its_node_moves_into_a_folded_one() -> None:
    app, clock = make_app(small_fleet())
    async with running(app, (120, 24)) as pilot:
        app.screen.action_group_by("state")  # type: ignore[attr-defined]
        table(app).move_to(table(app).position(key_of("state", "lost")))
        await press(pilot, "left")
        table(app).move_to(table(app).position("t4-stale"))
        await tick(app, pilot, clock, 30)
        assert table(app).cursor_key == key_of("state", "lost") and "t4-stale" in table(app).targets()


async def test_without_groups_left_and_right_say_how_to_make_some() -> None:
    app, _ = make_app(small_fleet())
    async with running(app) as pilot:
        await press(pilot, "left")
        assert "o puts the nodes into groups" in text(app)


async def test_groups_fold_and_rows_are_marked_with_the_mouse() -> None:
    app, _ = make_app(small_fleet())
    async with running(app, (100, 24)) as pilot:
        app.screen.action_group_by("user")  # type: ignore[attr-defined]
        await press(pilot, "home")
        ada = key_of("user", "ada")
        await pilot.click("#nodes", offset=(3, 1))
        assert "▸ 1" in line_with(app, "ada ") and table(app).cursor_key == ada
        await pilot.click("#nodes", offset=(3, 1))
        assert "▾ 1" in line_with(app, "ada ")
        await pilot.click("#nodes", offset=(1, 2))
        await pilot.pause()
        assert table(app).targets() == ["a100-busy"] and "● 1 marked:" in text(app)
        await pilot.click("#nodes", offset=(0, 2))
        assert not table(app).marks
