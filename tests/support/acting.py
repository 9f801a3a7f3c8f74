"""The app with nodes in memory, up to the end of an action: what is asked, confirmed, waited for and sent.

Invariant: time moves only when a test moves it, so nothing is sent before the test says that five seconds are over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from textual import events
from textual.keys import _character_to_key
from textual.pilot import Pilot
from textual.screen import ModalScreen

from tests.support.fleets import Clock, StubCatalog, gpu, put
from tests.support.jobs import FakeNode, asked_nodes, job, job_fleet, tell
from tests.support.screens import make_app, press, text
from tui.fleet import Fleet
from tui.ui.app import RackrateApp
from tui.ui.blast import BACK_SECONDS
from tui.ui.widgets.lines_view import RaisedLines

CHANGING = ("cancel", "signal", "submit", "start", "upload", "drain", "undrain", "pause_alerts", "resume_alerts", "mps_set")
"""Calls of a client that change something on a node."""


def big_fleet(count: int = 12) -> Fleet:
    """`count` nodes, each with a job that runs."""
    fleet = Fleet(StubCatalog())  # type: ignore[arg-type]
    for number in range(count):
        name = f"gpu-{number:02}"
        put(fleet, name, (gpu(0, node=name), gpu(1, node=name)))
        tell(fleet, job(number, name, user="ada" if number % 2 else "bob", gpus=(f"GPU-{name}-0",), gpus_wanted=1))
    return fleet


def mark_all(app: Any) -> None:
    """As if Space was pressed on each row."""
    table = app.screen.table
    table.marks = set(table.keys)


def acting(fleet: Fleet | None = None, **options: Any) -> tuple[RackrateApp, Clock, dict[str, FakeNode]]:
    """All nodes of the fleet answer."""
    fleet = job_fleet() if fleet is None else fleet
    nodes = {view.name: FakeNode(view.name, (one.job for one in view.jobs)) for view in fleet}
    app, clock = make_app(fleet, **{**asked_nodes(*nodes.values()), **options})
    app._import_slowly = lambda: None  # type: ignore[method-assign]
    return app, clock, nodes


def changes(nodes: dict[str, FakeNode]) -> list[tuple[Any, ...]]:
    """What was asked of nodes that changes something: (node, call, arguments ...)."""
    return [(name, *call) for name, node in nodes.items() for call in node.calls if call[0] in CHANGING]


async def until(holds: Callable[[], object], seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.005)


async def let_be(app: RackrateApp, pilot: Pilot[None], clock: Clock) -> None:
    """The five seconds go by, and all that is sent is answered."""
    clock.at += BACK_SECONDS + 0.1
    before = set(app.asking._tasks)
    app.look_at_pending()
    sending = app.asking._tasks - before
    await until(lambda: not sending & app.asking._tasks)
    for _ in range(3):
        await pilot.pause()


async def confirm(app: RackrateApp, pilot: Pilot[None], clock: Clock) -> None:
    """Yes to the dialog, and not taken back."""
    await press(pilot, "right", "enter")
    await let_be(app, pilot, clock)


def shown(app: RackrateApp) -> str:
    """What the dialog says, in one line; without a dialog all that is painted."""
    if isinstance(app.screen, ModalScreen):
        panes = app.screen.query(RaisedLines)
        return " ".join(" ".join("".join(part for part, _ in line) for pane in panes for line in pane.lines).split())
    return " ".join(text(app).split())


def paste_raw(app: RackrateApp, text: str) -> None:
    """As a terminal without bracketed paste sends it: a key each, and none waits for what the one before did."""
    for sign in text:
        key = {"\n": "enter", "\t": "tab", " ": "space"}.get(sign) or _character_to_key(sign)
        app.post_message(events.Key(key, "\r" if sign == "\n" else sign))
