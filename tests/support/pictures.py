"""Pictures of every screen of the app, from one recording of the demo fleet.

`python -m tests.support.pictures FOLDER [RECORDING]`: records for a minute unless a recording is given; of the same recording
the same pictures are drawn.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tui.commands.context import Context
from tui.commands.record import record_nodes
from tui.commands.recorded import RecordedContext
from tui.demo import simulated_fleet
from tui.screenshot import KEYS, go_to, picture_of, recorded_app, write_picture
from tui.ui.action import SCREENS, Scope

SECONDS = 60.0
JOB_SCREENS = ("jobs", "job", "submit")
"""Simulated nodes run no jobs: these are drawn by `tests.support.job_pictures`."""


class Picture(NamedTuple):
    """`keys` are pressed once the screen is there."""

    screen: str
    size: tuple[int, int] = (140, 40)
    node: str | None = None
    keys: tuple[str, ...] = ()


PICTURES: dict[str, Picture] = {
    "fleet": Picture("fleet", (140, 36)),
    "node": Picture("node", (140, 48), "v100-lab-01"),
    "gpu": Picture("gpu", (140, 44), "h100-train-02", ("H",)),
    "alerts": Picture("alerts", (130, 22)),
    "costs": Picture("costs", (140, 36)),
    "market": Picture("market", (140, 30), None, ("slash", *"H100", "enter")),
    "advice": Picture("advice", (140, 44)),
    "card": Picture("advice", (120, 44), None, ("enter",)),
    "help": Picture("help", (120, 44)),
}


PREPARED: dict[Scope, tuple[int, int]] = {
    "events": (130, 24), "budgets": (140, 24), "submit": (120, 40), "curves": (120, 34), "price": (120, 36),
}  # fmt: skip
"""A minute of the demo has nothing for these: they show the fleet and the money of `tests.support.snapshots`."""


async def draw_prepared(folder: Path) -> None:
    """The screens of PREPARED, from one start of the app."""
    from tests.support import snapshots
    from tests.support.screens import running

    mode = snapshots.MODES["dark"]
    with tempfile.TemporaryDirectory() as home:
        app, _ = snapshots.prepared(mode, snapshots.money(Path(home)))
        async with running(app, (140, 40)) as pilot:
            for screen, size in PREPARED.items():
                await snapshots.opened(app, pilot, screen)
                write_picture(await snapshots.picture(app, pilot, size, mode), folder / f"{screen}.png")
                print(f"wrote {folder / screen}.png")


def missing() -> list[str]:
    """Screens of the app that no picture shows."""
    drawn = {*PICTURES, *PREPARED, *(one.screen for one in PICTURES.values()), *JOB_SCREENS}
    return [screen for screen in SCREENS if screen not in drawn]


def record_demo(path: Path, seconds: float = SECONDS) -> None:
    """A recording of the demo fleet, with the day that is simulated before it."""
    with simulated_fleet(seed=7) as (context, nodes):
        record_nodes(context, nodes, path, seconds=seconds)


async def draw(context: RecordedContext, picture: Picture) -> str:
    """One screen as SVG."""
    async with recorded_app(context, picture.size) as (app, pilot):
        await go_to(app, pilot, picture.screen, picture.node)
        svg = await picture_of(app, pilot)
        for key in picture.keys:
            await pilot.press(key)
            svg = await picture_of(app, pilot) if key == "enter" else svg
        return svg


def main(words: Sequence[str]) -> None:
    folder = Path(words[0])
    with contextlib.ExitStack() as stack:
        file = Path(words[1]) if len(words) > 1 else Path(stack.enter_context(tempfile.TemporaryDirectory())) / "demo.rec"
        if len(words) < 2:
            record_demo(file)
        context = stack.enter_context(contextlib.closing(RecordedContext(Context(None), str(file), None)))
        for name, picture in PICTURES.items():
            if picture.screen not in KEYS:
                print(f"no key opens {picture.screen} for a picture: see KEYS in tui/screenshot.py", file=sys.stderr)
                continue
            svg = asyncio.run(draw(context, picture))
            write_picture(svg, folder / f"{name}.png")
            print(f"wrote {folder / name}.png")
    asyncio.run(draw_prepared(folder))
    for screen in missing():
        print(f"there is no picture of {screen}", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
