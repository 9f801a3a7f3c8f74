"""One node: GPUs, processes, host, price and what is wrong."""

from __future__ import annotations

import pytest

from agent import wire
from tests.support.fleets import GIB, StubCatalog, gpu, process, put, sample, small_fleet
from tests.support.screens import line_with, make_app, press, running, table, text, tick
from tui.fleet import Fleet
from tui.ui.app import RackrateApp
from tui.ui.screens.node import NodeScreen
from tui.ui.widgets.lines_view import LinesView


def page(app: RackrateApp) -> str:
    """The whole page, also what is scrolled away."""
    return app.screen.query_one("#page", LinesView).plain


async def node_page(name: str, fleet: Fleet | None = None, size: tuple[int, int] = (120, 50)) -> str:
    app, _ = make_app(fleet)
    async with running(app, size) as pilot:
        app.open_node(name)
        await pilot.pause()
        return page(app)


async def test_enter_opens_the_node_under_the_cursor_and_esc_goes_back() -> None:
    app, _ = make_app()
    async with running(app) as pilot:
        await press(pilot, "down", "enter")
        assert isinstance(app.screen, NodeScreen) and app.screen.node == "a100-half"
        await press(pilot, "escape")
        assert len(app.screen_stack) == 1 and table(app).cursor_key == "a100-half"
        await press(pilot, "enter", "backspace")
        assert len(app.screen_stack) == 1


async def test_each_gpu_shows_all_its_readings() -> None:
    shown = await node_page("a100-busy")
    for part in ("55%", "31.0/40.0G", "312/400W", "64°C", "1410 MHz", "1215 MHz", "PCIe 4x16", "ECC 0+0", "not throttled",
                 "ada · vision", "8 x A100-SXM4-40GB", "driver 550.90.07", "CUDA 12.4"):  # fmt: skip
        assert part in shown, part
    assert any("\u2801" <= c <= "\u28ff" for c in shown), "a minute is drawn"


async def test_a_process_shows_who_what_and_how_much() -> None:
    fleet = Fleet(StubCatalog())  # type: ignore[arg-type]
    mine = process(12, "ada", memory_used_bytes=5 * GIB, utilization_ratio=0.5, job="4711", project="vision")
    hidden = process(
        13,
        None,
        command=None,
        visible=False,
        memory_used_bytes=None,
        utilization_ratio=None,
        job=None,
        project=None,
        started_at=None,
    )
    put(fleet, "n", (gpu(0, processes=(mine, hidden)),))
    shown = await node_page("n", fleet)
    row = next(line for line in shown.split("\n") if " 12 " in line)
    for part in ("ada", "vision", "4711", "5.0G", "50%", "5h", "python train.py"):
        assert part in row
    row = next(line for line in shown.split("\n") if " 13 " in line)
    assert "?" in row and "not visible from here" in row and row.count("–") >= 4


async def test_a_lost_gpu_keeps_its_line_and_says_why() -> None:
    shown = await node_page("v100-broken")
    assert "lost" in shown and "fell off the bus" in shown and "XID 79" in shown


async def test_a_throttled_gpu_says_by_what_and_an_idle_one_is_not_throttled() -> None:
    fleet = Fleet(StubCatalog())  # type: ignore[arg-type]
    put(
        fleet,
        "n",
        (
            gpu(0, throttle_reasons=("gpu_idle", "hw_thermal_slowdown")),
            gpu(1, throttle_reasons=("gpu_idle",)),
            gpu(2, throttle_reasons=None),
        ),
    )
    shown = await node_page("n", fleet)
    assert "throttled by" in shown and "thermal (hw)" in shown and "gpu idle" not in shown
    assert "not throttled" in shown and "not known" in shown
    narrow = await node_page("n", fleet, (80, 24))
    assert "throttled by thermal (hw)" in narrow


async def test_uncorrected_ecc_errors_are_counted() -> None:
    fleet = Fleet(StubCatalog())  # type: ignore[arg-type]
    put(
        fleet,
        "n",
        (gpu(0, ecc_corrected_total=2, ecc_uncorrected_total=1), gpu(1, ecc_corrected_total=None, ecc_uncorrected_total=None)),
    )
    shown = await node_page("n", fleet)
    assert "ECC 2+1" in shown and "ECC –" in shown


