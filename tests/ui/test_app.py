"""The app as a whole: it never dies of a node, the ledger or the catalog, at any size."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from agent import wire
from agent.client import Unreachable
from tests.support.fleets import AT, Clock, StubCatalog, gpu, info, many, sample, small_fleet
from tests.support.jobs import job_fleet
from tests.support.screens import line_with, make_app, press, running, table, text, tick
from tui.config import NodeConfig
from tui.fleet import Fleet
from tui.ui import app as app_module
from tui.ui import background
from tui.ui.background import CatalogRead, CostsRead
from tui.ui.start import exit_line
from tui.watch import Watcher
from tui.ui.panes.header import Costs, _states
from tui.ui.screens import advice, costs, market  # noqa: F401 - else they are imported in a thread, and opened later
from tui.ui.screens.alerts import AlertsScreen, AlertTable

SIZES = [(20, 5), (0, 0), (10, 2), (1, 1), (40, 8), (3, 1), (60, 11), (100, 30)]
"""Usual and large ones are those of tests/ui/test_snapshots.py."""


@pytest.mark.parametrize(
    "keys",
    [(), ("enter",), ("a",), ("question_mark",), ("colon",), ("slash", *"a:b"), ("j",), ("j", "enter"),
     ("j", "x"), ("j", "n"), ("c",), ("c", "e"), ("m",), ("m", "enter"), ("v",), ("v", "enter")],
    ids=lambda keys: "".join(keys) or "fleet",
)  # fmt: skip
async def test_every_screen_survives_every_size(keys: tuple[str, ...]) -> None:
    app, clock = make_app(job_fleet() if keys[:1] == ("j",) else None)
    async with running(app, (80, 24)) as pilot:
        await press(pilot, *keys)
        for size in SIZES:
            await pilot.resize_terminal(*size)
            await tick(app, pilot, clock)
            await press(pilot, "down")
            assert app._exception is None, size
            await until(lambda size=size: not size[1] or len(text(app).split("\n")) == size[1])  # type: ignore[misc]


async def test_20x5_still_shows_states_and_names() -> None:
    app, _ = make_app()
    async with running(app, (20, 5)) as pilot:
        assert "lost   h100-gone" in text(app)
        await press(pilot, "end")
        assert "v100-broken" in text(app) or "v100" in text(app)


async def test_resizing_there_and_back_gives_the_same_picture() -> None:
    app, _ = make_app()
    async with running(app) as pilot:
        before = text(app)
        for size in ((200, 60), (40, 10), (80, 24)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
        assert text(app) == before


@pytest.mark.parametrize("key", ["q", "f10", "ctrl+c", "ctrl+q"])
async def test_quitting_ends_with_0(key: str) -> None:
    app, _ = make_app()
    async with running(app) as pilot:
        await pilot.press(key)
        await pilot.pause()
    assert app.return_code == 0


async def test_ctrl_c_quits_also_from_the_filter_and_the_palette() -> None:
    for keys in (("slash",), ("colon",)):
        app, _ = make_app()
        async with running(app) as pilot:
            await press(pilot, *keys, "ctrl+c")
        assert app.return_code == 0


async def test_an_error_of_the_ledger_is_a_notice_and_the_figures_stay() -> None:
    app, _ = make_app(costs=Costs(today=Fraction(5), month=Fraction(50)))
    async with running(app, (120, 40)) as pilot:
        app.post_message(CostsRead(Costs(error="ledger.db was written by a newer version; update rackrate")))
        await pilot.pause()
        await pilot.pause()
        assert "newer version" in text(app)
        assert "today $5.00   month $50.00" in text(app)
        app.post_message(CostsRead(Costs(today=Fraction(6), month=Fraction(51))))
        await pilot.pause()
        assert "today $6.00" in text(app)


async def test_a_catalog_that_cannot_be_read_leaves_the_fleet_on_the_screen() -> None:
    app, _ = make_app()
    async with running(app, (120, 40)) as pilot:
        app.post_message(CatalogRead(None, "The prices could not be read: table damaged"))
        await pilot.pause()
        await pilot.pause()
        assert "could not be read" in text(app) and "a100-busy" in text(app)


class FakeClient:
    """A node in memory: streams once and stays open, remembers a minute."""

    left_out = 0

    def __init__(self, node: NodeConfig) -> None:
        self.name = node.name

    async def __aenter__(self) -> FakeClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def stream(self) -> AsyncIterator[wire.Event]:
        if self.name == "bad":
            raise Unreachable("127.0.0.1:1 is not reachable: the connection was refused")
        if self.name != "hangs":
            yield wire.NodeEvent(node=info(self.name, (gpu(0, node=self.name),)))
            yield wire.SampleEvent(sample=sample(self.name, (gpu(0, node=self.name),)))
        await asyncio.Event().wait()

    async def history(self, seconds: int) -> wire.History:
        from datetime import timedelta

        points = tuple(
            wire.HistoryPoint(taken_at=AT - timedelta(seconds=seconds - i), utilization_ratio=0.5) for i in range(seconds)
        )
        return wire.History(node=self.name, step_seconds=1.0, gpus={f"GPU-{self.name}-0": points})

    async def aclose(self) -> None:
        await asyncio.sleep(0)


def live_app(*names: str, **options: Any) -> app_module.RackrateApp:
    nodes = [NodeConfig(name=name, url="http://127.0.0.1:1/") for name in names]
    fleet = Fleet(StubCatalog())  # type: ignore[arg-type]
    for node in nodes:
        fleet.add(node.name, node.url)
    return app_module.RackrateApp(fleet, nodes=nodes, client_for=FakeClient, theme="rackrate-dark", unicode=True, **{"clock": Clock(), **options})  # type: ignore[arg-type]


async def until(holds: Any, seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.02)


async def test_the_app_opens_streams_after_its_first_paint_and_a_hanging_node_hinders_nobody() -> None:
    app = live_app("good", "hangs", "bad")
    async with running(app) as pilot:
        await until(lambda: app.fleet["good"].sample is not None and app.fleet["bad"].error)
        app.tick()
        await pilot.pause()
        assert "live" in line_with(app, "good") and "lost" in line_with(app, "bad") and "…" in line_with(app, "hangs")
    assert app.live is not None


async def test_opening_a_node_asks_it_for_the_minute_before() -> None:
    app = live_app("good")
    async with running(app) as pilot:
        await until(lambda: app.fleet["good"].sample is not None)
        app.open_node("good")
        await until(lambda: app.fleet["good"].past.known("GPU-good-0") >= 59)
        await pilot.pause()
        assert "⣿" in text(app)


async def test_the_ledger_is_read_in_a_thread_of_its_own_and_never_twice_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calls: list[str] = []
    going = threading.Event()

    def slow(*_: object) -> Costs:
        calls.append(threading.current_thread().name)
        going.wait(60)
        return Costs(today=Fraction(7), month=Fraction(70))

    monkeypatch.setattr(background, "read_costs", slow)
    monkeypatch.setattr(app_module, "FIRST_SECONDS", 3600.0)  # only the test's own syncs are counted
    app = live_app("good", ledger_path=tmp_path / "ledger.db")
    async with running(app) as pilot:
        app.sync_ledger()
        app.sync_ledger()
        await until(lambda: calls)
        going.set()
        await until(lambda: app.costs.today == 7)
        await pilot.pause()
        assert "today $7.00" in text(app)
    assert calls == ["rackrate-ledger"]


async def test_leaving_does_not_wait_for_a_ledger_that_hangs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    going = threading.Event()
    monkeypatch.setattr(background, "read_costs", lambda *_: going.wait(600) and Costs())
    app = live_app("good", ledger_path=tmp_path / "ledger.db")
    began = time.monotonic()
    async with running(app):
        app.sync_ledger()
    assert time.monotonic() - began < 60
    going.set()


async def test_an_exception_in_the_ledger_thread_is_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken(*_: object) -> Costs:
        raise OSError("disk full")

    monkeypatch.setattr(background, "read_costs", broken)
    app = live_app("good", ledger_path=tmp_path / "ledger.db")
    async with running(app, (120, 40)) as pilot:
        app.sync_ledger()
        await until(lambda: app.costs.error == "disk full")
        await pilot.pause()
        assert "disk full" in text(app) and app.is_running


async def test_alerts_list_the_fleet_with_reading_limit_age_and_money_and_enter_opens_the_node() -> None:
    app, _ = make_app()
    async with running(app, (160, 30)) as pilot:
        await press(pilot, "a")
        row = line_with(app, "gpu idle held")
        for part in ("warning", "a100-half", "3 %", "20 %", "25m", "$4.10", "GPU 1 is held by bob"):
            assert part in row
        assert "node silent" in line_with(app, "h100-gone") and "$98.32" in line_with(app, "h100-gone")
        assert text(app).index("critical") < text(app).index("warning")
        await press(pilot, "down", "enter")
        assert app.screen.node == "a100-half"  # type: ignore[attr-defined]
        await press(pilot, "escape", "escape")
        assert len(app.screen_stack) == 1


async def test_a_budget_that_is_spent_stands_among_the_alerts_and_in_the_header() -> None:
    app, clock = make_app()
    told = wire.Alert(
        key="budget:vision:2026-11:spent:100", rule="budget", severity="critical", node="",
        message="Budget vision (project vision): $1,040.00 of $1,000.00 spent in 2026-11, 104%: past 100 %.", reading="104%",
        threshold="100 %", since=clock.now(), fired_at=clock.now(), holders=("vision",),
    )  # fmt: skip
    async with running(app, (150, 24)) as pilot:
        before = line_with(app, "month")
        assert "budget" not in before
        app.post_message(CostsRead(Costs(today=Fraction(6), month=Fraction(51), alerts=(told,))))
        await pilot.pause()
        assert "budget vision 104%" in line_with(app, "month $51.00")
        await press(pilot, "a")
        assert "104%" in line_with(app, "Budget vision (project vision)")
        app.post_message(CostsRead(Costs(error="the disk is full")))
        await pilot.pause()
        assert "budget vision 104%" in line_with(app, "month $51.00"), "what was known stays"
        app.screen.query_one(AlertTable).set_keys(list(app.screen.query_one(AlertTable).alerts))
        for alert in list(app.screen.query_one(AlertTable).alerts.values()):
            if not alert.node:
                app.open_node(alert.node)
        assert isinstance(app.screen, AlertsScreen), "there is no node to go to"


async def test_without_alerts_the_screen_says_so() -> None:
    app, _ = make_app(many(2))
    async with running(app) as pilot:
        await press(pilot, "a", "enter", "down")
        assert isinstance(app.screen, AlertsScreen)
        assert "No alerts" in text(app) and not app.screen.query_one(AlertTable).keys


async def test_help_lists_signs_filters_and_keys() -> None:
    app, _ = make_app()
    async with running(app, (100, 60)) as pilot:
        await press(pilot, "question_mark")
        for part in ("Filter the rows", "F3", "nobody holds", "state:idle", "IDLE $/H", "state:failed", "Submit a new job"):
            assert part in app.screen.query_one("#page").plain  # type: ignore[attr-defined]
        await press(pilot, "end", "escape")
        assert len(app.screen_stack) == 1


async def test_the_fleet_catches_up_when_it_is_shown_again() -> None:
    app, clock = make_app()
    async with running(app) as pilot:
        await press(pilot, "enter")
        await tick(app, pilot, clock, 30)
        await press(pilot, "escape")
        assert "lost" in line_with(app, "a100-busy")
        assert table(app).has_focus


def test_the_exit_line_says_what_was_watched() -> None:
    fleet = small_fleet()
    line = exit_line(fleet, lambda: 1000.0, 600)
    assert line.startswith("watched 8 nodes for 10 m: $192.94/h, idle $22.5")
    assert line.endswith("(2 without a price)")


def test_a_thousand_nodes_are_counted_alike_wherever_they_are_counted() -> None:
    fleet = Fleet()
    for place in range(1200):
        fleet.add(f"n{place}", "http://127.0.0.1:1")
    assert exit_line(fleet, lambda: 1.0, 5).startswith("watched 1,200 nodes for 5 s: ")
    assert _states(fleet.totals(1.0))[-1][0] == "1,200 connecting"
    watcher = Watcher(lambda view, now: True)
    assert "watching 1,200 nodes: 0 live" in [*watcher.look(fleet, 1.0), *watcher.look(fleet, 1000.0)][0].text


async def test_a_time_zone_is_shown_with_its_offset() -> None:
    app, _ = make_app(timezone="Asia/Kolkata")
    async with running(app, (120, 30)):
        assert "19:35 +05:30" in text(app)


def test_the_exit_line_of_a_fleet_without_prices_names_no_sum() -> None:
    fleet = Fleet()
    fleet.add("n1", "http://127.0.0.1:1")
    assert exit_line(fleet, lambda: 1.0, 5).endswith("cost not known")


async def test_a_first_sync_that_brought_nothing_is_repeated_soon(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answers = [Costs(), Costs(), Costs(today=Fraction(3), month=Fraction(3))]
    monkeypatch.setattr(background, "read_costs", lambda *_: answers.pop(0))
    monkeypatch.setattr(background.Background, "_retry_seconds", 0.02)
    app = live_app("good", ledger_path=tmp_path / "ledger.db")
    async with running(app):
        app.sync_ledger()
        await until(lambda: app.costs.today == 3)
