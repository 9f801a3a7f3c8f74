"""The quote that follows what is typed: a dry run and the prices, a moment after the last key.

Invariant: typing never waits for it; only the quote of exactly what stands in the form is shown as one, an older one is dim.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from agent import wire
from tui import format as fmt
from tui.quote import Quote, budget_left, jobs_of, measured, memory_seen, place_of, quote, types_of
from tui.quote_text import Part, parts
from tui.ui.job_form import COMMAND, Draft, Wrong, spec_of
from tui.ui.lines import BLANK, Line, fitted, wrapped
from tui.ui.panes.node import rule
from tui.ui.reading import Reading

if TYPE_CHECKING:
    from tui.fleet import NodeView
    from tui.ui.app import RackrateApp
    from tui.ui.screens.base import RackrateScreen

LABEL_CELLS = 14
Planned = Callable[[dict[str, str], wire.JobSpec], Awaitable["tuple[NodeView, wire.JobPlan]"]]
DryRun = Callable[["NodeView", wire.JobSpec], Awaitable[wire.JobPlan]]


class LiveQuote:
    """`planned` and `dry_run` ask nodes; `changed` is called when there is something else to show."""

    def __init__(self, screen: RackrateScreen, planned: Planned, dry_run: DryRun, changed: Callable[[], None]) -> None:
        self._screen = screen
        self._planned = planned
        self._dry_run = dry_run
        self._changed = changed
        self._task: asyncio.Task[None] | None = None
        self._asked: dict[str, str] | None = None
        self._of: dict[str, str] | None = None
        """What the quote is of."""
        self._quote: Quote | None = None
        self.hint = ""
        """Why there is no quote."""
        self.reading: Reading[Quote] = Reading(screen)

    @property
    def value(self) -> Quote | None:
        return self._quote

    def is_of(self, draft: Draft) -> bool:
        return self._quote is not None and self._of == draft

    def ask(self, draft: dict[str, str]) -> None:
        """Of what is typed now; what was asked before is of no interest any more."""
        if draft == self._asked:
            return
        self.close()
        self._asked = draft
        app = self._screen.rackrate
        self._task = app.asking.start(self._ask(app, draft))

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _ask(self, app: RackrateApp, draft: dict[str, str]) -> None:
        if not draft.get(COMMAND, "").strip():
            self._say("A command, and what it needs: then it is said here where it would run, and for how much.")
            return
        try:
            spec = spec_of(draft)
            view, plan = await self._planned(draft, spec)
        except Wrong as error:
            self._say(next(iter(error.sentences.values()), ""))
            return
        refused = await self._half_refused(view, spec)
        catalog = app.fleet.catalog
        if catalog is None:
            self._asked = None
            self._say("The prices are being read.")
            return
        states = app.costs.budgets.states if app.costs.budgets is not None else ()
        place = place_of(view)
        before = measured(jobs_of(app.fleet), spec, place.gpu_model)
        work = partial(
            _quoted, spec, plan, place, catalog, app.files.terms, app.files.data_dir, before=before, budget=budget_left(states, spec.project),
            gpu_memory_seen=memory_seen(app.fleet, spec), share_refused=refused,
            of_types=types_of(app.fleet),
        )  # fmt: skip
        self.reading.want(tuple(sorted(draft.items())), 0, work)

    async def _half_refused(self, view: NodeView, spec: wire.JobSpec) -> str | None:
        if spec.gpus != 1:
            return None
        try:
            await self._dry_run(view, msgspec.structs.replace(spec, gpus=0, gpu_share=Decimal("0.5")))
        except Wrong as error:
            return str(error)
        return None

    def take(self, done: Reading.Done) -> None:
        """The answer of the thread."""
        self.reading.take(done)
        if self.reading.error is not None:
            self._say(f"There is no quote: {self.reading.error}")
        elif self.reading.value is not None and not self.reading.busy:
            self._quote, self._of, self.hint = self.reading.value, dict(done.key), ""  # type: ignore[call-overload]
            self._changed()

    def _say(self, sentence: str) -> None:
        self.hint = fmt.clean(sentence)
        self._changed()

    def lines(self, draft: Draft, cells: int, *, reasons: bool) -> list[Line]:
        """What is known; dim while it is not of what is typed now."""
        if self._quote is None:
            return [rule("Quote", cells), *wrapped(self.hint or "...", "dim", cells, "  ")]
        current = self.is_of(draft)
        lines = [rule("Quote", cells, "" if current else self.hint or "of what was typed before ...")]
        for part in parts(self._quote, reasons=reasons):
            lines += _lines(part if current else part._replace(style="dim"), cells)
        return lines


def _quoted(spec: wire.JobSpec, plan: wire.JobPlan, place: object, catalog: object, terms: object, data_dir: object, **more: object) -> Quote:
    """In the thread: terms and calibrations are files, and the advice's modules are slow to import."""
    from pricing.terms import load
    from tui.job_price import without_gpu
    from tui.plan_recipe import calibration_of

    weights = load(terms, must_exist=False).weights if terms is not None and without_gpu(spec) else None  # type: ignore[arg-type]
    calibrated = calibration_of(data_dir, spec, place, catalog) if data_dir is not None else None  # type: ignore[arg-type]
    return quote(spec, plan, place, catalog, weights=weights, calibrated=calibrated, **more)  # type: ignore[arg-type]


def _lines(part: Part, cells: int) -> list[Line]:
    text = part.text
    indent = "  " if text.startswith("  ") else ""
    first, *more = wrapped(text, part.style, max(12, cells - LABEL_CELLS - 3), indent) or [BLANK]
    return [
        ((f"  {fitted(part.label, LABEL_CELLS)}", "dim"), *first),
        *(((" " * (LABEL_CELLS + 2), "dim"), *line) for line in more),
    ]
