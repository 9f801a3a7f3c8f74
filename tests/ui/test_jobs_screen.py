"""The screen of all jobs: rows, order, filter, what can be done to them, and that only visible rows are built."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import Any

import pytest

from agent import wire
from tests.support.acting import acting, confirm
from tests.support.fleets import NOW, StubCatalog, gpu, many, put
from tests.support.jobs import FakeNode, asked_nodes, ended, ident, job, job_fleet, notice, queued, tell
from tests.support.screens import line_with, make_app, press, running, text, tick
from tui.fleet import Fleet
from tui.ui.app import RackrateApp
from tui.ui.screens.confirm import ConfirmScreen
from tui.ui.screens.job import JobScreen
from tui.ui.screens.jobs import JobsScreen
from tui.ui.widgets.jobs_table import JobsTable


def jobs_table(app: RackrateApp) -> JobsTable:
    screen = next(screen for screen in app.screen_stack if isinstance(screen, JobsScreen))
    return screen.table


def app_of(fleet: Fleet | None = None, **options: Any) -> tuple[RackrateApp, FakeNode]:
    fleet = job_fleet() if fleet is None else fleet
    node = FakeNode("gpu-01", (view.job for view in fleet["gpu-01"].jobs) if "gpu-01" in fleet else ())
    app, _ = make_app(fleet, **asked_nodes(node), **options)
    app._import_slowly = lambda: None  # type: ignore[method-assign]
    return app, node


async def until(holds: Any, seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.01)


async def test_80x24_shows_state_name_node_gpus_time_and_money_and_the_keys() -> None:
    app, _ = make_app(job_fleet())
    async with running(app) as pilot:
        await press(pilot, "j")
        row = line_with(app, "train-1")
        for part in ("running", "gpu-01", "2", "3h12m", "$26.21"):
            assert part in row
        assert "n new" in text(app) and "x stop" in text(app) and "q quit" in text(app)
        assert "9 jobs  3 running  2 queued  $16.38/h" in text(app)
        assert len(text(app).split("\n")) == 24


async def test_200x60_hides_no_column() -> None:
    app, _ = make_app(job_fleet())
    async with running(app, (200, 60)) as pilot:
        await press(pilot, "j")
        assert "hidden" not in text(app)
        row = line_with(app, "train-7")
        for part in ("ended", "dan", "vision", "oom", ident(7), "the kernel killed 1"):
            assert part in row


async def test_20x5_still_shows_states_and_names() -> None:
    app, _ = make_app(job_fleet())
    async with running(app, (20, 5)) as pilot:
        await press(pilot, "j")
        assert "running  train-1" in text(app)
        await press(pilot, "end")
        assert "train-9" in text(app)


async def test_the_whole_reason_of_the_job_under_the_cursor_has_a_line() -> None:
    app, _ = make_app(job_fleet())
    async with running(app) as pilot:
        await press(pilot, "j", "down", "down", "down")
        assert f" {ident(4)}  waits for 2 free GPUs: all 8 are held" in text(app)
        assert "9 jobs" in text(app), "the sums stay"


async def test_time_and_cost_of_a_running_job_go_on_each_second() -> None:
    fleet = job_fleet()
    tell(fleet, job(1, usd_per_hour=Decimal(36), cost=Decimal(1)))
    app, clock = make_app(fleet)
    async with running(app) as pilot:
        await press(pilot, "j")
        await tick(app, pilot, clock, 10)
        assert "$1.10" in line_with(app, "train-1")


async def test_the_filter_and_the_order_have_the_keys_of_the_fleet() -> None:
    app, _ = make_app(job_fleet())
    async with running(app, (160, 40)) as pilot:
        await press(pilot, "j", "slash", *"state:failed")
        assert jobs_table(app).keys == [f"gpu-01 {ident(7)}", f"gpu-01 {ident(8)}"]
        await press(pilot, "enter")
        assert "/state:failed" in text(app) and jobs_table(app).has_focus
        await press(pilot, "escape", "5")
        assert jobs_table(app).keys[0] == f"gpu-01 {ident(5)}" and "GPUS▾" in text(app)
        await press(pilot, "r", "s", "S", "w", "9")
        assert jobs_table(app).sort_column.id == "id"
        await press(pilot, "escape")
        assert len(app.screen_stack) == 1


async def test_a_wrong_filter_says_which_keys_jobs_have() -> None:
    app, _ = make_app(job_fleet())
    async with running(app, (120, 30)) as pilot:
        await press(pilot, "j", "slash", *"region:x")
        assert "unknown key `region`" in text(app) and "cause" in text(app)


async def test_from_a_node_its_own_jobs_are_shown_first() -> None:
    fleet = job_fleet()
    tell(fleet, job(50, "gpu-02"))
    app, _ = make_app(fleet)
    async with running(app) as pilot:
        await press(pilot, "down", "enter", "j")
        assert jobs_table(app).keys == [f"gpu-02 {ident(50)}"] and "/node:gpu-02" in text(app)
        await press(pilot, "escape")
        assert len(jobs_table(app).keys) == 10, "the filter can be cleared"


async def test_the_cursor_stays_on_its_job_when_others_come_and_go() -> None:
    app, clock = make_app(job_fleet())
    async with running(app) as pilot:
        await press(pilot, "j", "down", "down")
        key = jobs_table(app).cursor_key
        tell(app.fleet, ended(3), queued(60), job(61))
        await tick(app, pilot, clock, 5)
        assert jobs_table(app).cursor_key == key and line_with(app, "sweep").startswith("▌")
        assert len(jobs_table(app).keys) == 11


async def test_a_thousand_nodes_with_twenty_jobs_each_build_only_the_visible_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = many(1000, 1)
    for number, view in enumerate(fleet):
        for place in range(20):
            fleet.apply(view.name, wire.JobEvent(job=job(number * 20 + place, view.name)), NOW)
    monkeypatch.setattr("tui.ui.app.TICK_SECONDS", 3600.0)  # only the test's own ticks are counted
    app, clock = make_app(fleet)
    built: list[str] = []
    real = JobsTable.cells_of
    monkeypatch.setattr(JobsTable, "cells_of", lambda table, key: built.append(key) or real(table, key))
    async with running(app, (120, 40)) as pilot:
        await press(pilot, "j")
        assert len(jobs_table(app).keys) == 20_000
        assert len(set(built)) <= 40
        arranged: list[int] = []
        order = JobsTable.order_rows
        monkeypatch.setattr(JobsTable, "order_rows", lambda table, now: arranged.append(1) or order(table, now))
        built.clear()
        for _ in range(4):
            await tick(app, pilot, clock, 1)
        assert len(built) <= 4 * 40 and not arranged, "nothing came or went: nothing is sorted"
        tell(fleet, ended(5, node="node-0000"))
        await tick(app, pilot, clock, 3)
        assert len(arranged) == 1


async def test_rows_equal_the_model_after_many_changes() -> None:
    app, clock = make_app(job_fleet())
    async with running(app, (160, 40)) as pilot:
        await press(pilot, "j")
        for turn in range(6):
            tell(
                app.fleet,
                *(
                    job(number, state=("queued", "running", "ended")[(turn + number) % 3], cause="exit:1")
                    for number in range(9)
                ),
            )
            await tick(app, pilot, clock)
        await tick(app, pilot, clock, 5)
        painted = text(app)
        jobs_table(app).forget()
        jobs_table(app).refresh()
        await pilot.pause()
        assert text(app) == painted


async def test_without_jobs_the_screen_says_how_to_submit_one_and_simulated_nodes_say_that_they_run_none() -> None:
    app, _ = make_app()
    async with running(app) as pilot:
        await press(pilot, "j")
        assert "No jobs yet." in text(app) and "rackrate run -- COMMAND" in text(app)
        await press(pilot, "enter", "x", "k", "y", "g", "down")
        assert app.is_running and isinstance(app.screen, JobsScreen)
    fleet = Fleet(StubCatalog())  # type: ignore[arg-type]
    put(fleet, "sim", (gpu(0),), simulated=True)
    app, _ = make_app(fleet)
    async with running(app) as pilot:
        await press(pilot, "j")
        assert "Simulated nodes run no jobs" in text(app)


async def test_opening_the_screen_asks_each_real_node_once_for_what_ended_before() -> None:
    app, node = app_of()
    node.known[ident(77)] = ended(77)
    async with running(app) as pilot:
        await press(pilot, "j")
        await until(lambda: app.fleet.job("gpu-01", ident(77)) is not None)
        await press(pilot, "escape", "j")
        assert node.calls.count(("jobs",)) == 1


async def test_an_agents_problem_with_jobs_is_said() -> None:
    fleet = Fleet(StubCatalog())  # type: ignore[arg-type]
    put(fleet, "gpu-01", (gpu(0),))
    fleet.seed_jobs("gpu-01", wire.JobList(node="gpu-01", jobs=(), problem="jobs are switched off in agent.toml"), NOW)
    app, _ = make_app(fleet)
    async with running(app, (100, 30)) as pilot:
        await press(pilot, "j")
        assert "gpu-01: jobs are switched off in agent.toml" in text(app)


# -- what can be done ----------------------------------------------------------------------------------------


async def test_stopping_asks_first_and_says_what_will_happen_and_enter_alone_does_nothing() -> None:
    app, node = app_of()
    async with running(app, (100, 30)) as pilot:
        await press(pilot, "j", "down", "x")
        shown = " ".join(text(app).replace("│", " ").split())
        for part in (f"Stop job {ident(1)} (train-1) on gpu-01?", "ran for 3h12m and cost $26.21", "TERM", "SIGTERM and",
                     f"rackrate job cancel {ident(1)}"):  # fmt: skip
            assert part in shown
        await press(pilot, "enter")
        assert not isinstance(app.screen, ConfirmScreen)
        await press(pilot, "x", "escape")
        assert not [call for call in node.calls if call[0] == "cancel"]


async def test_what_the_node_refuses_is_a_sentence() -> None:
    app, clock, nodes = acting()
    nodes["gpu-01"].refusals["cancel"] = "job belongs to ada\x1b[2J"
    async with running(app, (100, 30)) as pilot:
        await press(pilot, "j", "down", "x")
        await confirm(app, pilot, clock)
        assert "not asked to stop: train-1: job belongs to ada" in text(app)
        assert "\x1b" not in text(app)


async def test_a_node_that_cannot_be_asked_says_so() -> None:
    app, clock = make_app(job_fleet())
    async with running(app, (100, 30)) as pilot:
        await press(pilot, "j", "down", "x")
        await confirm(app, pilot, clock)
        assert "cannot be asked from here" in text(app)


async def test_an_ended_job_and_one_in_the_queue() -> None:
    app, _ = app_of()
    async with running(app, (100, 30)) as pilot:
        await press(pilot, "j", "end", "x")
        assert "has ended: cancelled" in text(app)
        await press(pilot, "k")
        assert "Only a job that runs can be signalled." in text(app)
        jobs_table(app).move_to(3)
        await press(pilot, "x")
        assert "taken out of the queue" in text(app)


async def test_the_id_is_copied_and_g_goes_to_the_node() -> None:
    app, _ = app_of()
    async with running(app, (100, 30)) as pilot:
        await press(pilot, "j", "down", "y")
        assert app.clipboard == ident(1) and f"copied {ident(1)}" in text(app)
        await press(pilot, "g")
        assert app.screen.node == "gpu-01"  # type: ignore[attr-defined]


async def test_a_click_twice_and_enter_open_the_job() -> None:
    app, _ = app_of()
    async with running(app, (100, 30)) as pilot:
        await press(pilot, "j")
        await pilot.click("#jobs", offset=(10, 2), times=2)
        await pilot.pause()
        assert isinstance(app.screen, JobScreen) and app.screen.ident == ident(1)
        await press(pilot, "escape", "enter")
        assert isinstance(app.screen, JobScreen)


# -- where jobs show elsewhere ---------------------------------------------------------------------------------


async def test_the_fleet_shows_running_and_queued_jobs_and_the_notice() -> None:
    app, clock = make_app(job_fleet())
    async with running(app, (120, 30)) as pilot:
        assert "3+2" in line_with(app, "▌  live   gpu-01") and "!1m43s" in line_with(app, "○○○○")
        assert "1 notice" in text(app) and "jobs 3 running · 2 queued" in text(app)
        await press(pilot, "down")
        assert "gpu-02: terminate in 1m43s: save what must not be lost" in text(app)
        await tick(app, pilot, clock, 2)
        assert "!1m41s" in line_with(app, "○○○○")
        await press(pilot, "a")
        row = line_with(app, "cloud notice")
        assert "critical" in row and "gpu-02" in row and "terminate in 1m4" in row


async def test_without_any_job_the_fleet_has_no_column_for_them() -> None:
    app, clock = make_app(many(3))
    async with running(app, (120, 30)) as pilot:
        assert "JOBS" not in text(app)
        tell(app.fleet, job(1, "node-0001"))
        await tick(app, pilot, clock)
        assert "JOBS" in text(app) and "  1 " in line_with(app, "node-0001")


async def test_the_node_lists_its_jobs_and_its_notice() -> None:
    fleet = job_fleet()
    fleet.apply("gpu-01", wire.NoticeEvent(notice=notice(kind="rebalance", at=None)), NOW)
    app, _ = make_app(fleet)
    async with running(app, (140, 60)) as pilot:
        await press(pilot, "enter")
        shown = text(app)
        assert "aws notice: rebalance: save what must not be lost" in shown and "3 running, 2 queued" in shown
        assert "train-1" in line_with(app, ident(1)) and "oom" in line_with(app, ident(7))


async def test_many_jobs_of_a_node_leave_room_for_the_rest() -> None:
    fleet = job_fleet()
    tell(fleet, *(queued(number) for number in range(100, 150)))
    app, _ = make_app(fleet)
    async with running(app, (140, 60)) as pilot:
        await press(pilot, "enter")
        assert "more: j" in text(app)


async def test_text_of_jobs_cannot_send_escapes_to_the_terminal() -> None:
    evil = "x\x1b[2J\x9b\x07"
    fleet = job_fleet()
    tell(fleet, job(1, name=evil, user=evil, project=evil, command=(evil,), limits={evil: evil}, not_enforced=(evil,),
                    warnings=(evil,), left_behind=(evil,), evidence=evil, workdir=evil, secrets=(evil,), gpus=(evil,),
                    after=(evil,), gang=evil, attempts=(wire.Attempt(number=1, cause=evil, evidence=evil),) * 2))  # fmt: skip
    tell(fleet, queued(2, reason=evil, cause=evil), ended(3, evil, evidence=evil), job(4, state="stopping", stopping=evil))
    fleet.apply("gpu-02", wire.NoticeEvent(notice=notice(message=evil, cloud=evil)), NOW)
    app, _ = make_app(fleet)
    async with running(app, (200, 60)) as pilot:
        for keys in (
            (),
            ("down",),
            ("a",),
            ("escape", "enter"),
            ("escape", "j"),
            ("enter",),
            ("escape", "down", "enter"),
            ("escape", "x"),
        ):
            await press(pilot, *keys)
            assert not {"\x1b", "\x9b", "\x07"} & set(text(app)), keys
