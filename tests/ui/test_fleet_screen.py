"""The fleet's screen: rows, money, order, filter, and what is said when something is wrong."""

from __future__ import annotations

from fractions import Fraction

import pytest
from textual import events

from agent import wire
from tests.support.fleets import AT, NOW, Clock, StubCatalog, gpu, idle_gpu, lost_gpu, many, put, sample, small_fleet
from tests.support.screens import line_with, make_app, press, running, table, text, tick
from tui.fleet import Fleet
from tui.format import usd
from tui.ui.panes.header import Costs


async def test_80x24_shows_every_node_with_its_money_and_the_keys() -> None:
    app, _ = make_app()
    async with running(app):
        shown = text(app)
        for view in app.fleet:
            assert view.name in shown
        assert "$16.39" in line_with(app, "a100-half")
        assert "+5 hidden" in shown and "q quit" in shown
        assert len(shown.split("\n")) == 24


async def test_200x60_hides_no_column() -> None:
    app, _ = make_app()
    async with running(app, (200, 60)):
        assert "hidden" not in text(app)
        assert "use1-az4" in line_with(app, "v100-broken")


async def test_states_are_words_and_ages_not_only_colours() -> None:
    app, _ = make_app()
    async with running(app):
        assert "lost" in line_with(app, "h100-gone") and "3m" in line_with(app, "h100-gone")
        assert "stale" in line_with(app, "t4-stale") and "8s" in line_with(app, "t4-stale")
        assert "live" in line_with(app, "a100-busy") and "now" in line_with(app, "a100-busy")
        assert "✗" in line_with(app, "v100-broken")
        assert "87%" in line_with(app, "h100-gone"), "the last values stay"


async def test_a_node_that_falls_silent_becomes_stale_and_then_lost_by_itself() -> None:
    app, clock = make_app()
    async with running(app) as pilot:
        await tick(app, pilot, clock, 5)
        assert "stale" in line_with(app, "a100-busy")
        await tick(app, pilot, clock, 20)
        assert "lost" in line_with(app, "a100-busy")
        assert line_with(app, "RACKRATE").split("GPUs")[0].count("0 live") == 1


async def test_the_header_sums_all_nodes_and_the_status_exactly_the_rows_shown() -> None:
    app, _ = make_app()
    async with running(app) as pilot:
        whole = app.fleet.totals(NOW)
        assert f"~{usd(whole.usd_per_hour)}/h" in line_with(app, "now ")
        await press(pilot, "slash", *"bob", "enter")
        part = app.fleet.totals(NOW, ["a100-half"])
        status = line_with(app, "/bob")
        assert f"1 node  {usd(part.usd_per_hour)}/h" in status and usd(part.idle_usd_per_hour) in status
        assert f"~{usd(whole.usd_per_hour)}/h" in line_with(app, "now "), "the header stays"


async def test_free_gpus_by_model_stand_in_the_header_where_there_is_room() -> None:
    fleet = small_fleet()
    put(fleet, "l4", tuple(idle_gpu(i, node="l4") for i in range(2)), now=NOW)
    put(fleet, "t4", (gpu(0, users=(), model="Tesla T4"), gpu(1, users=(), model="Tesla T4"), gpu(2, model="Tesla T4")))
    app, _ = make_app(fleet)
    async with running(app, (120, 30)) as pilot:
        assert "free 6 A100 · 2 T4" in text(app)
        await pilot.resize_terminal(80, 24)
        await pilot.pause()
        assert "free" in text(app), "shorter"


async def test_a_node_of_sixteen_gpus_shows_each_where_there_is_room_and_pairs_where_there_is_not() -> None:
    fleet = small_fleet()
    gpus = tuple(idle_gpu(i, node="big") if i == 4 else lost_gpu(i, node="big") if i == 15 else gpu(i, node="big", util=1.0) for i in range(16))
    put(fleet, "big", gpus, drain=wire.Drain(since=AT, by="ada"))
    app, _ = make_app(fleet)
    async with running(app, (140, 30)) as pilot:
        assert "████○██████████✗" in line_with(app, "big ") and "drain" in line_with(app, "big ")
        await pilot.resize_terminal(80, 24)
        await pilot.pause()
        await pilot.pause()
        assert "██▄████✗" in line_with(app, "big ")


