"""The curves of a job in the app, and of several over each other."""

from __future__ import annotations

import asyncio
import math
from typing import Any

from agent import wire
from tests.support.fleets import Clock
from tests.support.jobs import (
    FakeNode,
    asked_nodes,
    ended,
    ident,
    job,
    job_fleet,
    queued,
    tell,
)
from tests.support.screens import line_with, make_app, press, running, text
from tui.ui.app import RackrateApp
from tui.ui.places import Place
from tui.ui.screens import curves as curves_screen
from tui.ui.screens.job import JobScreen


async def until(holds: Any, seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.01)


def curves(number: int, factor: float = 2.0, steps: int = 40, **fields: Any) -> wire.JobCurves:
    loss = tuple(factor * math.exp(-step / 12) + 0.1 for step in range(1, steps + 1))
    made = tuple(
        wire.Curve(name=name, steps=tuple(range(1, steps + 1)), values=values, count=steps, mean=1.0, source="log")
        for name, values in (("loss", loss), ("samples_per_second", (40.0,) * steps), ("grad\x1b[2J", loss))
    )
    values: dict[str, Any] = {
        "curves": made, "names": tuple(one.name for one in made), "step": steps, "steps_total": 100, "batch_size": 8, "samples_per_epoch": 100,
        "epochs_per_step": 0.08, "samples_per_second": 40.0, "steps_per_second": 5.0, "ended": False, "sources": ("the log: 40 lines",),
    }  # fmt: skip
    return wire.JobCurves(job=ident(number), attempt=1, **{**values, **fields})


def curved_app() -> tuple[RackrateApp, FakeNode, Clock]:
    fleet = job_fleet()
    tell(fleet, job(1), ended(6))
    node = FakeNode("gpu-01", (view.job for view in fleet["gpu-01"].jobs))
    node.curves = {ident(1): curves(1), ident(2): curves(2, 1.0), ident(6): curves(6, 3.0, ended=True)}
    app, clock = make_app(fleet, **asked_nodes(node))
    app._import_slowly = lambda: None  # type: ignore[method-assign]
    return app, node, clock


def asked(node: FakeNode) -> int:
    return sum(call[0] == "curves" for call in node.calls)


async def test_a_job_shows_its_curves_with_their_money_in_any_size(monkeypatch: Any) -> None:
    monkeypatch.setattr(curves_screen, "ASK_SECONDS", 0.1)
    app, node, _ = curved_app()
    async with running(app, (80, 24)) as pilot:
        app.open_curves([("gpu-01", ident(1))])
        await until(lambda: "lowest" in text(app))
        shown = text(app)
        # 8.19 an hour: an epoch of 100 samples at 40 a second is 2.5 s = 0.0056875; 60 steps at 5 a second are 12 s = 0.0273
        for part in ("step 40 of 100", "epoch 3.20", "loss  last 0.1713", "an epoch     $0.005688, 2.5s at 40 samples/s", "$26.21 so far",
                     "to the end   $0.02730 in 12s (60 steps): $26.24 in all", "read         the log: 40 lines", "└┴"):  # fmt: skip
            assert part in shown, (part, shown)
        assert app.screen.place == Place("curves", (f"gpu-01 {ident(1)}",)) and app.screen.crumb() == "curves"  # type: ignore[attr-defined]
        await press(pilot, "tab")
        assert "samples/s  last 40" in text(app)
        await press(pilot, "tab")
        assert "grad?[2J  last 0.1713" in text(app), "no control character of a name is painted"
        await press(pilot, "shift+tab", "left", "l")
        assert "loss  last" in text(app) and "logarithmic" in text(app)
        await pilot.resize_terminal(200, 60)
        await pilot.pause()
        assert "loss  last" in text(app) and "samples/s  last" in text(app), "two plots where there is room"
        await pilot.resize_terminal(20, 5)
        await pilot.pause()
        assert "loss 0.1713" in text(app)
        await pilot.resize_terminal(80, 24)
        node.curves[ident(1)] = curves(1, steps=50)
        await until(lambda: "step 50 of 100" in text(app))
        node.refusals["curves"] = "the log is damaged"
        await until(lambda: "the log is damaged" in text(app))
        assert "step 50 of 100" in text(app), "what was told last stays"
        await press(pilot, "enter")
        assert isinstance(app.screen, JobScreen)
        before = asked(node)
        await asyncio.sleep(0.3)
        assert asked(node) == before, "under another screen nobody is asked"
        await press(pilot, "u")
        assert app.screen.SCOPE == "curves" and len(app.screen_stack) == 2  # type: ignore[attr-defined]


