"""One job: its facts, and its log followed live, read back, and made safe."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from agent import wire
from tests.support.fleets import AT, GIB, NOW
from tests.support.jobs import FakeNode, asked_nodes, ended, ident, job, job_fleet, queued, tell
from tests.support.screens import make_app, press, running, text, tick
from tui.job_log import LogBuffer
from tui.ui.app import RackrateApp
from tui.ui.log_follow import LogFollower
from tui.ui.panes.job import facts
from tui.ui.widgets.log_view import LogView

LINES = [f"step {number:05}" for number in range(12_000)]
LOG = "\n".join(LINES) + "\n"


async def until(holds: Any, seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.01)


def job_app(*jobs: wire.Job, log: str = LOG) -> tuple[RackrateApp, FakeNode, Any]:
    fleet = job_fleet()
    tell(fleet, *jobs)
    node = FakeNode("gpu-01", (view.job for view in fleet["gpu-01"].jobs), log)
    app, clock = make_app(fleet, **asked_nodes(node))
    app._import_slowly = lambda: None  # type: ignore[method-assign]
    return app, node, clock


def log_of(app: RackrateApp) -> LogView:
    return app.screen.query_one(LogView)


def facts_of(each: wire.Job, cells: int = 160, now: float = NOW) -> str:
    fleet = job_fleet()
    tell(fleet, each)
    view = fleet.job("gpu-01", each.id)
    assert view is not None
    lines = facts(view, now, lambda at: f"{at:%H:%M}", cells)
    return "\n".join("".join(part for part, _ in line) for line in lines)


# -- the facts -----------------------------------------------------------------------------------------------


def test_everything_that_is_known_of_a_job_is_there() -> None:
    usage = wire.JobUsage(
        cpu_seconds=86_400.0, memory_peak_bytes=31 * GIB, memory_limit_bytes=64 * GIB, gpu_seconds=23_040.0,
        energy_joules=9.1e6, io_read_bytes=3 * GIB, io_write_bytes=GIB, pids_peak=211, throttled_seconds=4.0,
    )  # fmt: skip
    shown = facts_of(
        job(1, usage=usage, attempt=2, retries=3, time_limit_seconds=8 * 3600.0, budget_usd=Decimal(40), interruptible=True,
            deadline=AT + timedelta(hours=9), not_enforced=("io: the controller is not delegated",), warnings=("data loaders",),
            priority=7, after=("any:0abc00000009",), workdir="/srv/x", secrets=("HF_TOKEN",), log_dropped_lines=12, log_bytes=9,
            left_behind=("1 process could not be killed",),
            attempts=(wire.Attempt(number=1, cause="oom", evidence="killed at 64 GiB", cost=Decimal("2.73"),
                                   started_at=AT - timedelta(hours=4), ended_at=AT - timedelta(hours=3, minutes=40)),
                      wire.Attempt(number=2, cost=Decimal("23.48")))),
    )  # fmt: skip
    for part in ("for 3h12m", "since 10:53", "attempt 2 of 4", "io: the controller is not delegated", "data loaders",
                 "python train.py", "2 GPUs: 0 1", "CPUs 8", "memory 64.0G", "memory 64.0 GiB", "cpus 0-7", "pids 8192",
                 "a cgroup v2 of its own", "time limit 8h00m", "left 4h48m", "budget $40.00", "deadline 23:05",
                 "may be interrupted", "GPU time 6h24m", "CPU time 1d00h", "31.0G of 64.0G", "2.53 kWh", "read 3.0G",
                 "wrote 1.0G", "throttled 4s", "processes at most 211", "so far $26.21", "now $8.19/h", "1 oom 20m $2.73",
                 "killed at 64 GiB", "priority 7", "after any:0abc00000009", "lines dropped 12", "ada", "project vision",
                 "in /srv/x", "HF_TOKEN", "1 process could not be killed"):  # fmt: skip
        assert part in shown, part


def test_a_job_that_waits_says_why_and_how_the_attempt_before_ended() -> None:
    shown = facts_of(
        queued(4, cause="lost", evidence="its shim vanished", attempt=1, retries=2, not_before=AT + timedelta(minutes=5))
    )
    for part in ("queued", "before: lost", "its shim vanished", "waits for 2 free GPUs", "not before 14:10", "attempt 1 of 3"):
        assert part in shown, part


def test_a_job_that_ended_says_the_cause_and_its_evidence() -> None:
    shown = facts_of(ended(7, "oom", evidence="memory.events counted 1 oom_kill"))
    assert "ended   ran 1h12m   until 12:05" in shown and "oom" in shown and "memory.events counted 1 oom_kill" in shown


def test_an_unknown_price_and_an_unenforced_host_say_so() -> None:
    shown = facts_of(job(1, cost=None, usd_per_hour=None, enforcement="none", shell=True, command=("a && b",)))
    assert "not known" in shown and "no cgroup: its processes are followed" in shown and "/bin/sh -c a && b" in shown


def test_an_array_and_a_share_and_a_stopping_job() -> None:
    assert "an array: 2 running, 7 queued" in facts_of(queued(1, array_counts={"running": 2, "queued": 7}))
    assert "0.25 GPU: 6" in facts_of(
        job(1, gpus_wanted=0, gpu_share=Decimal("0.25"), gpus=("GPU-gpu-01-6",), gpu_memory_bytes=GIB)
    )
    assert "stopping for budget" in facts_of(job(1, state="stopping", stopping="budget"))


@pytest.mark.parametrize("cells", [1, 10, 19, 40, 80])
def test_facts_fit_any_width(cells: int) -> None:
    assert all(len(line) <= cells for line in facts_of(job(1, not_enforced=("a long sentence " * 9,)), cells).split("\n"))


# -- the log ---------------------------------------------------------------------------------------------------


async def test_the_end_of_the_log_is_shown_and_what_is_written_appears() -> None:
    app, node, _ = job_app()
    async with running(app) as pilot:
        await press(pilot, "j", "down", "enter")
        await until(lambda: LINES[-1] in text(app))
        assert "live" in text(app)
        node.write("a new line\n")
        await until(lambda: "a new line" in text(app))
        await until(lambda: node.calls[-1] == ("log", len(node.log_bytes), 65_536, 1))


async def test_80x24_shows_facts_and_log_and_20x5_one_of_them_at_a_time() -> None:
    app, _, _ = job_app()
    async with running(app) as pilot:
        await press(pilot, "j", "down", "enter")
        await until(lambda: LINES[-1] in text(app))
        assert "for 3h12m" in text(app) and "2 GPUs: 0 1" in text(app) and "x stop" in text(app)
        await pilot.resize_terminal(20, 5)
        await pilot.pause()
        assert "running  train-1" in text(app) and LINES[-1] in text(app)
        await press(pilot, "tab")
        assert "state" in text(app) and LINES[-1] not in text(app)
        await press(pilot, "tab")
        assert LINES[-1] in text(app)


async def test_on_a_wide_screen_they_stand_side_by_side_and_l_shows_the_log_alone() -> None:
    app, _, _ = job_app()
    async with running(app, (200, 50)) as pilot:
        await press(pilot, "j", "down", "enter")
        await until(lambda: LINES[-1] in text(app))
        await pilot.pause()
        assert any("state" in line and "Log" in line for line in text(app).split("\n"))
        await press(pilot, "l")
        assert "enforced" not in text(app) and "state   " not in text(app) and LINES[-40] in text(app)
        await press(pilot, "l")
        assert "since" in text(app)


async def test_scrolling_back_loads_older_parts_on_demand_and_the_reader_stays_on_the_line() -> None:
    app, node, _ = job_app()
    async with running(app) as pilot:
        await press(pilot, "j", "down", "enter")
        await until(lambda: LINES[-1] in text(app))
        before = len(log_of(app).buffer.lines)
        assert before < len(LINES)
        log_of(app).scroll_to(y=3, animate=False)
        await press(pilot, "up", "up")
        await until(lambda: len(log_of(app).buffer.lines) > before)
        await pilot.pause()
        assert round(log_of(app).scroll_y) > 0 and "End follows" in text(app)
        await press(pilot, "home")
        await until(lambda: log_of(app).buffer.whole_front and LINES[0] in text(app))
        assert log_of(app).buffer.lines[0].text == LINES[0] and len(log_of(app).buffer.lines) == len(LINES) + 1
        node.write("far below\n")
        await until(lambda: "far below" in log_of(app).plain)
        assert LINES[0] in text(app), "the reader stays"
        await press(pilot, "end")
        assert "far below" in text(app) and "live" in text(app)


LONG = [f"step {number:06} {'loss spiked' if number % 5_000 == 777 else 'ok'} {'.' * 30}" for number in range(30_000)]


async def test_the_first_line_of_a_long_log_is_gone_to_at_once_and_reading_on_comes_to_the_end() -> None:
    app, node, _ = job_app(log="\n".join(LONG) + "\n")
    async with running(app, (100, 30)) as pilot:
        await press(pilot, "j", "down", "enter")
        await until(lambda: LONG[-1] in text(app))
        await pilot.pause()  # it waits for news now
        asked = len(node.calls)
        await press(pilot, "home")
        await until(lambda: LONG[0] in text(app))
        assert len(node.calls) - asked <= 2 and log_of(app).buffer.detached
        log = log_of(app)
        while log.buffer.detached:
            end = log.buffer.end
            log.scroll_to(y=log.rows, animate=False)
            await until(lambda end=end: log.buffer.end > end)  # type: ignore[misc]
            assert round(log.scroll_y) + log.size.height < log.rows, "the reader stays where it was"
        node.write("the newest\n")
        await press(pilot, "end")
        await until(lambda: "the newest" in text(app))


async def test_the_whole_log_is_searched_also_what_is_not_loaded() -> None:
    app, node, _ = job_app(log="\n".join(LONG) + "\n")
    async with running(app, (120, 30)) as pilot:
        await press(pilot, "j", "down", "enter")
        await until(lambda: LONG[-1] in text(app))
        await press(pilot, "slash", *"LOSS sp")
        await until(lambda: "6/6" in text(app) and "▸step 025777" in text(app))
        assert LONG[25_777] in text(app)
        marked = next(segment for segment in log_of(app).render_line(line_of(app, "025777")) if segment.text == "loss sp")
        assert marked.style is not None and marked.style.reverse and marked.style.underline
        await press(pilot, "enter")
        assert app.focused is log_of(app)
        await press(pilot, "N")
        await until(lambda: "5/6" in text(app) and "▸step 020777" in text(app))
        await press(pilot, *"NNNN")
        await until(lambda: "1/6" in text(app) and "▸step 000777" in text(app))
        await press(pilot, "N")
        await until(lambda: "6/6" in text(app) and "from the end again" in text(app))
        await press(pilot, "n")
        await until(lambda: "1/6" in text(app) and "▸step 000777" in text(app))
        await press(pilot, "escape")
        assert "1/6" not in text(app) and type(app.screen).__name__ == "JobScreen"


def line_of(app: RackrateApp, part: str) -> int:
    """The row of the log that shows it."""
    log = log_of(app)
    return next(row for row in range(log.size.height) if part in log.render_line(row).text)


async def test_what_comes_while_one_searches_is_counted_and_esc_goes_back_to_where_one_was() -> None:
    app, node, _ = job_app()
    async with running(app, (120, 30)) as pilot:
        await press(pilot, "j", "down", "enter")
        await until(lambda: LINES[-1] in text(app))
        await press(pilot, "slash", *"/step 0000[12]$/")
        await until(lambda: "2/2" in text(app) and "▸step 00002" in text(app))
        node.write("step 00001\nnot yet whole: step 0000")
        await until(lambda: "2/3" in text(app))
        await press(pilot, "escape")
        await until(lambda: "not yet whole" in text(app) and "live" in text(app))
        await press(pilot, "slash", *"/(/")
        await until(lambda: "missing )" in text(app))
        await press(pilot, *["backspace"] * 3, *"nowhere", "enter")
        await until(lambda: "nothing found" in text(app))
        await until(lambda: "0 found" in text(app))


async def test_a_search_that_cannot_ask_says_why_and_leaving_ends_it() -> None:
    app, node, _ = job_app(log="\n".join(LONG) + "\n")
    async with running(app, (120, 30)) as pilot:
        await press(pilot, "j", "down", "enter")
        await until(lambda: LONG[-1] in text(app))
        node.refusals["log"] = "the log's disk is gone"
        await press(pilot, "slash", *"777")
        await until(lambda: "the log's disk is gone" in text(app))
        task = app.screen._search._task  # type: ignore[attr-defined]
        await press(pilot, "escape", "escape")
        await until(lambda: task.done())


async def test_space_holds_the_log_still_and_says_how_many_lines_came() -> None:
    app, node, _ = job_app()
    async with running(app, (120, 30)) as pilot:
        await press(pilot, "j", "down", "enter")
        await until(lambda: LINES[-1] in text(app))
        await press(pilot, "space")
        node.write("one\ntwo\nthree\n")
        await until(lambda: "held still: 3 lines came" in text(app))
        assert "three" not in text(app) and LINES[-1] in text(app)
        await press(pilot, "space")
        await until(lambda: "three" in text(app) and "live" in text(app))
        await press(pilot, "space", "pageup", "f")
        await until(lambda: "three" in text(app) and "live" in text(app))


async def test_long_lines_are_wrapped_and_the_line_at_the_top_stays() -> None:
    log = "".join(f"{number:04} {'x' * (number % 7) * 40} end{number}\n" for number in range(300))
    app, node, _ = job_app(log=log)
    async with running(app, (80, 40)) as pilot:
        await press(pilot, "j", "down", "enter")
        await until(lambda: "0299" in text(app))
        assert "end299" not in text(app)
        await press(pilot, "w")
        assert "end299" in text(app) and "wrapped" in text(app)
        view = log_of(app)
        view.scroll_to(y=view.rows // 2, animate=False)
        await pilot.pause()
        top = view.top_line()
        await pilot.resize_terminal(60, 40)
        await pilot.pause()
        assert view.top_line() == top
        node.write("y" * 130 + " last\n")
        await press(pilot, "end")
        await until(lambda: "last" in text(app))
        rows = [view.render_line(row).text.rstrip() for row in range(view.size.height)]
        assert [len(row) for row in rows[-3:]] == [view.size.width, view.size.width, 130 + 5 - 2 * view.size.width]
        await press(pilot, "w")
        assert "last" not in text(app) and "y" * 50 in text(app)


async def test_paging_and_single_lines_move_the_log() -> None:
    app, _, _ = job_app(log="".join(f"n{number}\n" for number in range(100)))
    async with running(app) as pilot:
        await press(pilot, "j", "down", "enter")
        await until(lambda: "n99" in text(app))
        await press(pilot, "pageup", "up")
        assert "n99" not in text(app) and "End follows" in text(app)
        await press(pilot, "pagedown", "down", "down")
        assert "n99" in text(app) and "live" in text(app)


async def test_long_lines_are_read_sideways() -> None:
    app, _, _ = job_app(log="x" * 200 + "the end of it\n")
    async with running(app) as pilot:
        await press(pilot, "j", "down", "enter")
        await until(lambda: "xxxx" in text(app))
        assert "the end of it" not in text(app)
        await press(pilot, *["right"] * 12)
        assert "the end of it" in text(app) and "from column" in text(app)
        await press(pilot, *["left"] * 20)
        assert "the end of it" not in text(app) and "from column" not in text(app)


async def test_colours_of_the_job_are_painted_and_nothing_else_of_its_bytes_gets_out() -> None:
    app, _, _ = job_app(log="\x1b[31mred\x1b[0m \x1b[2J\x1b]0;evil\x07\x1b]52;c;aGk=\x07safe\x9b2J\n1%\r99%\n")
    async with running(app) as pilot:
        await press(pilot, "j", "down", "enter")
        await until(lambda: "red safe" in text(app))
        assert not {"\x1b", "\x9b", "\x07"} & set(text(app)) and "evil" not in text(app) and "1%\n" not in text(app)
        strip = log_of(app).render_line(0)
        first = next(segment for segment in strip if segment.text == "red")
        assert first.style is not None and first.style.color is not None and first.style.color.number == 1


async def test_a_log_that_cannot_be_read_says_why_and_is_asked_again() -> None:
    app, node, _ = job_app()
    node.refusals["log"] = "the log's disk is gone"
    async with running(app, (120, 30)) as pilot:
        await press(pilot, "j", "down", "enter")
        app.screen._follower._retry_seconds = (0.02,)  # type: ignore[attr-defined]
        await until(lambda: "the log's disk is gone" in text(app))
        node.refusals.clear()
        await until(lambda: LINES[-1] in text(app))


async def test_a_node_that_cannot_be_asked_still_shows_the_facts() -> None:
    app, _ = make_app(job_fleet())
    async with running(app, (120, 30)) as pilot:
        await press(pilot, "j", "down", "enter")
        await until(lambda: "cannot be asked from here" in text(app))
        assert "for 3h12m" in text(app)


async def test_a_job_that_has_not_started_has_no_log_yet() -> None:
    app, _, _ = job_app(log="")
    async with running(app, (120, 30)) as pilot:
        await press(pilot, "j", *["down"] * 3, "enter")
        await until(lambda: "it has not started: there is no log yet" in text(app))
        assert "waits for 2 free GPUs" in text(app)


async def test_a_job_that_vanished_keeps_what_was_last_heard_and_says_so() -> None:
    app, node, clock = job_app()
    async with running(app, (120, 30)) as pilot:
        await press(pilot, "j", "down", "enter")
        await until(lambda: LINES[-1] in text(app))
        app.fleet.seed_jobs("gpu-01", wire.JobList(node="gpu-01", jobs=()), clock.at)
        await tick(app, pilot, clock)
        assert "no longer tells of this job" in text(app) and "train-1" in text(app)


async def test_leaving_the_screen_ends_the_questions() -> None:
    app, node, _ = job_app()
    async with running(app) as pilot:
        await press(pilot, "j", "down", "enter")
        await until(lambda: LINES[-1] in text(app))
        following = app.screen._following  # type: ignore[attr-defined]
        await press(pilot, "escape")
        await until(lambda: following.done() and not app.asking.is_waiting)
        asked = len(node.calls)
        node.write("nobody reads this\n")
        await asyncio.sleep(0.1)
        assert len(node.calls) == asked


async def test_a_retry_begins_a_new_log_and_brackets_go_back_to_the_one_before() -> None:
    app, node, clock = job_app()
    async with running(app, (120, 30)) as pilot:
        await press(pilot, "j", "down", "enter")
        await until(lambda: LINES[-1] in text(app))
        again = job(1, attempt=2)
        node.known[again.id] = again
        tell(app.fleet, again)
        await tick(app, pilot, clock)
        await until(lambda: node.calls.count(("job", ident(1))) == 2)
        app.screen._buffer.attempt = 2  # type: ignore[attr-defined]
        await press(pilot, "left_square_bracket")
        await until(lambda: any(call[0] == "log" and call[-1] == 1 for call in node.calls[-3:]))
        assert app.screen._buffer.attempt == 1  # type: ignore[attr-defined]
        await press(pilot, "left_square_bracket")
        assert "There is no earlier attempt." in text(app)


# -- the follower alone ------------------------------------------------------------------------------------------


async def test_a_reader_of_an_old_part_is_not_swept_away_by_a_fast_job() -> None:
    node, reads_end = FakeNode("n", log=LOG), False
    node.known[ident(1)] = job(1)
    client, buffer = node.client(), LogBuffer(kept_bytes=100_000)

    async def ask(offset: int, limit: int, wait: float, attempt: int | None) -> wire.LogPage:
        return await client.log(ident(1), offset, limit=limit, wait=wait, attempt=attempt)

    async def size() -> int | None:
        return 0

    follower = LogFollower(buffer, ask, size, lambda shift: None, reads_end=lambda: reads_end)
    task = asyncio.create_task(follower.run())
    await until(lambda: buffer.full)
    await asyncio.sleep(0.05)
    stood = (buffer.start, buffer.end)
    node.write(LOG)
    await asyncio.sleep(0.05)
    assert (buffer.start, buffer.end) == stood
    reads_end = True
    follower.wake()
    await until(lambda: buffer.end == len(node.log_bytes))
    assert buffer.end - buffer.start <= 100_000 + 2 * 65_536
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_older_bytes_that_the_node_let_go_end_the_way_back() -> None:
    node = FakeNode("n", log=LOG)
    client, buffer = node.client(), LogBuffer()

    async def ask(offset: int, limit: int, wait: float, attempt: int | None) -> wire.LogPage:
        return await client.log(ident(1), offset, limit=limit, wait=wait, attempt=attempt)

    async def size() -> int | None:
        return len(LOG)

    follower = LogFollower(buffer, ask, size, lambda shift: None)
    task = asyncio.create_task(follower.run())
    await until(lambda: buffer.lines)
    node.first_offset = buffer.start - 500
    await follower.older()
    assert buffer.start == node.first_offset and buffer.whole_front
    asked = len(node.calls)
    await follower.older()
    assert len(node.calls) == asked
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_the_log_of_a_job_without_an_attempt_is_asked_for_without_one() -> None:
    app, node, _ = job_app(log="")
    async with running(app, (120, 30)) as pilot:
        await press(pilot, "j", *["down"] * 3)
        await press(pilot, "enter")
        await until(lambda: any(call[0] == "log" for call in node.calls))
        app.screen._buffer.attempt = 0  # type: ignore[attr-defined]
        node.write("it began\n")
        await until(lambda: "it began" in text(app))
        assert all(call[-1] != 0 for call in node.calls if call[0] == "log")
