"""The way through the app: crumbs, back and forward, and screens that are found as they were left."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.support.fleets import many
from tests.support.jobs import ident, job_fleet
from tests.support.screens import line_with, make_app, press, running, table, text
from tui.ui import actions, colon
from tui.ui.navigation import MOST_DEEP
from tui.ui.places import MOST_REMEMBERED, Place, Trail
from tui.ui.screens import advice, costs, market  # noqa: F401 - else they are imported in a thread, and opened later
from tui.ui.screens.base import PASSING
from tui.ui.widgets.crumbs import crumbs_line
from tui.ui.widgets.lines_view import LinesView


def kinds(app) -> list[str]:
    return [place.kind for place in app.path()]


async def test_crumbs_tell_the_way_and_back_and_forward_go_it() -> None:
    app, _ = make_app(job_fleet())
    async with running(app, (120, 36)) as pilot:
        assert not app.screen.query("#crumbs"), "the fleet alone is no way"
        await press(pilot, "enter", "j", "enter")
        assert text(app).split("\n")[0].strip().startswith("fleet › gpu-01 › jobs node:gpu-01 › job ")
        here = app.path()
        await press(pilot, "alt+left", "minus")
        assert kinds(app) == ["fleet", "node"]
        await press(pilot, "alt+right", "plus")
        assert app.path() == here
        await press(pilot, "plus")
        assert app.path() == here and "nothing further" in text(app)
        await press(pilot, "escape", "escape", "escape", "escape")
        assert kinds(app) == ["fleet"], "Esc clears the filter, and goes up"
        await press(pilot, "minus", "minus", "minus")
        assert app.path() == here, "and back goes where one was, step by step"
        await pilot.click("#crumbs", offset=(10, 0))
        await pilot.pause()
        assert kinds(app) == ["fleet", "node"]
        await pilot.resize_terminal(80, 24)
        await pilot.pause()
        assert not app.screen.query_one("#crumbs").display


async def test_a_screen_stands_once_on_the_way_and_the_way_is_never_deep() -> None:
    app, _ = make_app(many(14))
    async with running(app) as pilot:
        for _ in range(10):
            app.open_node("sim-001" if "sim-001" in app.fleet else next(iter(app.fleet)).name)
        await pilot.pause()
        assert len(app.screen_stack) == 2
        for view in list(app.fleet):
            app.open_node(view.name)
            await pilot.pause()
            assert len(app.screen_stack) <= MOST_DEEP
        last = app.path()[-1]
        await press(pilot, "minus")
        assert app.path()[-1] != last and app.path()[-1].kind == "node", "back still goes step by step"
        assert len(app._installed_screens) <= 8 and len(app._registry) < 400


async def test_every_screen_opens_as_it_was_left() -> None:
    app, _ = make_app(job_fleet())
    async with running(app) as pilot:
        await press(pilot, "j", "2", "slash", *"user:ada", "enter", "down", "down")
        jobs = app.screen.table  # type: ignore[attr-defined]
        before = (jobs.cursor_key, jobs.sort_column.id, app.screen.filter_text, list(jobs.keys))  # type: ignore[attr-defined]
        await press(pilot, "enter", "minus")
        app.go_up_to(0)
        await press(pilot, "j")
        assert (jobs.cursor_key, jobs.sort_column.id, app.screen.filter_text, list(jobs.keys)) == before  # type: ignore[attr-defined]
        app.go_up_to(0)
        await press(pilot, "enter")
        app.screen.query_one("#page", LinesView).scroll_to(y=7, animate=False)
        await pilot.pause()
        await press(pilot, "escape", "down", "enter", "escape", "up", "enter")
        await pilot.pause()
        assert app.screen.query_one("#page", LinesView).scroll_y == 7
        assert table(app).cursor_key == "gpu-01"
        await press(pilot, "j")
        await press(pilot, "escape", "escape", "j")
        assert line_with(app, "/node:gpu-01"), "of a node its jobs, although the filter had been cleared"
        assert app.screen.place == Place("jobs", ("node:gpu-01",))  # type: ignore[attr-defined]


async def test_every_screen_is_reached_by_a_key_by_its_word_and_by_the_palette() -> None:
    """What is of one row (a price, a card) is reached from it by Enter, and so by the palette."""
    app, _ = make_app(job_fleet())
    typed = {"node": "node gpu-01", "gpu": "gpu gpu-01 0", "job": f"job {ident(1)}", "curves": f"curves {ident(1)}"}
    async with running(app) as pilot:
        for scope in actions.SCREENS:
            if scope in PASSING and scope != "help":
                continue
            word = next(word for word in colon.WORDS if word.scope == scope)
            app.go_up_to(0)
            app.go_to(colon.read(typed.get(scope, word.name), app.world()))
            for _ in range(3):
                await pilot.pause()
            assert app.screen.SCOPE == scope, scope  # type: ignore[attr-defined]
    for scope in actions.SCREENS:
        opens = {"price": "open", "card": "open", "node": "open", "job": "open", "gpu": "open", "fleet": "back"}.get(scope, scope)
        leads = [action for action in actions.ACTIONS if action.id == opens]
        assert leads and all(action.keys and action.palette for action in leads), scope


def test_crumbs_leave_out_the_beginning_where_there_is_no_room() -> None:
    for cells in range(8, 60):
        line, left_out = crumbs_line(["fleet", "gpu-07", "jobs node:gpu-07", "job 0abc"], cells)
        shown = "".join(part for part, _ in line)
        assert len(shown) <= cells and ("job 0abc" in shown or cells < 16) and shown.startswith(" … › ") == bool(left_out)


@given(st.lists(st.one_of(st.integers(0, 5), st.sampled_from(["back", "forward"])), max_size=120))
def test_a_trail_is_that_of_a_browser(steps: list[int | str]) -> None:
    trail, past, ahead = Trail(), [], []  # type: ignore[var-annotated]
    for step in steps:
        if step == "back":
            found = trail.step(-1)
            assert (found is None) == (len(past) < 2)
            if found is not None:
                ahead.append(past.pop())
                assert found == past[-1]
        elif step == "forward":
            found = trail.step(1)
            assert (found is None) == (not ahead)
            if found is not None:
                past.append(ahead.pop())
                assert found == past[-1]
        else:
            path = (Place("node", (str(step),)),)
            trail.here(path)
            if not past or past[-1] != path:
                past.append(path)
                ahead.clear()
            past = past[-MOST_REMEMBERED:]
        assert len(trail) <= MOST_REMEMBERED


def test_the_way_and_the_signs_of_events_have_an_ascii_form() -> None:
    from tui.ui.glyphs import to_ascii
    from tui.ui.widgets.events_table import SIGNS

    line, _ = crumbs_line(["fleet", "gpu-07", "GPU 3"], 40)
    shown = to_ascii("".join(part for part, _ in line))
    assert shown == " fleet > gpu-07 > GPU 3"
    assert len({to_ascii(sign) for sign in SIGNS.values()}) == 4 and "?" not in {to_ascii(sign) for sign in SIGNS.values()}
