"""Pictures of the app: a screen of a live fleet drawn without a terminal, as SVG or PNG.

Invariant: the picture needs nothing from the network (no web fonts), and shows what the app would show at that size.
"""

from __future__ import annotations

import asyncio
import contextlib
import html
import itertools
import re
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tui.errors import Failed, WrongUsage

if TYPE_CHECKING:
    from tui.commands.context import Context
    from tui.commands.recorded import RecordedContext
    from tui.config import NodeConfig
    from tui.fleet import Fleet
    from tui.ui.app import RackrateApp

WAIT_SECONDS = 15.0
"""How long nodes may take until their first sample."""
SETTLE_SECONDS = 1.5
READING_SECONDS = 120.0
"""How long the ledger, the prices or advice may take."""
FONTS = "'DejaVu Sans Mono', 'Liberation Mono', Menlo, Consolas, monospace"
PNG_SCALE = 1
KEYS = {
    "fleet": (), "node": ("enter",), "gpu": ("enter", "enter"), "alerts": ("a",), "jobs": ("j",), "job": ("j", "enter"), "submit": ("j", "n"), "curves": ("j", "u"),
    "costs": ("c",), "budgets": ("B",), "events": ("E",), "market": ("m",), "advice": ("v",), "help": ("question_mark",),
}  # fmt: skip


def take_screenshot(
    context: Context,
    nodes: Sequence[NodeConfig],
    out: str,
    *,
    screen: str = "fleet",
    node: str | None = None,
    size: tuple[int, int] = (140, 40),
    theme: str = "",
) -> None:
    """Draws `screen` of the live nodes into `out` (.svg or .png). WrongUsage: no such node; Failed: cannot write."""
    if node is not None and all(each.name != node for each in nodes):
        raise WrongUsage(f"There is no node named `{node}`; `rackrate nodes` lists them.")
    if out.endswith(".png"):
        import_renderer()
    draw = draw_recorded if isinstance(context, _recorded_context()) else _draw
    svg = asyncio.run(draw(context, nodes, screen, node, size, theme))  # type: ignore[operator]
    write_picture(svg, Path(out))


def _recorded_context() -> type[RecordedContext]:
    from tui.commands.recorded import RecordedContext

    return RecordedContext


async def draw_recorded(
    context: RecordedContext, nodes: Sequence[NodeConfig], screen: str, node: str | None, size: tuple[int, int], theme: str
) -> str:
    """A screen at the moment of a recording: the same picture each time, for its clock stands still."""
    async with recorded_app(context, size, theme) as (app, pilot):
        await go_to(app, pilot, screen, node)
        return await picture_of(app, pilot)


@contextlib.asynccontextmanager
async def recorded_app(
    context: RecordedContext, size: tuple[int, int], theme: str = "", **options: Any
) -> AsyncIterator[tuple[RackrateApp, Any]]:
    """The app at the moment of a recording, with its fleet and its money there."""
    from tui.ui.start import replay_app
    from tui.ui.theme import DARK

    app = replay_app(
        context.recording, context.money, context.at_ms, 0, context.config, theme=theme or DARK, unicode=True, clock=lambda: 0.0,
        **options,
    )  # fmt: skip
    async with app.run_test(size=size) as pilot:
        await _until(lambda: app.travel is None or (app.costs_known and not app.travel.busy), READING_SECONDS)
        await pilot.pause()
        yield app, pilot


async def picture_of(app: RackrateApp, pilot: Any) -> str:
    """What is on the screen, once all that it reads is there."""
    await pilot.pause()
    await _until(lambda: not app.is_reading and not app.asking.is_waiting, READING_SECONDS)
    await pilot.pause()
    app.redraw()
    await pilot.pause()
    return clean_svg(app.export_screenshot(title="rackrate"))


