"""Rows that change their place: the cursor, the marks and what an action is for stay with their rows."""

from __future__ import annotations

from random import Random

import pytest

from agent import wire
from tests.support.fleets import gpu, idle_gpu, many, sample
from tests.support.jobs import job, job_fleet, tell
from tests.support.screens import make_app, press, running, table, text, tick
from tui.fleet import Fleet
from tui.groups import is_group
from tui.ui.screens.jobs import JobsScreen
from tui.ui.screens.node import NodeScreen
from tui.ui.widgets.arranged_table import HOLD_SECONDS

NODES = 60
CHANGES = 10
"""A step of a tenth of a second: a hundred sort keys a second."""
SORTS = ("1", "2", "4", "5", "7", "8", "9", "r", "s")


def change(fleet: Fleet, rng: Random, at: float) -> None:
    """Some nodes get other values in every column that can be sorted by."""
    for name in rng.sample([view.name for view in fleet], CHANGES):
        gpus = tuple(
            gpu(i, node=name, util=rng.random(), users=(rng.choice(("ada", "bob", "cy")),)) if rng.random() < 0.7 else idle_gpu(i, node=name)
            for i in range(rng.choice((4, 8)))
        )
        fleet.apply(name, wire.SampleEvent(sample=sample(name, gpus)), at)


@pytest.mark.parametrize(("seed", "by"), [(1, ""), (3, "user")])
async def test_the_cursor_and_the_marks_stay_with_their_rows_while_a_hundred_sort_keys_a_second_change(seed: int, by: str) -> None:
    rng, orders = Random(seed), set[tuple[str, ...]]()
    app, clock = make_app(many(NODES))
    async with running(app, (120, 28)) as pilot:
        rows = table(app)
        if by:
            app.screen.action_group_by(by)  # type: ignore[attr-defined]
        await press(pilot, "5")
        for _ in range(32):
            before, marks, order = rows.cursor_key, set(rows.marks), list(rows.keys)
            held = rows.held_seconds(clock())
            change(app.fleet, rng, clock.at)
            await tick(app, pilot, clock, rng.choice((0.1, 0.1, 0.1, HOLD_SECONDS + 0.1)))
            assert rows.marks == marks and (rows.cursor_key == before or is_group(before))
            if held and rows.held_seconds(clock()):
                assert rows.keys == order, "the order holds still while somebody moves"
            orders.add(tuple(rows.keys))
            key = rng.choice(("down", "up", "down", "pagedown", "space", rng.choice(SORTS), "nothing"))
            place, order, under, marks = rows.position(rows.cursor_key), list(rows.keys), rows.cursor_key, set(rows.marks)
            targets = rows.keys_under(under)
            if key != "nothing":
                await pilot.press(key)
            match key:
                case "down" | "up":
                    step = 1 if key == "down" else -1
                    assert rows.cursor_key == order[max(0, min(len(order) - 1, place + step))]
                case "space":
                    assert rows.marks == (marks - set(targets) if set(targets) <= marks else marks | set(targets))
                case "pagedown" | "nothing":
                    pass
                case _:
                    assert rows.cursor_key == under and rows.marks == marks
            if rng.random() < 0.1 and not is_group(rows.cursor_key):
                under = rows.cursor_key
                change(app.fleet, rng, clock.at)
                await press(pilot, "enter")
                assert isinstance(app.screen, NodeScreen) and under in text(app).split("\n")[0] + text(app).split("\n")[1]
                await press(pilot, "escape")
            assert set(rows.targets()) == (rows.marks or set(rows.keys_under(rows.cursor_key)))
    assert len(orders) > 5, "the order did change"


async def test_the_dialog_names_the_job_that_was_under_the_cursor_when_the_key_was_pressed() -> None:
    rng = Random(7)
    fleet = job_fleet()
    tell(fleet, *(job(20 + n, name=f"run-{n:02}") for n in range(20)))
    app, clock = make_app(fleet)
    async with running(app, (120, 40)) as pilot:
        await press(pilot, "j", "slash", *"state:running", "enter", "7")
        screen = app.screen
        assert isinstance(screen, JobsScreen)
        for _ in range(5):
            tell(fleet, *(job(20 + n, name=f"run-{n:02}", cost=rng.randrange(1000)) for n in rng.sample(range(20), 10)), now=clock.at)
            await tick(app, pilot, clock, 3.1)
            await press(pilot, rng.choice(("up", "down", "down")))
            under = screen.table.chosen
            assert under is not None
            tell(fleet, *(job(20 + n, name=f"run-{n:02}", cost=rng.randrange(1000)) for n in range(20)), now=clock.at)
            await press(pilot, "x")
            assert app.screen is not screen and under.job.id in text(app)
            await press(pilot, "escape")


async def test_F_makes_the_view_go_with_the_row() -> None:
    app, clock = make_app(many(100))
    async with running(app, (100, 24)) as pilot:
        rows = table(app)
        await press(pilot, "5", "home", "F")
        name = rows.cursor_key
        assert "follows" in text(app) and rows.position(name) == 0
        app.fleet.apply(str(name), wire.SampleEvent(sample=sample(str(name), tuple(gpu(i, util=0.0) for i in range(8)))), clock.at + 5)
        await tick(app, pilot, clock, 5)
        assert rows.position(name) > 50 and rows.position(name) in rows.in_view
        await press(pilot, "F", "home", "F", "F")
        top, name = rows.keys[0], rows.cursor_key
        assert "follows" not in text(app) and top == name
        app.fleet.apply(top, wire.SampleEvent(sample=sample(top, tuple(gpu(i, util=0.0) for i in range(8)))), clock.at + 5)
        await tick(app, pilot, clock, 5)
        assert rows.cursor_key == name and rows.position(name) not in rows.in_view, "without it the view stays where it is"