async def test_marked_jobs_are_drawn_over_each_other_with_what_differs() -> None:
    app, node, _ = curved_app()
    async with running(app, (100, 40)) as pilot:
        await press(pilot, "j")
        table = app.screen.table  # type: ignore[attr-defined]
        table.marks = {f"gpu-01 {ident(number)}" for number in (1, 2, 6, 7)}
        await press(pilot, "u")
        await until(lambda: "accuracy" in text(app) or "lowest loss" in text(app))
        shown = text(app)
        assert "4 jobs compared" in shown and "o train-1" in shown.replace("sweep", "train-1")
        assert f"{ident(7)}: no curves: the job prints no lines like" in shown and "Compared" in shown
        assert sum(mark in shown for mark in ("ooo", "xxx", "+++")) >= 2 and "$ per epoch" in shown
        assert line_with(app, "last loss").split()[2] != "–"
        await press(pilot, "escape")
        table.marks = set()
        table.move_to(table.position(f"gpu-01 {ident(6)}"))
        await press(pilot, "u")
        await until(lambda: "it has ended" in text(app))
        before = asked(node)
        app.screen._woken.set()  # type: ignore[attr-defined]
        await pilot.pause(0.05)
        assert asked(node) == before, "one that has ended and was read whole is not asked about again"


async def test_what_has_no_curves_says_so() -> None:
    app, node, _ = curved_app()
    node.known[ident(10)] = queued(10, array_counts={"queued": 3})
    tell(app.fleet, node.known[ident(10)])
    async with running(app, (80, 24)) as pilot:
        await press(pilot, "j")
        table = app.screen.table  # type: ignore[attr-defined]
        table.move_to(table.position(f"gpu-01 {ident(10)}"))
        await press(pilot, "u")
        assert "An array has no curves of its own" in text(app)
        app.open_curves([("gpu-01", ident(4))])
        await until(lambda: "it has not started: there are no curves yet" in text(app))
        app.open_curves([("nowhere", ident(4))])
        assert app.screen.crumb() == "curves"  # type: ignore[attr-defined]
        app.open_place(Place("curves", (f"gpu-01 {ident(1)}", f"gpu-01 {ident(2)}")))
        await until(lambda: "Compared" in text(app))
        assert app.screen.crumb() == "curves of 2"  # type: ignore[attr-defined]


async def test_a_run_over_nodes_is_one_whichever_part_is_opened_and_costs_what_all_parts_cost() -> None:
    fleet = job_fleet()
    gang = "g0123456789a"
    parts = {name: job(number, name, gang=gang) for name, number in (("gpu-01", 1), ("gpu-02", 8))}
    tell(fleet, *parts.values())
    nodes = [FakeNode(name, [part]) for name, part in parts.items()]
    nodes[0].curves, nodes[1].curves = {ident(1): curves(1)}, {ident(8): curves(8, curves=(), names=())}
    app, clock = make_app(fleet, **asked_nodes(*nodes))
    app._import_slowly = lambda: None  # type: ignore[method-assign]
    shown = []
    async with running(app, (80, 24)) as pilot:
        for key in (("gpu-01", ident(1)), ("gpu-02", ident(8))):
            app.open_curves([key])
            await until(lambda: "lowest" in text(app))
            shown.append("\n".join(line for line in text(app).split("\n") if "$" in line))
        # 2 x 8.19 an hour for the same 2.5 s an epoch: twice 0.0056875
        assert shown[0] == shown[1] and "an epoch     $0.01138, 2.5s at 40 samples/s" in shown[0], shown
        each = [fleet.job(name, part.id).cost(clock()) for name, part in parts.items()]  # type: ignore[union-attr]
        assert f"${sum(each):.2f} so far" in shown[0], (each, shown[0])  # type: ignore[arg-type]
        app.open_curves([("gpu-01", ident(1)), ("gpu-02", ident(8))])
        await until(lambda: "lowest" in text(app))
        assert text(app).count("lowest") == 1, "marked parts of one run are drawn once"
        nodes[1].silent.add("curves")
        app.screen._woken.set()  # type: ignore[attr-defined]
        await until(lambda: "gpu-02 is not reachable" in text(app))
        await pilot.pause()
        assert "lowest" in text(app), "what was told last stays"
