"""Another time in the app: a replay and stepping back from live, marked on each screen, with the money of then."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from textual.pilot import Pilot

from agent import wire
from pricing.ledger import Ledger
from tests.support.fleets import Clock, alert
from tests.support.jobs import job, queued
from tests.support.recording import START_MS, Stage
from tests.support.sample_ledger import fill
from tests.support.screens import line_with, make_app, press, running, table, text, tick
from tui.record_money import Prices, keep_ledger
from tui.replay import Recording
from tui.replay_money import MoneyThen
from tui.ui import actions
from tui.ui.app import RackrateApp
from tui.ui.start import replay_app
from tui.ui.theme import DARK
from tui.ui.time_buffer import TimeBuffer

SIZES = ((80, 24), (20, 5), (200, 60))


def stage(folder: Path) -> Stage:
    """Two minutes of two nodes: an alert and a job come after one, and a ledger of before."""
    from datetime import timedelta

    from tests.support.fleets import AT

    made = Stage(folder / "fleet.rec")
    with Ledger.open(folder / "ledger.db") as ledger:
        fill(ledger, AT.replace(minute=0, second=0) - timedelta(hours=30), 30, 2)
    keep_ledger(made.file, folder / "ledger.db", START_MS)
    Prices(made.file, None, None).look(START_MS)
    for name in made.names:
        made.connect(name)
    made.run(60)
    made.tell("gpu-01", wire.AlertEvent(alert=alert("gpu-01")), wire.JobEvent(job=job(1)), wire.JobEvent(job=queued(2)))
    made.run(60)
    return made


@asynccontextmanager
async def replaying(made: Stage, size: tuple[int, int] = (100, 30), **options: Any) -> AsyncIterator[tuple[RackrateApp, Pilot[None], Clock]]:
    recording, clock = made.recording(), Clock()
    money = MoneyThen(recording)
    config = msgspec.convert({"timezone": "Europe/Berlin", "nodes": [{"name": n, "url": f"http://{n}"} for n in made.names]}, _config())
    app = replay_app(recording, money, START_MS + 30_000, 0, config, clock=clock, theme=DARK, unicode=True, **options)
    try:
        async with running(app, size) as pilot:
            await there(app, pilot)
            yield app, pilot, clock
    finally:
        money.close()


def _config() -> Any:
    from tui.config import Config

    return Config


async def there(app: RackrateApp, pilot: Pilot[None], done: Callable[[], bool] = lambda: True) -> None:
    """Until the app is at the moment that was asked for, with its money."""
    deadline = time.monotonic() + 60
    await pilot.pause()
    while app.travel is not None and (app.travel.busy or app.travel.wish_ms is not None or app.travel.money_busy) or not done():
        assert time.monotonic() < deadline, text(app)
        await asyncio.sleep(0.01)
        await pilot.pause()
    app.redraw()
    await pilot.pause()


async def test_a_replay_is_marked_steps_jumps_and_runs_and_changes_nothing(tmp_path: Path) -> None:
    made = stage(tmp_path)
    async with replaying(made) as (app, pilot, clock):
        first = text(app).split("\n")[0]
        assert "REPLAY still Nov 30 15:05:40 +01:00" in first and "2 live" in first
        assert "0.30" not in first and app.fleet["gpu-01"].utilization_ratio == 0.15
        await press(pilot, "full_stop", "full_stop")
        await there(app, pilot)
        assert "15:05:42" in text(app) and app.fleet["gpu-01"].gpus[0].utilization_ratio == 0.32
        await press(pilot, "greater_than_sign")
        await there(app, pilot)
        assert "15:06:42" in text(app) and "1 alert" in text(app) and len(app.fleet["gpu-01"].jobs) == 2
        await press(pilot, "less_than_sign", "comma")
        await there(app, pilot)
        assert "15:05:41" in text(app) and len(app.fleet["gpu-01"].jobs) == 0 and "alert" not in text(app).split("\n")[1]
        await press(pilot, "at", *"15:06:20", "enter")
        await there(app, pilot)
        assert "15:06:20" in text(app).split("\n")[0]
        await press(pilot, "at", *"noon", "enter")
        assert "is no time" in text(app)
        await press(pilot, "L")
        await there(app, pilot)
        assert "15:07:10" in text(app).split("\n")[0]
        await press(pilot, "comma")
        await there(app, pilot)
        await press(pilot, "P")
        await tick(app, pilot, clock, 0.9)
        await there(app, pilot)
        assert "REPLAY Nov 30 15:07:09" in text(app).split("\n")[0]
        await tick(app, pilot, clock)
        await there(app, pilot)
        assert "REPLAY still Nov 30 15:07:10" in text(app).split("\n")[0] and "end of the recording" in text(app)
        ages = line_with(app, "gpu-01")
        await tick(app, pilot, clock, 3600)
        assert line_with(app, "gpu-01") == ages, "time stands still: nothing grows old"
        await press(pilot, "at", *"-100h", "enter")
        await there(app, pilot)
        assert "oldest moment" in text(app)
        assert all(not action.changes for action in actions.in_force())
        await press(pilot, "j", "n")
        assert "n is off: this is a recording." in text(app)
        await press(pilot, "at", *"15:06:20", "enter")
        await there(app, pilot)
        await press(pilot, "enter")
        await there(app, pilot, lambda: "not in the recording" in text(app))
        assert "train-1" in text(app) and "REPLAY" in text(app)


async def test_the_money_of_a_replay_is_that_of_its_time(tmp_path: Path) -> None:
    made = stage(tmp_path)
    async with replaying(made, (140, 40)) as (app, pilot, _):
        assert app.costs.today is not None and app.costs.month is not None and app.costs.today < app.costs.month
        assert f"today ${float(app.costs.today):,.2f}" in text(app).split("\n")[1]
        await press(pilot, "c")
        await there(app, pilot, lambda: not app.is_reading and "Costs 2026-11" in text(app))
        assert "REPLAY" in text(app) and "vision" in text(app)
        assert app.files.ledger is not None and app.files.ledger != tmp_path / "ledger.db"


async def test_the_events_of_a_replay_are_those_up_to_its_moment(tmp_path: Path) -> None:
    made = stage(tmp_path)
    async with replaying(made, (120, 30)) as (app, pilot, _):
        await press(pilot, "E")
        await there(app, pilot, lambda: app._told is not None)
        assert "train-1" not in text(app) and "gpu_idle" not in text(app) and "REPLAY" in text(app)
        await press(pilot, "greater_than_sign")
        await there(app, pilot, lambda: app._told is not None and app._told.at_ms == START_MS + 90_000)
        assert "train-1" in text(app) and "told from Nov 30 15:05:10 on" in text(app)
        assert {row.event.kind for row in app.screen.table.rows()} >= {"alert", "job"}  # type: ignore[attr-defined]
        await press(pilot, "less_than_sign")
        await there(app, pilot, lambda: app._told is not None and app._told.at_ms == START_MS + 30_000)
        assert "train-1" not in text(app), "what had not happened by then is not shown"


async def test_each_screen_says_in_words_that_it_is_a_replay_at_every_size(tmp_path: Path) -> None:
    made = stage(tmp_path)
    for size in SIZES:
        async with replaying(made, size) as (app, pilot, _):
            assert "REPLAY" in text(app), size
            for keys in (("enter",), ("a",), ("j",)):
                await press(pilot, *keys)
                await there(app, pilot)
                assert "REPLAY" in text(app), (size, keys)
                await press(pilot, "escape")


async def live_app(made: Stage, pilot: Pilot[None], app: RackrateApp) -> None:
    """The app keeps its past, and has heard of half a minute."""
    app.buffer = TimeBuffer(app.fleet, [_Node(name) for name in made.names], made.now_ms)
    made.fleet, made.recorder = app.fleet, app.buffer._recorder
    for name in made.names:
        made.connect(name)
    for _ in range(30):
        made.seconds += 1
        for name in made.names:
            made.sample(name, made.seconds % 100 / 100)
    app.buffer.tick(0.0)
    await pilot.pause()


class _Node(msgspec.Struct):
    name: str
    url: str = "http://x"
    tags: dict[str, str] = {}


async def test_stepping_back_from_live_is_marked_live_goes_on_and_nothing_can_be_changed() -> None:
    made = Stage(None)
    clock = Clock(0.0)
    app, _ = make_app(made.fleet, clock)
    app.live_now = lambda: _at(made)
    async with running(app, (100, 24)) as pilot:
        await press(pilot, "full_stop")
        assert "nothing newer" in text(app)
        await live_app(made, pilot, app)
        clock.at = made.seconds
        await press(pilot, "comma", "comma", "comma")
        await there(app, pilot, lambda: app.travel is not None)
        assert "BEHIND LIVE Nov 30 14:05:3" in text(app).split("\n")[0], (text(app), vars(app.travel))
        assert ", back" in text(app).split("\n")[-1], "the footer tells at once how to move in time"
        then = app.fleet["gpu-01"].gpus[0].utilization_ratio
        assert then is not None and then < 0.3
        assert app._parked is not None and app._parked["gpu-01"] is not app.fleet["gpu-01"]
        app._parked.apply("gpu-01", wire.SampleEvent(sample=app._parked["gpu-01"].sample), made.seconds)  # type: ignore[arg-type]
        await tick(app, pilot, clock, 5)
        assert app.fleet["gpu-01"].gpus[0].utilization_ratio == then and "BEHIND LIVE" in text(app)
        assert actions.refuses("cancel") == actions.refuses("app.cancel")
        changing = next(one for one in actions.ACTIONS if one.changes and "jobs" in one.scopes)
        assert actions.refuses(changing.call)
        await press(pilot, "j", changing.keys[0])
        assert "is off: what is shown is behind live; L returns." in text(app)
        await press(pilot, "escape", "L")
        await there(app, pilot)
        assert ", back" not in text(app).split("\n")[-1]
        assert "BEHIND" not in text(app) and app.fleet["gpu-01"].gpus[0].utilization_ratio == 0.3
        assert not actions.refuses(changing.call) and app.fleet.tap is not None
        await press(pilot, "at", *"-2m", "enter")
        await there(app, pilot, lambda: app.travel is not None)
        assert "oldest moment" in text(app)
        assert table(app).keys


def _at(made: Stage) -> Any:
    from datetime import timedelta

    from tests.support.fleets import AT

    return AT + timedelta(seconds=made.seconds)


async def test_behind_live_prices_are_those_of_then_and_events_those_up_to_then(tmp_path: Path) -> None:
    from datetime import timedelta
    from decimal import Decimal

    from pricing.pricebook import PriceBook
    from pricing.prices import Price
    from tests.support.fleets import AT
    from tui.catalogs import overlaid

    path, later = tmp_path / "prices.db", AT + timedelta(seconds=20)
    with PriceBook.open(path) as book:
        for since, amount in ((AT - timedelta(days=3), "20"), (later, "25")):
            book.put([Price("aws", "us-east-1", None, "p4d.24xlarge", "on_demand", Decimal(amount), "USD", "instance_hour", since, since, "made up")], since)
    made, clock = Stage(None), Clock(0.0)
    app, _ = make_app(made.fleet, clock, prices_path=path)
    app.live_now = lambda: _at(made)
    app.renew_prices = lambda: None  # type: ignore[method-assign]
    async with running(app, (120, 30)) as pilot:
        app.fleet.set_catalog(overlaid(path))
        await live_app(made, pilot, app)
        clock.at = made.seconds
        app.tick()
        assert app.fleet["gpu-01"].usd_per_hour == 25
        events = len(app.events)
        await press(pilot, "at", *"-18s", "enter")
        await there(app, pilot, lambda: app.travel is not None and app.travel.money_ms == app.travel.at_ms)
        assert app.fleet["gpu-01"].usd_per_hour == 20 and "$20.00" in line_with(app, "gpu-01")
        assert app.files.as_of is not None and app.files.catalog().offers(cloud="aws", instance_type="p4d.24xlarge", region="us-east-1")
        await press(pilot, "E")
        assert all(event.at <= app.now() for event in app.shown_events().events)
        assert app._parked is not None
        app._parked.apply("gpu-01", wire.AlertEvent(alert=alert("gpu-01", since=_at(made), fired_at=_at(made))), made.seconds)
        await tick(app, pilot, clock, 5)
        assert "gpu_idle" not in text(app) and len(app.events) > events, "live is noted meanwhile"
        await press(pilot, "L")
        await there(app, pilot)
        assert app.fleet["gpu-01"].usd_per_hour == 25 and app.files.as_of is None and "gpu_idle" in text(app)


async def test_a_large_fleet_is_kept_less_often_and_never_more_than_the_bound(monkeypatch: Any) -> None:
    from tui.ui import time_buffer

    names = tuple(f"n{number}" for number in range(300))
    made = Stage(None, names)
    buffer = TimeBuffer(made.fleet, [_Node(name) for name in names], made.now_ms)
    assert buffer._recorder._every_ms == 300 / time_buffer.NODES_A_SECOND * 1000 > 1000
    made.fleet.tap = buffer._recorder
    monkeypatch.setattr(time_buffer, "MOST_BYTES", 120_000)
    monkeypatch.setattr(time_buffer, "PRUNE_WRITES", 2)
    for minute in range(6):
        for name in names:
            if not minute:
                made.connect(name)
        made.seconds += 61
        for name in names:
            made.sample(name, minute / 10)
        await buffer._write()
    recording = await buffer.recording()
    assert buffer._file is not None and buffer._file.size_bytes < 200_000, buffer._file.size_bytes
    assert recording.starts_ms > START_MS and isinstance(recording, Recording)
    await buffer.close()
    assert not buffer.has_any
