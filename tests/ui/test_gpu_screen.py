"""One GPU: every figure, its past over seven spans, who has it, what it cost; and the cursor that leads to it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from agent import wire
from tests.support.fake_nvml.state import PRESETS, G
from tests.support.fleets import AT, GIB, NOW, StubCatalog, gpu, idle_gpu, lost_gpu, process, put, sample, small_fleet
from tests.support.money_app import until
from tests.support.nvml import FakeNvml, fake_nvml  # noqa: F401  (a fixture)
from tests.support.screens import line_with, make_app, press, running, text, tick
from tui.config import NodeConfig
from tui.fleet import Fleet
from tui.ui.app import RackrateApp
from tui.ui.screens.gpu import GpuScreen
from tui.ui.screens.job import JobScreen
from tui.ui.screens.node import NodeScreen
from tui.ui.widgets.lines_view import LinesView

LINKS: dict[str, Any] = {
    "pcie_receive_bytes_per_second": 2.0 * GIB, "pcie_transmit_bytes_per_second": 512.0 * 2**20, "nvlinks": 12, "nvlinks_down": (3,),
    "nvlink_receive_bytes_per_second": 30.0 * GIB, "nvlink_transmit_bytes_per_second": 31.0 * GIB, "links_at": AT - timedelta(seconds=4),
}  # fmt: skip


def page(app: RackrateApp) -> str:
    return app.screen.query_one("#page", LinesView).plain


def fleet_of(*gpus: wire.Gpu, **fields: Any) -> Fleet:
    fleet = Fleet(StubCatalog())  # type: ignore[arg-type]
    put(fleet, "n", gpus, **fields)
    return fleet


@asynccontextmanager
async def shown(fleet: Fleet, uuid: str = "GPU-n-0", size: tuple[int, int] = (120, 60)) -> AsyncIterator[tuple[RackrateApp, Pilot[None]]]:
    app, _ = make_app(fleet)
    async with running(app, size) as pilot:
        app.open_gpu("n", uuid)
        await pilot.pause()
        yield app, pilot


async def test_every_fact_of_a_gpu_is_there() -> None:
    since = AT - timedelta(minutes=12)
    one = gpu(0, performance_state=2, memory_utilization_ratio=0.31, encoder_utilization_ratio=0.05, throttle_reasons=("sw_power_cap", "sw_thermal_slowdown"),
              throttle_since={"sw_power_cap": since}, xid_counts={"31": 2}, xid_last=31, xid_last_at=since, unsupported=("fan_ratio",),
              memory_reserved_bytes=GIB, allocations=(wire.GpuAllocation(job="j1", user="ada", project="vision", share=Decimal("0.5")),), **LINKS)  # fmt: skip
    inventory = wire.GpuInventory(
        index=0, uuid="GPU-n-0", pcie_generation_max=4, pcie_width_max=16, clock_sm_max_hertz=1_410_000_000, pci_bus_id="00000000:10:00.0",
        clock_memory_max_hertz=1_593_000_000, persistence_enabled=True, display_active=False, compute_mode="exclusive_process",
        serial="165", compute_capability="8.0", numa_node=1,
    )  # fmt: skip
    fleet = fleet_of(one)
    assert fleet["n"].info is not None
    fleet.apply("n", wire.NodeEvent(node=wire.NodeInfo(node="n", gpus=(inventory,))), NOW)
    fleet.apply("n", wire.SampleEvent(sample=sample("n", (one,), ancestors=(wire.Ancestor(pid=3999, user="ada", command="torchrun x.py"),))), NOW)
    async with shown(fleet) as (app, _):
        whole = page(app)
        for part in ("87%", "31.0/40.0G 78%", "memory traffic 31%", "312/400W", "64°C", "state P2", "fan – not supported",
                     "SM 1410 of 1410 MHz", "memory 1215 of 1593 MHz", "throttled by   sw power cap for 12m   sw thermal slowdown",
                     "gen 4 x16 of gen 4 x16   in 2.0G/s   out 512M/s   4s ago", "11 of 12 up (down: 3)   in 30.0G/s   out 31.0G/s",
                     "given to ada · vision · job j1  share 50%", "ECC corrected 0", "XID 31 ×2   last 31, 12m ago", "encoder 5%   decoder –",
                     "compute exclusive process   persistence on   display off   MIG –", "bus 00000000:10:00.0", "serial 165", "NUMA 1",
                     "kept by the driver 1.0G", "does not tell: fan ratio", "the ledger knows nothing of it yet"):  # fmt: skip
            assert part in whole, f"{part!r} is not in\n{whole}"
        assert "A100-SXM4-40GB" in text(app) and "ada" in text(app)


async def test_what_the_driver_does_not_tell_is_a_dash_with_its_reason() -> None:
    blind = gpu(0, util=None, power_watts=None, throttle_reasons=None, unsupported=("utilization_ratio", "nvlinks", "pcie_receive_bytes_per_second"))
    async with shown(fleet_of(blind)) as (app, _):
        whole = page(app)
        assert "util ────────── – not supported" in whole and "throttling –" in whole and "NVLink   – not supported" in whole
        assert "in, out – not supported" in whole


async def test_a_lost_gpu_keeps_its_screen_and_one_that_is_gone_says_so() -> None:
    app, clock = make_app(fleet_of(lost_gpu(0), idle_gpu(1)))
    async with running(app, (100, 40)) as pilot:
        app.open_gpu("n", "GPU-n-0")
        await pilot.pause()
        assert "fell off the bus" in page(app) and "XID 79 ×1" in page(app) and "lost" in text(app)
        app.fleet.apply("n", wire.SampleEvent(sample=sample("n", (idle_gpu(1),))), clock())
        await tick(app, pilot, clock)
        assert "does not tell of this GPU any more" in page(app)


async def test_keys_lead_in_along_and_out_and_the_span_goes_with_them() -> None:
    app, _ = make_app()
    async with running(app, (120, 50)) as pilot:
        await press(pilot, "enter")
        assert isinstance(app.screen, NodeScreen) and "last 15 min" in page(app)
        await press(pilot, "h", "down", "enter")
        assert isinstance(app.screen, GpuScreen) and app.screen.crumb() == "GPU 1" and "Last 1 h" in page(app)
        await press(pilot, "right_square_bracket", "H", "H")
        assert app.screen.crumb() == "GPU 2" and "Last 5 min" in page(app)
        await press(pilot, "left_square_bracket", "left_square_bracket", "left_square_bracket", *"HHHHH")
        assert app.screen.crumb() == "GPU 7" and "Last 1 min" in page(app)
        await press(pilot, *"hhhhhhhhh")
        assert "Last 7 days" in page(app)
        await press(pilot, "escape")
        assert isinstance(app.screen, NodeScreen) and app.screen.gpu == "GPU-a100-busy-1" and "last 7 days" in page(app)


async def test_the_cursor_goes_over_gpus_and_processes_and_stays_with_what_it_is_on() -> None:
    app, clock = make_app(fleet_of(gpu(0), gpu(1), idle_gpu(2)))
    async with running(app) as pilot:
        app.open_node("n")
        await pilot.pause()
        screen = app.screen
        assert isinstance(screen, NodeScreen) and line_with(app, "▌").startswith("▌ 0 busy")
        await press(pilot, "down", "down", "down", "down")
        assert screen.pane.cursor_key == "process GPU-n-1 4001" and screen.gpu == "GPU-n-1"
        fresh = (gpu(0), gpu(1, processes=(process(3000, "bob"), process(4001, "ada"))), idle_gpu(2))
        app.fleet.apply("n", wire.SampleEvent(sample=sample("n", fresh)), clock())
        await tick(app, pilot, clock)
        assert "4001" in line_with(app, "▌"), "another process came before it"
        app.fleet.apply("n", wire.SampleEvent(sample=sample("n", (gpu(0), idle_gpu(1), idle_gpu(2)))), clock())
        await tick(app, pilot, clock)
        assert screen.pane.cursor_key == "process GPU-n-0 4000", "it is gone: the one in its place"
        await press(pilot, "home", "pagedown", "end", "up", "pageup", "enter")
        assert isinstance(app.screen, GpuScreen)


async def test_enter_on_a_process_opens_its_job_and_a_double_click_its_gpu() -> None:
    job = wire.Job(node="n", id="4711", name="train", state="running", submitted_at=AT)
    fleet = fleet_of(gpu(0), gpu(1))
    fleet.apply("n", wire.JobEvent(job=job), NOW)
    app, _ = make_app(fleet)
    async with running(app, (100, 40)) as pilot:
        app.open_node("n")
        await pilot.pause()
        assert isinstance(app.screen, NodeScreen)
        await press(pilot, "end", "enter")
        assert isinstance(app.screen, JobScreen)
        await press(pilot, "escape", "home")
        row = next(y for y, line in enumerate(text(app).split("\n")) if "1 busy" in line)
        await pilot.click(offset=(20, row), times=2)
        await pilot.pause()
        assert isinstance(app.screen, GpuScreen) and app.screen.uuid == "GPU-n-1"


class AskedNode:
    """An agent that remembers what it was asked: waves with a gap, at the step of the span."""

    asked: list[int] = []

    async def __aenter__(self) -> AskedNode:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def history(self, seconds: int) -> wire.History:
        self.asked.append(seconds)
        step = 1 if seconds <= 900 else 10 if seconds <= 3600 else 60 if seconds <= 86_400 else 600
        moments = [AT - timedelta(seconds=step * back) for back in range(seconds // step - 1, -1, -1)]
        points = tuple(
            wire.HistoryPoint(taken_at=at, utilization_ratio=None if place % 100 > 79 else 0.5, power_watts=200.0, temperature_celsius=50.0,
                              memory_used_bytes=20 * GIB)
            for place, at in enumerate(moments)
        )  # fmt: skip
        return wire.History(node="n", step_seconds=float(step), gpus={"GPU-n-0": points})


async def test_only_the_span_that_is_looked_at_is_asked_for_and_again_only_when_it_is_due() -> None:
    AskedNode.asked = []
    app, clock = make_app(fleet_of(gpu(0)), nodes=(NodeConfig(name="n", url="http://127.0.0.1:1"),), client_for=lambda node: AskedNode())  # type: ignore[arg-type,return-value]
    async with running(app, (120, 50)) as pilot:
        app.open_gpu("n", "GPU-n-0")
        await pilot.pause()
        await until(pilot, lambda: 900 in AskedNode.asked)
        await tick(app, pilot, clock)
        assert "a point each 1s" in page(app) and "mean 50%" in page(app) and "% not known" in page(app) and "░" in page(app)
        for _ in range(30):
            fresh = wire.Sample(node="n", sequence=2, taken_at=clock.now(), gpus=(gpu(0),))
            app.fleet.apply("n", wire.SampleEvent(sample=fresh), clock())
            await tick(app, pilot, clock)
        assert AskedNode.asked.count(900) == 1, "what streams is not asked for"
        await press(pilot, "h")
        await until(pilot, lambda: 3600 in AskedNode.asked)
        for _ in range(5):
            await tick(app, pilot, clock)
        assert "a point each 10s, asked 5s ago" in page(app) and AskedNode.asked.count(3600) == 1
        await press(pilot, "h", "h", "h")
        await until(pilot, lambda: 604_800 in AskedNode.asked)
        await tick(app, pilot, clock)
        assert "Last 7 days" in page(app) and "a point each 10m" in page(app) and "mean 50%" in page(app)
        for _ in range(3):
            await tick(app, pilot, clock, 61)
            lost = AskedNode.asked.count(604_800)
            app.fleet.apply("n", wire.SampleEvent(sample=wire.Sample(node="n", sequence=3, taken_at=clock.now(), gpus=(gpu(0),))), clock())
            await tick(app, pilot, clock, 0)
            await until(pilot, lambda lost=lost: AskedNode.asked.count(604_800) == lost + 1)  # type: ignore[misc]
        assert AskedNode.asked.count(604_800) == 4, "each minute, and not while the node is lost"


@pytest.mark.parametrize("size", [(20, 5), (5, 2), (40, 12), (80, 24), (100, 20), (200, 60), (400, 100)])
async def test_a_gpu_can_be_looked_at_at_every_size(size: tuple[int, int]) -> None:
    app, _ = make_app(small_fleet())
    async with running(app, size) as pilot:
        for name, uuid in (("a100-busy", "GPU-a100-busy-3"), ("v100-broken", "GPU-v100-broken-3"), ("h100-gone", "GPU-h100-gone-0")):
            app.open_gpu(name, uuid)
            await pilot.pause()
            assert page(app)
        width = app.screen.query_one("#page").size.width
        assert all(len(line) <= max(width, 10) for line in page(app).split("\n"))


async def test_a_lost_gpu_does_not_take_the_sums_of_the_others_with_it() -> None:
    app, _ = make_app(fleet_of(gpu(0, **LINKS), gpu(1, **LINKS), lost_gpu(2)))
    async with running(app, (200, 60)) as pilot:
        app.open_node("n")
        await pilot.pause()
        assert "Last 15 min, 2 of 3 GPUs" in page(app) and "memory 62.0G" in page(app) and "nothing known" not in page(app)
        assert "NVLink 11/12 up" in page(app) and "61.0G/s both" in page(app) and "PCIe in   2.0G/s" in page(app)


async def test_even_twenty_by_five_cells_tell_what_counts() -> None:
    app, _ = make_app(small_fleet())
    async with running(app, (20, 5)) as pilot:
        app.open_node("a100-half")
        await pilot.pause()
        await press(pilot, "down", "down", "up")
        assert "busy   70%" in text(app)
        app.open_gpu("a100-half", "GPU-a100-half-0")
        await pilot.pause()
        assert "70%" in text(app) and "31.0/40.0G" in text(app) and "312/400W" in text(app)


async def test_a_node_that_was_never_heard_or_is_unknown_opens_nothing_that_breaks() -> None:
    app, _ = make_app()
    async with running(app) as pilot:
        app.open_gpu("nobody", "GPU-1")
        assert len(app.screen_stack) == 1
        app.open_gpu("never", "GPU-1")
        await pilot.pause()
        assert "any more" in page(app)


async def test_every_figure_of_nvitop_is_on_the_screen(fake_nvml: FakeNvml) -> None:
    """The same driver, read by nvitop and by our sensor; what nvitop tells of the GPU stands on its screen."""
    child = subprocess.Popen(["sleep", "600"])
    try:
        state = PRESETS["8xH100"]().busy(3, (child.pid, 13 * G, 53, 10), utilization=63)
        state.gpu(3, fan=43, power=303_000, clock__1=1203, clock__2=2602, pstate=1, enc=7, dec=9, util__mem=21, ecc__1__0=4, compute_mode=3)
        state.gpu(3, pcie__0=1_024_000, pcie__1=2_048_000)
        fake_nvml.use(state)
        theirs = json.loads(fake_nvml.run([sys.executable, "-m", "tests.support.nvitop_reads"]))[3]
        with fake_nvml.sensor(link_seconds=0.2) as sensor:
            gpus = sensor.gpus()
            while gpus[3].links_at is None:
                gpus = sensor.gpus()
            inventory = sensor.inventory
    finally:
        child.kill()
        child.wait()
    fleet = fleet_of(*gpus)
    info = fleet["n"].info
    assert info is not None
    fleet.apply("n", wire.NodeEvent(node=wire.NodeInfo(node="n", gpus=inventory)), NOW)
    more = theirs["shown"]
    async with shown(fleet, gpus[3].uuid, (160, 60)) as (app, _):
        whole = " ".join((text(app) + page(app)).split())
        for part in (
            theirs["name"].removeprefix("NVIDIA "), theirs["uuid"], f"{theirs['utilization']}%", f"{theirs['memory_used'] / 2**30:.1f}/79.6G",
            f"{theirs['power'] // 1000}/{theirs['limit'] // 1000}W", f"{theirs['temperature']}°C", f"fan {theirs['fan']}%",
            f"SM {theirs['sm_clock']} of {more['most'][0]} MHz", f"memory {more['memory clock']} of {more['most'][1]} MHz",
            f"memory traffic {more['memory traffic']}%", f"encoder {more['encoder']}% decoder {more['decoder']}%",
            f"state {more['performance state']}", f"not corrected {more['ecc']}", f"bus {more['bus']}", "persistence on", "display off",
            f"compute {more['compute mode'].lower()}", str(theirs["processes"][0]["pid"]), theirs["processes"][0]["user"], "13.0G", "53%", "sleep 600",
        ):  # fmt: skip
            assert part in whole, f"{part!r} is not in\n{whole}"
        assert more["pcie"] == [2_048_000, 1_024_000] and "in 1.9G/s out 977M/s" in whole, "their KiB per second are NVML's KB"


async def test_energy_and_money_of_today_come_from_the_ledger(tmp_path: Path) -> None:
    from pricing.ledger import Ledger
    from pricing.usage import WHOLE_SHARE, Placed, Usage

    start = AT.replace(hour=0, minute=0, second=0, microsecond=0)
    begin = round(start.timestamp() * 1000)
    rows = [
        Usage(sequence=n + 1, starts_ms=begin + n * 3_600_000, ends_ms=begin + (n + 1) * 3_600_000, gpu="GPU-n-0", kind=kind, reason=None,
              share_millionths=WHOLE_SHARE, user=user, project=None, job=None, utilization_ratio=0.5, energy_millijoules=3_600_000_000,
              energy_source="counter", placement=1)
        for n, (kind, user) in enumerate([("held", "ada"), ("idle", None)])
    ]  # fmt: skip
    placed = Placed(1, "n", "aws", "us-east-1", "use1-az1", "p4d.24xlarge", "on_demand", gpu_count=8, gpu_model="A100", tags={})
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        ledger.take("n", "m", rows, [placed], 1)
    app, _ = make_app(fleet_of(*(gpu(n) for n in range(8))), ledger_path=tmp_path / "ledger.db", timezone="UTC")
    async with running(app, (120, 50)) as pilot:
        app.open_gpu("n", "GPU-n-0")
        await pilot.pause()
        await until(pilot, lambda: "kWh" in page(app))
        line = next(line for line in page(app).split("\n") if "today" in line)
        assert "2.00 kWh" in line and "ledger of 12h ago" in line
        cost = [part for part in line.split() if part.startswith("$")]
        assert cost[0] == f"${2 * Decimal(cost[1].removeprefix('$')):.2f}" or abs(Decimal(cost[0][1:]) - 2 * Decimal(cost[1][1:])) <= Decimal("0.01")
        await press(pilot, "escape")
        app.open_node("n")
        await until(pilot, lambda: "2.00 kWh" in text(app))
