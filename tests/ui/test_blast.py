"""From a key to what nodes are asked: question, blast radius, typed count, five seconds, sending, outcome."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import msgspec

from agent import wire
from tests.support.acting import (
    acting,
    big_fleet,
    changes,
    confirm,
    let_be,
    mark_all,
    shown,
    until,
)
from tests.support.fleets import AT, NOW, alert, sample
from tests.support.jobs import ended, ident, job, tell
from tests.support.screens import press, running, text
from tui.ui.node_actions import drain_plan
from tui.ui.screens.ask_text import AskText
from tui.ui.screens.confirm import ConfirmScreen, SignalScreen

# -- jobs --------------------------------------------------------------------------------------------------------


async def test_the_dialog_says_the_blast_radius_and_nothing_is_sent_for_five_seconds() -> None:
    app, clock, nodes = acting()
    async with running(app, (100, 36)) as pilot:
        await press(pilot, "j", "down", "x")
        for part in (f"Stop job {ident(1)} (train-1) on gpu-01?", "ada's job, which ran for 3h12m and cost $26.21", "6.4 GPU-hours",
                     "$8.19/h goes from jobs to idle", f"rackrate job cancel {ident(1)}"):  # fmt: skip
            assert part in shown(app), part
        await press(pilot, "right", "enter")
        assert "stopping train-1 in 5 s, z takes it back" in text(app) and not changes(nodes)
        clock.at += 2.2
        app.look_at_pending()
        await pilot.pause()
        assert "stopping train-1 in 3 s" in text(app) and not changes(nodes)
        await let_be(app, pilot, clock)
        assert changes(nodes) == [("gpu-01", "cancel", ident(1), False)]
        assert "asked to stop train-1" in text(app)


async def test_what_was_confirmed_can_be_taken_back() -> None:
    app, clock, nodes = acting()
    async with running(app, (100, 30)) as pilot:
        await press(pilot, "j", "down")
        for key in ("z", "escape", "shift+f10"):
            await press(pilot, "x", "right", "enter", key)
            assert "taken back: stopping train-1. Nothing was sent" in text(app) and len(app.screen_stack) == 2
            await let_be(app, pilot, clock)
            assert not changes(nodes) and app._looking is None
        await press(pilot, "z")
        assert "There is nothing to take back" in text(app)
        await press(pilot, "escape")
        assert len(app.screen_stack) == 1, "Esc is Esc again"


async def test_of_two_that_wait_the_newest_is_taken_back_first_and_the_other_is_sent() -> None:
    app, clock, nodes = acting()
    async with running(app, (100, 30)) as pilot:
        await press(pilot, "j", "down", "x", "right", "enter", "down", "x", "right", "enter")
        assert "(1 more after it)" in text(app)
        await press(pilot, "z")
        assert "1 more action will be sent" in text(app)
        await let_be(app, pilot, clock)
        assert changes(nodes) == [("gpu-01", "cancel", ident(1), False)]


async def test_more_than_ten_need_their_number_and_fail_one_by_one() -> None:
    app, clock, nodes = acting(big_fleet())
    nodes["gpu-07"].silent.add("cancel")
    nodes["gpu-03"].refusals["cancel"] = "it belongs to bob\x1b[2J"
    async with running(app, (120, 40)) as pilot:
        await press(pilot, "j")
        mark_all(app)
        await press(pilot, "x")
        for part in ("Stop 12 jobs on", "12 jobs on gpu-00, gpu-01, gpu-02, gpu-03, gpu-04 and 7 more, of ada and bob: 12 running",
                     "38.4 GPU-hours", "$98.28/h", "Type 12 to go on: _"):  # fmt: skip
            assert part in shown(app), part
        await press(pilot, "right", "enter")
        assert isinstance(app.screen, ConfirmScreen) and "Type 12 first" in text(app)
        await press(pilot, "1", "backspace", "1", "1", "enter")
        assert isinstance(app.screen, ConfirmScreen), "11 is not 12"
        await press(pilot, "backspace", "2", "enter")
        tell(app.fleet, ended(4, node="gpu-04"))
        app.fleet._nodes.pop("gpu-05")
        await let_be(app, pilot, clock)
        assert len(changes(nodes)) == 10 and {call[0] for call in changes(nodes)} == {f"gpu-{n:02}" for n in range(12)} - {"gpu-04", "gpu-05"}
        said = text(app)
        assert "asked to stop 8 of 12:" in said and "it belongs to bob" in said and "\x1b" not in said


async def test_the_outcome_names_who_did_not_answer() -> None:
    app, clock, nodes = acting(big_fleet(10))
    nodes["gpu-07"].silent.add("drain")
    async with running(app, (100, 30)) as pilot:
        mark_all(app)
        await press(pilot, "d", "enter")
        await confirm(app, pilot, clock)
        assert "drained 9 of 10: gpu-07 did not answer" in text(app)

        async def broken(client: object, target: object) -> None:
            raise ValueError("what nobody expected")

        app.will_send(msgspec.structs.replace(drain_plan(list(app.fleet), None, NOW), send=broken))
        await let_be(app, pilot, clock)
        assert app.unsent() == [], "what ended in an error is not under way for ever"


async def test_targets_are_those_of_the_key_press_and_looked_at_again_when_it_comes_to_them() -> None:
    app, clock, nodes = acting()
    async with running(app, (100, 30)) as pilot:
        await press(pilot, "j", "down", "x", "right", "enter")
        tell(app.fleet, ended(1), *(job(number) for number in range(60, 70)))
        app.screen.table.move_to(7)  # type: ignore[attr-defined]
        await let_be(app, pilot, clock)
        assert not changes(nodes) and "not asked to stop: left out, as train-1 has ended" in text(app)


async def test_a_job_that_is_being_stopped_is_killed_by_force_and_of_several_it_is_left_out() -> None:
    app, clock, nodes = acting()
    async with running(app, (100, 40)) as pilot:
        await press(pilot, "j", "x")
        assert "by force?" in shown(app) and "but for what they saved before" in shown(app) and "--force" in shown(app)
        await confirm(app, pilot, clock)
        assert changes(nodes) == [("gpu-01", "cancel", ident(3), True)]
        app.screen.table.marks = {f"gpu-01 {ident(3)}", f"gpu-01 {ident(2)}", f"gpu-01 {ident(4)}", f"gpu-01 {ident(6)}"}  # type: ignore[attr-defined]
        await press(pilot, "x")
        for part in ("Stop 2 jobs on gpu-01?", "1 running, 1 waiting", "taken out of the queue", "1 job of these is being stopped already"):
            assert part in shown(app), part
        await confirm(app, pilot, clock)
        assert {call[2] for call in changes(nodes)[1:]} == {ident(2), ident(4)} and not any(call[3] for call in changes(nodes)[1:])


async def test_a_signal_is_typed_and_asked_about_and_only_running_jobs_get_it() -> None:
    app, clock, nodes = acting()
    async with running(app, (100, 30)) as pilot:
        await press(pilot, "j")
        app.screen.table.marks = {f"gpu-01 {ident(number)}" for number in (1, 2, 4, 6)}  # type: ignore[attr-defined]
        await press(pilot, "k")
        assert isinstance(app.screen, SignalScreen)
        await press(pilot, *"usr1", "enter")
        assert "Send USR1 to 2 jobs on gpu-01?" in shown(app) and f"rackrate job signal USR1 {ident(1)} {ident(2)}" in shown(app)
        await confirm(app, pilot, clock)
        assert changes(nodes) == [("gpu-01", "signal", ident(1), "USR1"), ("gpu-01", "signal", ident(2), "USR1")]
        assert "sent USR1 to 2 jobs" in text(app)


async def test_ids_of_marked_jobs_are_copied_one_a_line_and_l_opens_the_log() -> None:
    app, _, _ = acting()
    copied: list[tuple[str, str]] = []
    app.copy_text = lambda text, what: copied.append((text, what))  # type: ignore[method-assign]
    async with running(app, (100, 30)) as pilot:
        await press(pilot, "y", "j")
        app.screen.table.marks = {f"gpu-01 {ident(1)}", f"gpu-01 {ident(2)}"}  # type: ignore[attr-defined]
        await press(pilot, "y")
        assert copied == [("gpu-01", "gpu-01"), (f"{ident(1)}\n{ident(2)}", "2 ids")]
        app.screen.table.marks = set()  # type: ignore[attr-defined]
        await press(pilot, "x", "y")
        assert copied[-1] == (f"rackrate job cancel {ident(1)}", "the command") or copied[-1][1] == "the command"
        assert isinstance(app.screen, ConfirmScreen)
        await press(pilot, "escape", "l")
        await pilot.pause()
        assert type(app.screen).__name__ == "JobScreen"


# -- nodes -------------------------------------------------------------------------------------------------------


async def test_a_node_is_drained_with_a_reason_and_undrained_with_the_same_key() -> None:
    app, clock, nodes = acting()
    async with running(app, (100, 36)) as pilot:
        await press(pilot, "d")
        assert isinstance(app.screen, AskText) and "Drain gpu-01: why?" in text(app)
        await press(pilot, *"new fan", "enter")
        for part in ("Drain gpu-01?", "Reason: new fan", "No job starts there any more", "3 running jobs (of ada, bob and carol) go on",
                     "2 jobs in the queue there wait", "$32.77/h is paid on", "rackrate node drain gpu-01 --reason 'new fan'"):  # fmt: skip
            assert part in shown(app), part
        await confirm(app, pilot, clock)
        (call,) = changes(nodes)
        assert call[:3] == ("gpu-01", "drain", "new fan") and "drained gpu-01" in text(app)
        told = msgspec.structs.replace(app.fleet["gpu-01"].info, drain=wire.Drain(since=AT, by="x", reason="new fan"))
        app.fleet.apply("gpu-01", wire.NodeEvent(node=told), NOW)
        app.fleet.apply("gpu-01", wire.SampleEvent(sample=app.fleet["gpu-01"].sample), NOW)  # type: ignore[arg-type]
        await press(pilot, "d")
        assert "Let gpu-01 start jobs again?" in shown(app) and "Drained because of: new fan" in shown(app)
        await confirm(app, pilot, clock)
        assert changes(nodes)[-1] == ("gpu-01", "undrain")


async def test_of_marked_nodes_those_that_are_drained_are_not_drained_again() -> None:
    app, clock, nodes = acting()
    info_ = msgspec.structs.replace(app.fleet["gpu-01"].info, drain=wire.Drain(since=AT, by="x"))
    app.fleet.apply("gpu-01", wire.NodeEvent(node=info_), NOW)
    async with running(app, (100, 30)) as pilot:
        mark_all(app)
        await press(pilot, "d", "enter")
        assert "Drain gpu-02 and sim-01?" in shown(app)
        await confirm(app, pilot, clock)
        assert sorted(call[:2] for call in changes(nodes)) == [("gpu-02", "drain"), ("sim-01", "drain")]


async def test_alerts_of_a_node_are_paused_and_resumed() -> None:
    app, clock, nodes = acting()
    app.fleet.apply("gpu-01", wire.AlertEvent(alert=alert("gpu-01")), NOW)
    async with running(app, (100, 34)) as pilot:
        await press(pilot, "enter", "p")
        await press(pilot, *"new fan", "enter")
        assert "Pause all alerts of gpu-01 for 2 h?" in shown(app) and "It covers 1 alert that holds now" in shown(app)
        assert "rackrate node pause-alerts gpu-01 --for 2h --reason 'new fan'" in shown(app)
        await confirm(app, pilot, clock)
        ((_, _, order),) = changes(nodes)
        assert (order.seconds, order.rule, order.reason) == (7200, None, "new fan")
        pause = wire.AlertPause(id="ab", since=AT, until=AT + timedelta(hours=2), by="x")
        told = msgspec.structs.replace(app.fleet["gpu-01"].info, pauses=(pause,))
        app.fleet.apply("gpu-01", wire.NodeEvent(node=told), NOW)
        await press(pilot, "p")
        assert "Resume all alerts of gpu-01?" in shown(app)
        await confirm(app, pilot, clock)
        assert changes(nodes)[-1] == ("gpu-01", "resume_alerts", None)


async def test_one_alert_is_paused_by_its_rule_and_gpu_and_shown_so() -> None:
    app, clock, nodes = acting()
    app.fleet.apply("gpu-01", wire.AlertEvent(alert=alert("gpu-01")), NOW)
    async with running(app, (120, 30)) as pilot:
        await press(pilot, "a")
        screen = app.screen
        screen.query_one("#alerts").move_to(next(i for i, key in enumerate(screen.query_one("#alerts").keys) if key.startswith("gpu-01")))  # type: ignore[attr-defined]
        await press(pilot, "p", "ctrl+u", *"x", "enter")
        assert isinstance(app.screen, AskText) and "is no length of time" in text(app), "a wrong one is said in its place"
        await press(pilot, "ctrl+u", *"1d", "enter")
        assert "Pause gpu_idle_held of GPU 1 of gpu-01 for 1 d?" in shown(app)
        await confirm(app, pilot, clock)
        ((_, _, order),) = changes(nodes)
        assert (order.seconds, order.rule, order.gpu) == (86_400, "gpu_idle_held", "GPU-gpu-01-1")
        pause = wire.AlertPause(id="ab", rule="gpu_idle_held", since=AT, until=AT + timedelta(hours=2), by="x")
        app.fleet.apply("gpu-01", wire.NodeEvent(node=msgspec.structs.replace(app.fleet["gpu-01"].info, pauses=(pause,))), NOW)
        app.fleet.apply("gpu-01", wire.AlertEvent(alert=alert("gpu-01", paused_until=pause.until)), NOW)
        app.redraw()
        await pilot.pause()
        assert "paused" in text(app)
        await press(pilot, "p")
        assert "Resume gpu_idle_held of GPU 1 of gpu-01?" in shown(app)
        await confirm(app, pilot, clock)
        assert changes(nodes)[-1] == ("gpu-01", "resume_alerts", "ab")


async def test_the_share_of_gpus_is_set_and_one_that_has_another_job_meanwhile_is_left_out() -> None:
    app, clock, nodes = acting()
    async with running(app, (100, 34)) as pilot:
        await press(pilot, "enter", "i", "ctrl+u", *"9 50%", "enter")
        assert "gpu-01 has no GPU 9" in shown(app)
        await press(pilot, "ctrl+u", *"0,2 50% 8G", "enter")
        for part in ("Set the MPS share of 2 GPUs of gpu-01?", "at most 50 % of the SMs and 8.0G of memory", "No job has it now",
                     "rackrate mps gpu-01 0,2 --share 50% --memory 8G"):  # fmt: skip
            assert part in shown(app), part
        await press(pilot, "right", "enter")
        newer = tuple(
            msgspec.structs.replace(one, allocations=(wire.GpuAllocation(job="new", share=Decimal(1)),)) if one.index == 2 else one
            for one in app.fleet["gpu-01"].gpus
        )
        app.fleet.apply("gpu-01", wire.SampleEvent(sample=sample("gpu-01", newer, 2)), NOW)
        await let_be(app, pilot, clock)
        setting = wire.MpsSetting(active_thread_percentage=Decimal(50), pinned_memory_bytes=8 << 30)
        assert changes(nodes) == [("gpu-01", "mps_set", "GPU-gpu-01-0", setting)]
        assert "set the share of 1 of 2: left out, as GPU 2 of gpu-01 has another job now" in text(app)


async def test_on_the_screen_of_a_gpu_its_alerts_are_paused_its_share_set_and_its_uuid_copied() -> None:
    app, clock, nodes = acting()
    copied: list[str] = []
    app.copy_text = lambda text, what: copied.append(text)  # type: ignore[method-assign]
    told = msgspec.structs.replace(app.fleet["gpu-01"].info, drain=wire.Drain(since=AT - timedelta(hours=3), by="token ops", reason="new fan"))
    app.fleet.apply("gpu-01", wire.NodeEvent(node=told), NOW)
    async with running(app, (100, 34)) as pilot:
        await press(pilot, "enter")
        assert "drained for 3h by token ops: new fan; no job starts here" in text(app)
        app.open_gpu("gpu-01", "GPU-gpu-01-3")
        await pilot.pause()
        await press(pilot, "y", "p", "enter")
        assert copied == ["GPU-gpu-01-3"] and "Pause all alerts of GPU 3 of gpu-01 for 2 h?" in shown(app)
        await confirm(app, pilot, clock)
        ((_, _, order),) = changes(nodes)
        assert (order.rule, order.gpu) == (None, "GPU-gpu-01-3")
        pause = wire.AlertPause(id="ab", gpu=order.gpu, since=AT, until=AT + timedelta(hours=2), by="x")
        app.fleet.apply("gpu-01", wire.NodeEvent(node=msgspec.structs.replace(told, pauses=(pause,))), NOW)
        await press(pilot, "p")
        assert "Resume all alerts of GPU 3 of gpu-01?" in shown(app)
        await confirm(app, pilot, clock)
        await press(pilot, "i", *"50%", "enter")
        assert "rackrate mps gpu-01 3 --share 50%" in shown(app)
        await confirm(app, pilot, clock)
        assert [call[1:3] for call in changes(nodes)[1:]] == [("resume_alerts", "ab"), ("mps_set", "GPU-gpu-01-3")]


async def test_rows_of_other_tables_are_copied_as_they_are_shown() -> None:
    app, _clock, _ = acting()
    copied: list[tuple[str, str]] = []
    app.copy_text = lambda text, what: copied.append((text, what))  # type: ignore[method-assign]
    async with running(app, (100, 20)) as pilot:
        app.fleet.apply("gpu-01", wire.AlertEvent(alert=alert("gpu-01")), NOW)
        app.tick()
        await press(pilot, "E")
        await until(lambda: app.screen.table.keys)  # type: ignore[attr-defined]
        await press(pilot, "end", "y")
        assert copied and "\t" in copied[0][0] and copied[0][1] == "the row"
