"""The app on a prepared fleet, without a terminal and without a network, and what is on its screen as text.

Invariant: time moves only when a test moves it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from textual.pilot import Pilot
from textual.widgets import Input

from tests.support import at_rest
from tests.support.fleets import Clock, small_fleet
from tests.support.wording import well_worded
from tui.fleet import Fleet
from tui.ui.app import RackrateApp
from tui.ui.screens.fleet import FleetScreen
from tui.ui.theme import DARK
from tui.ui.widgets.fleet_table import FleetTable

at_rest.install()
Pilot._wait_for_screen.__defaults__ = (120.0,)  # Textual gives up after 30 s, which a process with a tenth of a core needs
RackrateApp.NOTIFICATION_TIMEOUT = 3600.0  # a notice would go away while a busy machine still paints it


def make_app(fleet: Fleet | None = None, clock: Clock | None = None, **options: Any) -> tuple[RackrateApp, Clock]:
    """The app and the clock it looks at."""
    clock = clock or Clock()
    app = RackrateApp(
        small_fleet() if fleet is None else fleet, clock=clock, now=clock.now, **{"theme": DARK, "unicode": True, **options}
    )
    return app, clock


@asynccontextmanager
async def running(app: RackrateApp, size: tuple[int, int] = (80, 24)) -> AsyncIterator[Pilot[None]]:
    async with app.run_test(size=size, notifications=True) as pilot:
        await pilot.pause()
        yield pilot


async def press(pilot: Pilot[None], *keys: str) -> None:
    """One after the other; text that goes into a field at once, for each wait looks at every widget of a screen."""
    rest = list(keys)
    while rest:
        count = 1
        if isinstance(pilot.app.focused, Input):
            count = max(1, next((place for place, key in enumerate(rest) if len(key) > 1), len(rest)))
        await pilot.press(*rest[:count])
        del rest[:count]
    await pilot.pause()


async def tick(app: RackrateApp, pilot: Pilot[None], clock: Clock, seconds: float = 1.0) -> None:
    """Time goes on, and the app notices."""
    clock.at += seconds
    app.tick()
    await pilot.pause()


def text(app: RackrateApp) -> str:
    """All that is painted."""
    rows = app.screen._compositor.render_strips()
    return well_worded("\n".join("".join(segment.text for segment in row).rstrip() for row in rows))


def line_with(app: RackrateApp, part: str) -> str:
    """The first painted line that holds `part`."""
    found = [line for line in text(app).split("\n") if part in line]
    assert found, f"{part!r} is not on the screen:\n{text(app)}"
    return found[0]


def table(app: RackrateApp) -> FleetTable:
    """The fleet's table, wherever the app is."""
    screen = next(screen for screen in app.screen_stack if isinstance(screen, FleetScreen))
    return screen.table