async def test_costs_are_unknown_until_the_ledger_was_read_and_partial_ones_say_so() -> None:
    app, _ = make_app()
    async with running(app) as pilot:
        assert "today –   month –" in text(app)
        app.costs = Costs(today=Fraction("1234.5"), month=Fraction("20000"), partial=True)
        app.redraw()
        await pilot.pause()
        assert "today ~$1,234.50   month ~$20,000.00" in text(app)


async def test_an_unknown_price_is_a_dash_and_the_sum_is_marked_partial() -> None:
    app, _ = make_app()
    async with running(app, (120, 30)):
        assert "–" in line_with(app, "mystery") and "$" not in line_with(app, "mystery")
        assert "partial: 2 without a price" in text(app)


@pytest.mark.parametrize(("key", "column"), [("1", "state"), ("2", "node"), ("5", "utilization"), ("9", "idle_usd_per_hour")])
async def test_a_digit_sorts_by_its_column_and_again_the_other_way_round(key: str, column: str) -> None:
    app, _ = make_app()
    async with running(app) as pilot:
        if key == "2":
            await press(pilot, "1")
        await press(pilot, key)
        assert table(app).sort_column.id == column
        first = list(table(app).keys)
        await press(pilot, key)
        assert table(app).keys != first
        assert "▴" in text(app) or "▾" in text(app)


async def test_sorting_by_idle_money_puts_the_most_wasteful_node_first_and_the_unknown_last() -> None:
    app, _ = make_app()
    async with running(app) as pilot:
        await press(pilot, "9")
        assert table(app).keys[:2] == ["a100-half", "v100-broken"]
        assert set(table(app).keys[-2:]) == {"mystery", "never"}
        assert "IDLE $/H▾" in text(app)


async def test_s_and_S_walk_through_the_columns_and_r_reverses() -> None:
    app, _ = make_app()
    async with running(app) as pilot:
        await press(pilot, "s")
        assert table(app).sort_column.id == "instance_type"
        assert "by TYPE" in text(app), "its title is hidden, so the status says it"
        await press(pilot, "S")
        assert table(app).sort_column.id == "node"
        before = list(table(app).keys)
        await press(pilot, "r")
        assert table(app).keys == before[::-1]


async def test_the_cursor_stays_on_its_node_when_the_order_changes() -> None:
    app, _ = make_app()
    async with running(app) as pilot:
        await press(pilot, "down", "down")
        key = table(app).cursor_key
        await press(pilot, "9", "r", "5")
        assert table(app).cursor_key == key
        assert line_with(app, str(key)).startswith("▌")


async def test_the_order_holds_still_after_a_move_while_values_go_on() -> None:
    app, clock = make_app(many(10))
    async with running(app) as pilot:
        await press(pilot, "5", "down")
        order = list(table(app).keys)
        assert "order held 3s" in text(app)
        name = order[0]
        app.fleet.apply(name, wire.SampleEvent(sample=sample(name, (gpu(0, util=0.0),))), clock.at)
        await tick(app, pilot, clock, 2.5)
        assert table(app).keys == order
        assert " 0%" in line_with(app, name)
        await tick(app, pilot, clock, 2.5)
        assert table(app).keys != order
        assert "order held" not in text(app)


async def test_the_filter_works_while_it_is_typed_and_esc_clears_it() -> None:
    app, _ = make_app()
    async with running(app) as pilot:
        await press(pilot, "slash", *"state:idle")
        assert table(app).keys == ["a100-half"]
        await press(pilot, "enter")
        assert table(app).has_focus and "/state:idle" in text(app)
        await press(pilot, "escape")
        assert len(table(app).keys) == len(app.fleet)


