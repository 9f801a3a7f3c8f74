"""Every screen of the app as SVG, in four modes and at three sizes, from one prepared fleet and ledger; and what differs.

Invariant: the same code gives the same bytes: clock, names, zone, fleet, jobs and money are made up, and nothing else is shown.
"""

from __future__ import annotations

import asyncio
import difflib
import gzip
import html
import math
import os
import re
import shutil
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from textual.pilot import Pilot

from agent import wire
from pricing.attribution import cost_summary
from pricing.catalog import Catalog
from pricing.ledger import Ledger
from tests.support.fleets import AT, GIB, NOW, Clock, alert, small_fleet
from tests.support.jobs import FakeNode, asked_nodes, ident, with_jobs
from tests.support.money_app import BUDGETS, filled, priced
from tests.support.screens import make_app, press, running, text
from tui.budgets import alert_rows, states_of
from tui.fleet import Fleet
from tui.money_files import MoneyFiles
from tui.screenshot import clean_svg
from tui.ui.action import Scope
from tui.ui.app import RackrateApp
from tui.ui.glyphs import to_ascii
from tui.ui.panes.header import BudgetsRead, Costs
from tui.ui.theme import DARK, LIGHT

FOLDER = Path(__file__).parents[1] / "ui" / "snapshots"
SIZES = ((80, 24), (120, 40), (200, 60))
DAYS, NODES = 26, 3
LONGEST_SECONDS = 60.0


class Mode(NamedTuple):
    """How a terminal shows the app."""

    theme: str
    unicode: bool = True
    no_color: bool = False


MODES: dict[str, Mode] = {
    "dark": Mode(DARK),
    "light": Mode(LIGHT),
    "ascii": Mode(DARK, unicode=False),
    "no-color": Mode("", no_color=True),
}
DRAFT = {"command": "python train.py --epochs 10", "gpus": "2", "memory": "64G", "name": "resnet", "project": "vision", "time_limit": "8h"}
LOG = "".join(f"step {step:5d}  loss {2.3 / (1 + step / 40):.4f}  {118 + step % 7} samples/s\n" for step in range(1, 160))


class Still:
    """Streams that bring nothing."""

    left_out: Counter[str] = Counter()

    def start(self) -> None:
        """Nothing is opened."""

    async def close(self) -> None:
        """Nothing is closed."""

    def take_changed(self) -> set[str]:
        return set()


class Remembering(FakeNode):
    """It knows a past of waves, and no alerts of before."""

    def client(self) -> Any:
        made, node = super().client(), self

        async def alerts() -> wire.AlertList:
            return wire.AlertList(node=node.name, alerts=())

        async def history(seconds: int) -> wire.History:
            step = 1 if seconds <= 900 else 10 if seconds <= 3600 else 60 if seconds <= 86_400 else 600
            uuids = [each.uuid for each in node.gpus]
            return wire.History(node=node.name, step_seconds=step, gpus={uuid: _waves(seconds, step, 20 + 7 * n) for n, uuid in enumerate(uuids)})

        async def curves(id: str, *, points: int = 200, names: Sequence[str] = ()) -> wire.JobCurves:
            steps, at = tuple(range(0, 400, 2)), AT.timestamp() - 400 * 20
            loss = tuple(round(0.4 + 1.9 / (1 + step / 40) + 0.05 * math.sin(step), 4) for step in steps)
            rate = tuple(118.0 + step % 7 for step in steps)
            told = [
                wire.Curve(name=name, steps=steps, values=values, seconds=tuple(at + 20 * step for step in steps), count=400,
                           mean=round(sum(values) / len(values), 4), source="log")
                for name, values in (("loss", loss), ("samples_per_second", rate))
            ]  # fmt: skip
            return wire.JobCurves(
                job=id, attempt=1, curves=tuple(told), names=("loss", "samples_per_second"), step=398, steps_total=1000,
                samples_per_second=121.0, steps_per_second=0.05, ended=False, sources=("its log",),
            )  # fmt: skip

        made.alerts, made.history, made.curves = alerts, history, curves  # type: ignore[attr-defined]
        return made

    gpus: tuple[wire.Gpu, ...] = ()