async def _draw(
    context: Context, nodes: Sequence[NodeConfig], screen: str, node: str | None, size: tuple[int, int], theme: str
) -> str:
    from tui.fleet import Fleet
    from tui.ui.app import RackrateApp
    from tui.ui.theme import DARK

    fleet = Fleet()
    for each in nodes:
        fleet.add(each.name, each.url, each.tags)
    app = RackrateApp(
        fleet, nodes=nodes, client_for=context.client_for, ledger_path=context.paths.ledger_path(context.config),
        prices_path=context.prices_path, terms_path=context.terms_path,
        data_dir=context.paths.data_dir, budgets=context.config.budgets, timezone=context.timezone_name(),
        theme=theme or DARK, unicode=True,
    )  # fmt: skip
    async with app.run_test(size=size) as pilot:
        await _until(lambda: _heard(fleet) and app.costs_known, WAIT_SECONDS)
        await asyncio.sleep(SETTLE_SECONDS)
        await go_to(app, pilot, screen, node)
        await asyncio.sleep(SETTLE_SECONDS)
        await _until(lambda: not app.is_reading, READING_SECONDS)
        await pilot.pause()
        app.redraw()
        await pilot.pause()
        return clean_svg(app.export_screenshot(title="rackrate"))


async def go_to(app: RackrateApp, pilot, screen: str, node: str | None) -> None:
    """Opens a screen as a person would; `node` puts the cursor there first."""
    from tui.ui.screens.fleet import FleetScreen

    if node is not None and isinstance(app.screen, FleetScreen):
        app.screen.table.move_to(app.screen.table.position(node))
        await pilot.pause()
    for key in KEYS[screen]:
        await pilot.press(key)
        await pilot.pause()


def _heard(fleet: Fleet) -> bool:
    return all(view.sample is not None or view.error for view in fleet)


async def _until(holds, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not holds() and time.monotonic() < deadline:
        await asyncio.sleep(0.1)


def clean_svg(svg: str) -> str:
    """Without the web font and its addresses: a local monospace family instead."""
    svg = re.sub(r"@font-face\s*\{.*?\}|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r"font-family:\s*Fira Code[^;}]*", f"font-family: {FONTS}", svg)
    return _TEXT.sub(_braille_apart, svg.replace("Fira Code", "DejaVu Sans Mono"))


_TEXT = re.compile(
    r'<text (?P<before>[^>]*?)x="(?P<x>[\d.]+)"(?P<middle>[^>]*?)textLength="(?P<length>[\d.]+)"(?P<after>[^>]*)>'
    r"(?P<text>[^<]*)</text>"
)


def _braille_apart(match: re.Match[str]) -> str:
    """Braille comes from another font, of another width: in an element of its own it fills exactly its cells."""
    text = html.unescape(match["text"])
    if not any(map(_is_braille, text)):
        return match[0]
    cell, x, parts = float(match["length"]) / len(text), float(match["x"]), []
    for _, run in itertools.groupby(text, _is_braille):
        piece = "".join(run)
        shown = html.escape(piece).replace("\xa0", "&#160;")
        parts.append(
            f'<text {match["before"]}x="{x:.1f}"{match["middle"]}textLength="{cell * len(piece):.1f}"{match["after"]}>{shown}</text>'
        )
        x += cell * len(piece)
    return "".join(parts)


def _is_braille(character: str) -> bool:
    return "\u2800" <= character <= "\u28ff"


def import_renderer():
    """resvg-py, or a sentence how to get it."""
    try:
        import resvg_py
    except ImportError:
        raise Failed("PNG needs the package resvg-py: pip install 'rackrate[png]', or write an .svg instead.") from None
    return resvg_py


def write_picture(svg: str, out: Path) -> None:
    """As the name's ending says. Failed: the file cannot be written, or PNG cannot be made."""
    content = to_png(svg) if out.suffix == ".png" else svg.encode()
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_bytes(content)
    except OSError as error:
        raise Failed(f"{out}: cannot be written ({error.strerror}).") from None


def to_png(svg: str) -> bytes:
    """Rendered by resvg with font fallback, so that braille and blocks are there."""
    renderer = import_renderer()
    return bytes(renderer.svg_to_bytes(svg_string=svg, zoom=PNG_SCALE, font_family="DejaVu Sans Mono"))