async def test_a_wrong_filter_says_what_is_wrong_and_keeps_the_one_before() -> None:
    app, _ = make_app()
    async with running(app) as pilot:
        await press(pilot, "slash", *"bob xy:q")
        assert "unknown key `xy`" in text(app)
        assert table(app).keys == ["a100-half"] or not table(app).keys
        await press(pilot, *["backspace"] * 5)
        assert "unknown key" not in text(app) and table(app).keys == ["a100-half"]


async def test_filters_of_before_come_back_with_up() -> None:
    app, _ = make_app()
    async with running(app) as pilot:
        await press(pilot, "slash", *"user:bob", "enter", "escape")
        assert len(table(app).keys) == len(app.fleet)
        await press(pilot, "slash", "up")
        assert table(app).keys == ["a100-half"]
        await press(pilot, "down")
        assert len(table(app).keys) == len(app.fleet)


async def test_esc_while_typing_clears_and_leaves_the_line() -> None:
    app, _ = make_app()
    async with running(app) as pilot:
        await press(pilot, "slash", *"bob", "escape")
        assert table(app).has_focus and len(table(app).keys) == len(app.fleet)


async def test_letters_typed_into_the_filter_do_nothing_else() -> None:
    app, _ = make_app()
    async with running(app) as pilot:
        await press(pilot, "slash", *"qatwr?")
        assert app.is_running and len(app.screen_stack) == 1 and app.return_code is None


async def test_no_match_says_how_to_get_out() -> None:
    app, _ = make_app()
    async with running(app) as pilot:
        await press(pilot, "slash", *"zzz", "enter")
        assert "No node matches" in text(app) and "0 nodes" in text(app)
        await press(pilot, "enter", "down", "home")


async def test_an_empty_fleet_says_how_to_add_a_node() -> None:
    app, _ = make_app(Fleet(StubCatalog()))  # type: ignore[arg-type]
    async with running(app) as pilot:
        assert "rackrate add URL" in text(app)
        await press(pilot, "enter", "down", "a", "escape", "s")


async def test_a_node_that_cannot_be_reached_tells_its_error_when_selected() -> None:
    app, _ = make_app()
    async with running(app) as pilot:
        table(app).move_to(table(app).position("h100-gone"))
        await pilot.pause()
        assert "h100-gone: 127.0.0.1:9477 is not reachable" in text(app)


async def test_an_unknown_key_is_answered_with_a_hint() -> None:
    app, clock = make_app()
    async with running(app) as pilot:
        await press(pilot, "x")
        assert "x does nothing here; ? shows the keys." in text(app)
        await tick(app, pilot, clock, 5)
        assert "does nothing here" not in text(app)


async def test_w_shows_the_hidden_columns_and_comes_back() -> None:
    app, _ = make_app()
    async with running(app) as pilot:
        seen = set()
        for _ in range(3):
            seen |= {title.strip() for _, title, _, _ in table(app).titles}
            await press(pilot, "w")
        assert {"TYPE", "BUY", "USERS", "POWER", "WHERE", "IDLE $/H", "NODE"} <= seen
        assert "IDLE $/H" in text(app)


async def test_the_node_under_the_cursor_is_shown_below_where_there_is_room() -> None:
    app, _ = make_app()
    async with running(app, (100, 30)) as pilot:
        await press(pilot, "down")
        assert "bob · vision" in text(app) and "nobody" in text(app)
        await pilot.resize_terminal(99, 30)
        await pilot.pause()
        assert "bob · vision" not in text(app)


async def test_the_detail_leaves_most_rows_to_a_long_table() -> None:
    app, _ = make_app(many(300))
    async with running(app, (200, 60)):
        assert len(table(app).in_view) >= 40
        assert "ada · vision" in text(app)


