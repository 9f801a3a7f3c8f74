"""The curves of one job, or of several over each other: loss, speed and every other figure, and what they come to in money.

A run over several nodes is one: whichever part was opened, it costs what all its parts cost.

Invariant: nodes are asked only while the screen is on top, every five seconds at most, and what they said last stays until they
say more; a job that has ended and was read whole is not asked about again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from textual import events
from textual.app import ComposeResult

from agent import wire
from pricing.weights import Weights
from tui.curves import Outlook, Run, order, outlook, together
from tui.curves_price import priced
from tui.fleet_jobs import whole_cost
from tui.job_rows import has_gpu
from tui.ui import actions
from tui.ui.panes.curves import Look, page, standing, title
from tui.ui.places import Place
from tui.ui.screens.base import RackrateScreen
from tui.ui.widgets.lines_view import LinesView, RaisedLines
from tui.ui.widgets.status import Footer, StatusLine

ASK_SECONDS = 5.0
BEHIND_SECONDS = 0.5
"""While the agent has not read the whole log."""
POINTS = 400
MOST_RUNS = 10


def _weights(terms: Path | None) -> Weights:
    """Of a file that may be damaged: then those that are meant where nobody says any."""
    from pricing.errors import TermsError
    from pricing.terms import load

    try:
        return Weights() if terms is None else load(terms, must_exist=False).weights
    except TermsError:
        return Weights()


class CurvesScreen(RackrateScreen):
    """`keys`: node and id of each job."""

    SCOPE = "curves"
    KEEPS: ClassVar = ("figure", "log_scale")
    BINDINGS: ClassVar = actions.bindings("curves")

    def __init__(self, keys: Sequence[tuple[str, str]]) -> None:
        super().__init__()
        self.keys = tuple(keys)[:MOST_RUNS]
        self.figure = ""
        """What is drawn; empty: the loss."""
        self.log_scale = False
        self._runs: dict[tuple[str, str], Run] = {}
        self._errors: dict[str, str] = {}
        self._work: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()

    @property
    def place(self) -> Place:
        return Place("curves", tuple(f"{node} {ident}" for node, ident in self.keys))

    def crumb(self) -> str:
        """`curves`, `curves of 3`."""
        return "curves" if len(self.keys) == 1 else f"curves of {len(self.keys)}"

    def compose(self) -> ComposeResult:
        yield RaisedLines(id="title")
        yield LinesView(id="page")
        yield StatusLine(self.rackrate.clock)
        yield Footer("curves")

    def on_mount(self) -> None:
        self.query_one("#page").focus()
        self._work = self.rackrate.asking.start(self._follow())

    def on_unmount(self) -> None:
        if self._work is not None:
            self._work.cancel()

    def on_screen_resume(self) -> None:
        self._woken.set()

    # -- asking ----------------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        while True:
            if self.app.screen_stack[-1:] == [self]:
                await asyncio.gather(*(self._ask(*key) for key in self._runs_of() if not self._is_whole(key)))
                self.redraw()
            if all(map(self._is_whole, self._runs_of())):
                return
            behind = any(run.curves.behind_bytes for run in self._runs.values())
            self._woken.clear()
            try:
                await asyncio.wait_for(self._woken.wait(), self.rackrate.governor.wait_seconds(BEHIND_SECONDS if behind else ASK_SECONDS))
            except TimeoutError:
                pass

    def _runs_of(self) -> list[tuple[str, str]]:
        """Of marked parts of one run the first: what is told of it is of all."""
        views = {key: self.rackrate.fleet.job(*key) for key in self.keys}
        first: dict[object, tuple[str, str]] = {}
        for key, view in views.items():
            first.setdefault(view.job.gang if view is not None and view.job.gang else key, key)
        return list(first.values())

    def _is_whole(self, key: tuple[str, str]) -> bool:
        run = self._runs.get(key)
        return run is not None and run.curves.ended and not run.curves.behind_bytes and run.job.state == "ended"

    async def _ask(self, node: str, ident: str) -> None:
        from agent.client import ClientError
        from tui.errors import RackrateError

        name = f"{node} {ident}"
        try:
            named = await self._part(node, ident)
            view = self.rackrate.fleet.job(node, ident)
            others = [one for one in self.rackrate.fleet.parts(view) if one is not view] if view else []
            parts = [named, *await asyncio.gather(*(self._part(one.node.name, one.job.id) for one in others))]
        except (ClientError, RackrateError) as error:
            self._errors[name] = str(error)  # also of one part: without it the money would be too little
            return
        self._errors.pop(name, None)
        self._runs[node, ident] = together(parts)

    async def _part(self, node: str, ident: str) -> Run:
        """One job, or what one node has of a run over several."""
        app = self.rackrate
        async with app.asking.client(node) as client:
            job = await client.job(ident)
            curves = await client.curves(ident, points=POINTS)
        if node in app.fleet:
            app.fleet.apply(node, wire.JobEvent(job=job), app.clock())
        return await self._priced(Run(node, job, curves))

    async def _priced(self, run: Run) -> Run:
        """Of a job without a GPU: by the node's price of now, and the weights of the reports."""
        app = self.rackrate
        if has_gpu(run.job) or run.node not in app.fleet or (info := app.fleet[run.node].info) is None:
            return run
        view = app.fleet[run.node]
        weights = await asyncio.to_thread(_weights, app.files.terms)
        return priced(run, info, view.usd_per_hour, weights, view.utc(app.clock()))

    # -- what is shown ---------------------------------------------------------------------------------------------

    def draw(self) -> None:
        app = self.rackrate
        pane = self.query_one("#page", LinesView)
        runs = [self._runs[key] for key in self._runs_of() if key in self._runs]
        seen = [self._outlook(run) for run in runs]
        look = self._look(runs, pane)
        self.query_one("#title", LinesView).show([title(runs, self.keys, app.size.width)])
        pane.show(page(runs, seen, look, self._errors))
        self.query_one(StatusLine).show_line(standing(runs, seen, look))

    def _look(self, runs: Sequence[Run], pane: LinesView) -> Look:
        app = self.rackrate
        names = order([run.curves for run in runs])
        figure = self.figure if self.figure in names else next(iter(names), "")
        rest = [name for name in names if name != figure]
        size = pane.size
        cells, rows = (size.width or app.size.width) - 1, size.height or app.size.height - 3
        return Look(figure, max(10, cells), rows, app.unicode, self.log_scale and "loss" in figure.casefold(), next(iter(rest), None))

    def _outlook(self, run: Run) -> Outlook:
        """With the cost of this moment, as the other screens tell it."""
        app = self.rackrate
        view = app.fleet.job(run.node, run.job.id)
        if view is None:
            return outlook(run)
        now = app.clock()
        return outlook(run, whole_cost(app.fleet.parts(view), now), view.node.utc(now))

    def on_resize(self, event: events.Resize) -> None:
        super().on_resize(event)
        self.call_after_refresh(self.redraw)

    # -- keys ------------------------------------------------------------------------------------------------------

    def action_back(self) -> None:
        self.app.pop_screen()

    def action_figure(self, step: int) -> None:
        """The next figure that the training tells."""
        names = order([run.curves for run in self._runs.values()])
        if len(names) < 2:
            self.note("There is no other figure.", "dim")
            return
        at = names.index(self.figure) if self.figure in names else 0
        self.figure = names[(at + step) % len(names)]
        self.redraw()

    def action_log_scale(self) -> None:
        self.log_scale = not self.log_scale
        self.note("The loss on a logarithmic scale." if self.log_scale else "The loss on a plain scale.", "dim")
        self.redraw()

    def action_open_job(self) -> None:
        """Facts and log of the job; of several, of the first."""
        self.rackrate.open_job(*self.keys[0])