def _waves(seconds: int, step: int, period: int) -> tuple[wire.HistoryPoint, ...]:
    def point(back: int) -> wire.HistoryPoint:
        ratio = round(abs(math.sin(back / (period * step))), 3)
        return wire.HistoryPoint(
            taken_at=AT - timedelta(seconds=back), utilization_ratio=ratio, memory_used_bytes=round(31 * GIB * (0.8 + ratio / 5)),
            power_watts=round(60 + 300 * ratio), temperature_celsius=round(35 + 40 * ratio),
        )  # fmt: skip

    return tuple(point(back) for back in range(seconds, 0, -step))


class Money(NamedTuple):
    """A ledger and a price book of before, and what the header tells of them."""

    folder: Path
    ledger: Path
    prices: Path
    costs: Costs


def money(folder: Path) -> Money:
    """Made once for all modes."""
    ledger, prices = filled(folder, DAYS, NODES), priced(folder)
    files = MoneyFiles(ledger, None, None, folder, BUDGETS, "UTC")
    with Ledger.open(ledger) as opened:
        summary = cost_summary(opened, Catalog.embedded(), AT, "UTC")
        states = tuple(states_of(BUDGETS, opened, files.pricing(), "UTC", AT))
    told = BudgetsRead(states, 0.0, 0.0)
    costs = Costs(today=summary.today.totals.total_cost, month=summary.month.totals.total_cost, budgets=told, alerts=alert_rows(states, (), ()))
    return Money(folder, ledger, prices, costs)


def fleet() -> Fleet:
    """Nodes in each state, and jobs of each kind."""
    made = with_jobs(small_fleet())
    silent = alert("a100-busy", key="gpu_hot/GPU-a100-busy-2", rule="gpu_hot", gpu="GPU-a100-busy-2", severity="critical",
                   message="GPU 2 was over 85 °C for 3 minutes: look at its fans", reading="88 °C", threshold="85 °C",
                   since=AT - timedelta(minutes=3), fired_at=AT - timedelta(minutes=2))  # fmt: skip
    made.apply("a100-busy", wire.AlertEvent(alert=silent), NOW)
    made.set_catalog(Catalog.embedded())
    return made


def prepared(mode: Mode, known: Money | None, nodes: Fleet | None = None, **options: Any) -> tuple[RackrateApp, Clock]:
    """The app as it is drawn; `known` None: without ledger and prices."""
    shown = fleet() if nodes is None else nodes
    answering = [Remembering(view.name, (one.job for one in view.jobs), LOG) for view in shown if view.info is not None]
    for node in answering:
        node.log_ended, node.gpus = True, tuple(shown[node.name].gpus)
    of_money: dict[str, Any] = {}
    if known is not None:
        of_money = {"ledger_path": known.ledger, "prices_path": known.prices, "data_dir": known.folder, "budgets": BUDGETS, "costs": known.costs}
    app, clock = make_app(shown, theme=mode.theme, unicode=mode.unicode, live=Still(), **{**asked_nodes(*answering), **of_money, **options})
    app.job_draft = dict(DRAFT)
    app.sync_ledger = app.renew_prices = lambda: None  # type: ignore[method-assign]
    return app, clock


_THEN = {
    "price": ("slash", *"p4d.24xlarge zone:use1-az1 buy:spot", "enter", "enter"),
    "card": ("enter",),
    "curves": ("u",),
}
"""Keys that lead from one screen to another that has no way of its own."""