async def test_paging_and_the_ends_reach_every_node() -> None:
    app, _ = make_app(many(100))
    async with running(app) as pilot:
        await press(pilot, "end")
        assert table(app).cursor_key == "node-0099" and "node-0099" in text(app)
        await press(pilot, "pageup")
        assert "node-0099" in text(app) or table(app).cursor_key < "node-0099"
        await press(pilot, "home")
        assert table(app).cursor_key == "node-0000" and "node-0000" in text(app)
        await press(pilot, "pagedown", "pagedown")
        assert line_with(app, str(table(app).cursor_key)).startswith("▌")


async def test_the_wheel_scrolls_and_a_click_selects() -> None:
    app, _ = make_app(many(100))
    async with running(app) as pilot:
        await pilot.click("#nodes", offset=(10, 5))
        assert table(app).cursor_key == "node-0004"
        await pilot._post_mouse_events([events.MouseScrollDown], "#nodes", (10, 5))
        await pilot.pause()
        assert round(table(app).scroll_y) > 0
        assert "node-0000" not in text(app)


async def test_clicking_a_title_sorts_and_clicking_twice_opens() -> None:
    app, _ = make_app()
    async with running(app) as pilot:
        x = text(app).split("\n")[2].index("UTIL")
        await pilot.click("#nodes", offset=(x, 0))
        assert table(app).sort_column.id == "utilization"
        await pilot.click("#nodes", offset=(10, 1), times=2)
        await pilot.pause()
        assert len(app.screen_stack) == 2


async def test_rows_equal_the_model_after_many_changes_and_scrolls() -> None:
    """Only what changed is repainted: the result must be the same as painting everything."""
    app, clock = make_app(many(80))
    async with running(app, (120, 29)) as pilot:
        for turn in range(12):
            for number in range(turn % 3, 80, 3):
                name = f"node-{number:04}"
                gpus = tuple(
                    gpu(i, node=name, util=(turn * 13 + number) % 100 / 100) if (i + turn) % 4 else idle_gpu(i, node=name)
                    for i in range(8)
                )
                app.fleet.apply(name, wire.SampleEvent(sample=sample(name, gpus)), clock.at + 1)
            if turn == 5:
                await press(pilot, "end")
            await tick(app, pilot, clock)
        painted = text(app)
        table(app).forget()
        table(app).refresh()
        await pilot.pause()
        assert text(app) == painted


async def test_the_same_state_again_repaints_nothing() -> None:
    app, clock = make_app(many(50))
    async with running(app, (120, 40)) as pilot:
        await tick(app, pilot, clock, 0)
        painted: list[object] = []
        app.screen._compositor_refresh = lambda: painted.append(1)  # type: ignore[method-assign]
        table(app).update(clock())
        assert not table(app)._repaint_regions
        assert not painted


async def test_a_dead_node_does_not_move_the_others() -> None:
    app, clock = make_app()
    async with running(app) as pilot:
        before = [line for line in text(app).split("\n") if "a100" in line]
        app.fleet.failed("t4-stale", "the agent closed the stream")
        await tick(app, pilot, clock)
        assert [line for line in text(app).split("\n") if "a100" in line] == before


async def test_a_node_that_appears_later_is_in_the_table_within_two_seconds() -> None:
    app, clock = make_app()
    async with running(app) as pilot:
        put(app.fleet, "zz-new", (gpu(0),), now=clock.at)
        await tick(app, pilot, clock, 2.1)
        assert "zz-new" in text(app)


async def test_outside_text_cannot_send_escapes_to_the_terminal() -> None:
    fleet = Fleet(StubCatalog())  # type: ignore[arg-type]
    evil = "x\x1b[2J\x9b"
    put(
        fleet,
        evil,
        (gpu(0, users=(evil,), model=evil),),
        cloud=evil,
        zone=evil,
        instance_type=evil,
        tags={evil: evil},
        gpu_reason=evil,
    )
    fleet.failed(evil, evil)
    app, _ = make_app(fleet, Clock())
    async with running(app, (200, 60)) as pilot:
        for keys in ((), ("enter",), ("escape", "a")):
            await press(pilot, *keys)
            assert not {"\x1b", "\x9b", "\x07"} & set(text(app))