async def test_the_host_and_the_price_with_its_date_and_source_are_there() -> None:
    shown = await node_page("a100-half")
    for part in ("96 CPUs", "load 40.2 38.0 33.9", "410G/1.1T", "swap", "in 296M/s", "130G free of 200G", "on /",
                 "~$32.77/h", "idle $16.39/h", "AWS price list, 2026-11-01", "p4d.24xlarge", "aws us-east-1 use1-az1", "spot",
                 "Intel Xeon Platinum 8275CL"):  # fmt: skip
        assert part in shown, part


async def test_an_unknown_price_says_why() -> None:
    shown = await node_page("mystery")
    assert "not known" in shown and "x9.unheard is not in the price tables" in " ".join(shown.split())


async def test_a_node_without_gpus_says_why_and_shows_its_host() -> None:
    shown = await node_page("cpu-head")
    assert "no NVIDIA driver is loaded" in shown and "96 CPUs" in shown and "$0.68/h" in shown


async def test_a_silent_node_shows_its_error_and_its_last_values() -> None:
    app, _ = make_app()
    async with running(app, (120, 50)) as pilot:
        app.open_node("h100-gone")
        await pilot.pause()
        assert "lost 3m" in text(app)
        assert "is not reachable: the connection was refused" in page(app)
        assert "31.0/40.0G" in page(app)


async def test_a_node_never_heard_says_that_and_its_address() -> None:
    shown = await node_page("never")
    assert "http://127.0.0.1:1/" in shown and "has not answered yet" in shown


async def test_a_sensor_that_failed_is_named_with_its_error() -> None:
    fleet = Fleet(StubCatalog())  # type: ignore[arg-type]
    sensors = (
        wire.SensorReport(name="host", ok=False, error="driver unresponsive for 12 s"),
        wire.SensorReport(name="nvml", ok=True),
    )
    put(fleet, "n", (gpu(0),), sample_fields={"sensors": sensors})
    shown = await node_page("n", fleet)
    assert "sensor host: driver unresponsive for 12 s" in shown and "sensor nvml" not in shown


async def test_alerts_stand_first_with_their_money() -> None:
    shown = await node_page("a100-half")
    assert shown.startswith("Attention")
    assert "GPU 1 is held by bob" in shown and "$4.10/h" in shown and "25m" in shown


async def test_brackets_walk_through_the_nodes_in_the_order_of_the_table() -> None:
    app, _ = make_app()
    async with running(app) as pilot:
        await press(pilot, "enter", "right_square_bracket")
        assert app.screen.node == table(app).keys[1]  # type: ignore[attr-defined]
        await press(pilot, "left_square_bracket", "left_square_bracket")
        assert app.screen.node == table(app).keys[-1]  # type: ignore[attr-defined]


async def test_values_go_on_while_the_screen_is_open() -> None:
    app, clock = make_app()
    async with running(app, (120, 50)) as pilot:
        app.open_node("a100-busy")
        await pilot.pause()
        fresh = tuple(gpu(i, node="a100-busy", util=0.11) for i in range(8))
        app.fleet.apply("a100-busy", wire.SampleEvent(sample=sample("a100-busy", fresh)), clock.at + 1)
        await tick(app, pilot, clock)
        assert "11%" in line_with(app, " 0 busy")


async def test_at_80_columns_utilisation_memory_power_and_temperature_are_there() -> None:
    app, _ = make_app()
    async with running(app) as pilot:
        await press(pilot, "enter")
        line = line_with(app, " 0 busy")
        assert all(part in line for part in ("55%", "31.0/40.0G", "312/400W", "64°C"))


@pytest.mark.parametrize("name", [view.name for view in small_fleet()])
@pytest.mark.parametrize("size", [(20, 5), (80, 24), (200, 60), (5, 2)])
async def test_every_kind_of_node_can_be_shown_at_every_size(name: str, size: tuple[int, int]) -> None:
    assert await node_page(name, size=size)