async def opened(app: RackrateApp, pilot: Pilot[None], screen: Scope, *, wait: bool = True) -> None:
    """Goes there from the fleet; `wait` for all that it reads."""
    ready = settled if wait else _painted
    app.go_up_to(0)
    await pilot.pause()
    direct: dict[str, Callable[[], None]] = {
        "fleet": lambda: None,
        "node": lambda: app.open_node("a100-half"),
        "gpu": lambda: app.open_gpu("a100-half", "GPU-a100-half-1"),
        "job": lambda: app.open_job("gpu-01", ident(1)),
        "submit": lambda: app.action_submit("gpu-02"),
        "curves": lambda: app.open_job("gpu-01", ident(1)),
        "price": app.action_market,
        "card": app.action_advice,
    }
    direct.get(screen, getattr(app, f"action_{screen}", lambda: None))()
    await ready(app, pilot)
    if screen in _THEN:
        await press(pilot, *_THEN[screen])
        await ready(app, pilot)
    assert getattr(app.screen, "SCOPE", "") == screen, f"{screen} did not open: this is {app.screen}"


async def _painted(app: RackrateApp, pilot: Pilot[None]) -> None:
    await pilot.pause()
    await pilot.pause()


async def settled(app: RackrateApp, pilot: Pilot[None]) -> None:
    """All that it reads is there, and it was painted. AssertionError: it was not, after two minutes."""
    deadline = time.monotonic() + LONGEST_SECONDS
    await pilot.pause()
    while _is_busy(app):
        assert time.monotonic() < deadline, f"{app.screen} still reads"
        await asyncio.sleep(0.02)
    await pilot.pause()


def _is_busy(app: RackrateApp) -> bool:
    """Something is read, asked or imported; a job's log and its curves are followed for ever, so what they bring is waited for."""
    scope = getattr(app.screen, "SCOPE", "")
    endless = {getattr(screen, name, None) for screen in app.screen_stack for name in ("_following", "_work")}
    asked = app.asking._tasks - endless  # type: ignore[operator]
    no_curves = scope == "curves" and not app.screen._runs  # type: ignore[attr-defined]
    opening = any(worker.is_running and worker.group == "opening" for worker in app.workers)
    quoting = scope == "submit" and app.screen.is_quoting  # type: ignore[attr-defined]
    no_log = scope == "job" and "samples/s" not in text(app)
    return bool(app.is_reading or asked or opening or no_log or quoting or no_curves)


async def picture(app: RackrateApp, pilot: Pilot[None], size: tuple[int, int], mode: Mode) -> str:
    """The screen on top at a size. AssertionError: a painted line is wider or narrower than the terminal."""
    if app.size != size:
        await pilot.resize_terminal(*size)
    await settled(app, pilot)
    deadline = time.monotonic() + LONGEST_SECONDS
    while True:
        app.screen.note("", seconds=0)  # type: ignore[attr-defined]
        app.redraw()
        await pilot.pause()
        strips = app.screen._compositor.render_strips()
        if len(strips) == size[1]:
            break
        assert time.monotonic() < deadline, f"{len(strips)} lines are painted, not {size[1]}"
        await asyncio.sleep(0.02)
    assert all(strip.cell_length == size[0] for strip in strips), "a line is wider or narrower than the terminal"
    if mode.no_color:
        for segment in (segment for strip in strips for segment in strip):
            for colour in (segment.style.color, segment.style.bgcolor) if segment.style else ():
                assert colour is None or colour.is_default, f"a colour where there must be none: {segment!r}"
    assert not app._notifications, [one.message for one in app._notifications]
    svg = app.export_screenshot(title="rackrate")
    return clean_svg(svg if mode.unicode else _in_ascii(svg))


_WORDS = re.compile(r"(?<=>)([^<>]+)(?=</text>)")


def _in_ascii(svg: str) -> str:
    """As the driver of such a terminal writes it."""
    def plain(match: re.Match[str]) -> str:
        parts = html.unescape(match[0]).split("\xa0")
        return "&#160;".join(html.escape(to_ascii(part)) for part in parts)

    return _WORDS.sub(plain, svg)


