"""What is seen around a dialog goes on: ages grow, values change, a note goes away."""

from __future__ import annotations

from agent import wire
from tests.support.fleets import AT, NOW, gpu, small_fleet
from tests.support.screens import line_with, make_app, press, running, text, tick
from tui.ui.screens.confirm import ConfirmScreen
from tui.ui.screens.palette import PaletteScreen


async def test_ages_grow_and_values_change_under_a_palette_and_under_a_question() -> None:
    fleet = small_fleet()
    app, clock = make_app(fleet)
    async with running(app, (120, 40)) as pilot:
        app.screen.note("a note", seconds=3)  # type: ignore[attr-defined]
        await press(pilot, "ctrl+p")
        assert isinstance(app.screen, PaletteScreen)
        await tick(app, pilot, clock, 20)
        assert app.seen is app.screen_stack[0] and "a note" not in text(app)
        await press(pilot, "escape")
        assert " 28s" in line_with(app, "t4-stale")
        app.push_screen(ConfirmScreen("Stop it?", (), "Keep", "Stop"))
        await pilot.pause()
        await tick(app, pilot, clock, 30)
        assert "58s" in line_with(app, "t4-stale") and "Stop it?" in text(app)
        sample = wire.Sample(node="a100-busy", taken_at=AT, sequence=9, gpus=tuple(gpu(n, node="a100-busy", util=0.11) for n in range(8)))
        fleet.apply("a100-busy", wire.SampleEvent(sample=sample), clock.at)
        await tick(app, pilot, clock, 1)
        assert "11%" in line_with(app, "a100-busy")
        assert clock.at > NOW