async def walk(mode: str, known: Money, screens: tuple[Scope, ...]) -> AsyncIterator[tuple[str, str]]:
    """(name, SVG) of each screen at each size, from one start of the app."""
    app, _ = prepared(MODES[mode], known)
    async with running(app, SIZES[0]) as pilot:
        for number, screen in enumerate(screens):
            await opened(app, pilot, screen)
            for size in SIZES if number % 2 == 0 else SIZES[::-1]:
                yield name_of(screen, size, mode), await picture(app, pilot, size, MODES[mode])


def name_of(screen: str, size: tuple[int, int], mode: str) -> str:
    return f"{screen}-{size[0]}x{size[1]}-{mode}"


# -- what is kept, and what differs ---------------------------------------------------------------------------------------


def stored(name: str) -> str | None:
    """The SVG that was kept."""
    path = FOLDER / f"{name}.svgz"
    return gzip.decompress(path.read_bytes()).decode() if path.exists() else None


def store(name: str, svg: str) -> None:
    """Compressed, without a time: the same picture is the same file."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{name}.svgz").write_bytes(gzip.compress(svg.encode(), 9, mtime=0))


_TEXT = re.compile(r'<text [^>]*?x="(?P<x>[\d.]+)"[^>]*?-line-(?P<line>\d+)\)"[^>]*>(?P<text>[^<]*)</text>')
_CELL = 12.2
"""Width of a cell in the SVG that rich writes."""


def lines_of(svg: str) -> list[str]:
    """The painted text, a string a line, without blanks at its end."""
    rows: dict[int, str] = {}
    for match in _TEXT.finditer(svg):
        line, text = int(match["line"]), html.unescape(match["text"]).replace("\xa0", " ")
        rows[line] = rows.get(line, "").ljust(round(float(match["x"]) / _CELL)) + text
    return [rows.get(line, "").rstrip() for line in range(max(rows, default=-1) + 1)]


def colours_of(svg: str) -> set[str]:
    """Colours in which text is drawn, and what lies behind it."""
    return set(re.findall(r"fill: (#[0-9a-f]{6})", svg)) | set(re.findall(r'<rect fill="(#[0-9a-f]{6})" x', svg))


def difference(name: str, before: str | None, after: str, out: Path) -> str:
    """A sentence with the first line that differs; the new SVG and a comparison of the texts are in `out` afterwards."""
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.svg").write_text(after, encoding="utf-8")
    if before is None:
        return f"{name}: there is no snapshot of it yet"
    (out / f"{name}.before.svg").write_text(before, encoding="utf-8")
    old, new = lines_of(before), lines_of(after)
    told = "\n".join(difflib.unified_diff(old, new, "kept", "now", lineterm=""))
    (out / f"{name}.diff").write_text(told + "\n", encoding="utf-8")
    for number in range(max(len(old), len(new))):
        was, now = (rows[number] if number < len(rows) else "" for rows in (old, new))
        if was != now:
            return f"{name}: line {number + 1}\n    kept: {was}\n    now:  {now}"
    return f"{name}: the text is the same, colours or attributes are not"


def compared(mode: str, shots: dict[str, str]) -> str:
    """What differs from what is kept; empty: nothing. With RACKRATE_SNAPSHOTS=update it is kept instead."""
    if os.environ.get("RACKRATE_SNAPSHOTS") == "update":
        for old in FOLDER.glob(f"*x*-{mode}.svgz"):
            if old.stem not in shots:
                old.unlink()
        for name, svg in shots.items():
            store(name, svg)
        return ""
    out = Path(os.environ.get("TMPDIR", "/tmp")) / f"rackrate-snapshots-{mode}"
    shutil.rmtree(out, ignore_errors=True)
    told = [difference(name, before, svg, out) for name, svg in shots.items() if (before := stored(name)) != svg]
    if not told:
        return ""
    return f"{len(told)} of {len(shots)} pictures differ (see {out}; `make snapshots` keeps the new ones):\n" + "\n".join(told)
