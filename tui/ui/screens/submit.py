"""A form for a new job: what to run and within which limits, what it would cost while one types, and what a dry run says.

Invariant: nothing is sent that was not tried as it stands, and what was typed survives every error, and leaving the form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.timer import Timer
from textual.widgets import Input

from agent import wire
from tui import format as fmt
from tui.fleet import NodeView
from tui.ui import actions
from tui.ui.job_form import (
    FIELDS,
    NODE,
    Wrong,
    candidates,
    command_line,
    field_of_refusal,
    named_node,
    plan_lines_of,
    spec_of,
    why_none,
    with_price,
)
from tui.ui.lines import BLANK, Line, fitted, wrapped
from tui.ui.live_quote import LiveQuote
from tui.ui.panes.node import rule
from tui.ui.places import Place
from tui.ui.reading import Reading
from tui.ui.screens.base import RackrateScreen
from tui.ui.widgets.form import FormField, Switch
from tui.ui.widgets.lines_view import LinesView, RaisedLines
from tui.ui.widgets.status import Footer, StatusLine

TWO_SIDES_FROM = 76
"""Columns from which the fields stand in two columns."""
NARROW_BELOW = 40
"""Columns below which labels are cut, so that what is typed can be read."""
MOST_ASKED = 6
"""Nodes that are asked for the first that fits."""
QUOTE_SECONDS = 0.3
"""After the last key the quote is asked for."""
REASONS_FROM_ROWS = 30
"""On a lower screen what speaks against each alternative is left out."""
LINE_ROWS = 3
"""At most, for the command line."""


class SubmitScreen(RackrateScreen):
    """Enter tries what was not tried, and sends what was."""

    SCOPE = "submit"
    BINDINGS: ClassVar = actions.bindings("submit")
    CSS = """
    SubmitScreen VerticalScroll { height: 1fr; scrollbar-size-vertical: 1; scrollbar-gutter: stable; padding: 1 0 0 0; }
    SubmitScreen.-low VerticalScroll { padding: 0; }
    SubmitScreen .sides { height: auto; layout: vertical; }
    SubmitScreen .sides.-two { layout: horizontal; }
    SubmitScreen .side { height: auto; width: 1fr; }
    SubmitScreen #told, SubmitScreen #quote, SubmitScreen #plan { height: auto; margin: 1 0 0 1; }
    SubmitScreen.-low #quote { margin: 0 0 0 1; }
    SubmitScreen #line { height: 1; }
    SubmitScreen.-narrow FormField Label { width: 9; }
    """

    def __init__(
        self,
        node: str = "",
        again: tuple[str, str] | None = None,
        draft: Mapping[str, str] | None = None,
        told: Sequence[str] = (),
    ) -> None:
        """`again`: node and id of the job of before whose `draft` it begins with; `told`: what of it is not taken over."""
        super().__init__()
        self._node = node
        self._again = "" if again is None else again[1]
        self._of = again
        self._first = draft or {}
        self._told = tuple(told)
        self._more = False
        self._timer: Timer | None = None
        self._live = LiveQuote(self, self._planned, self._dry_run, self._show_quote)
        self._tried: tuple[dict[str, str], NodeView, wire.JobSpec, wire.JobPlan] | None = None
        self._busy = False
        self._problem = ""

    def compose(self) -> ComposeResult:
        draft = dict(self.rackrate.again_drafts.get(self._again, self._first) if self._again else self.rackrate.job_draft)
        if self._node:
            draft[NODE] = self._node
        names = tuple(view.name for view in self.rackrate.fleet)
        made = {field.key: FormField(field, draft.get(field.key, ""), names if field.key == NODE else ()) for field in FIELDS}
        yield RaisedLines([self._title()], id="title")
        with VerticalScroll(can_focus=False):
            for wide, left, right in ((0, 1, 2), (3, 4, 5)):
                yield from (made[field.key] for field in FIELDS if field.side == wide)
                with Horizontal(classes="sides"):
                    for side in (left, right):
                        with Vertical(classes="side"):
                            yield from (made[field.key] for field in FIELDS if field.side == side)
            for name in ("told", "quote", "plan"):
                yield _Pane(id=name)
        yield _Pane(id="line")
        yield StatusLine(self.rackrate.clock)
        yield Footer("submit")

    @property
    def place(self) -> Place | None:
        return super().place if self._of is None else Place("again", self._of)

    def crumb(self) -> str:
        return f"{self._again} again" if self._again else super().crumb()

    def _title(self) -> Line:
        name = f" {self._again} again" if self._again else " New job"
        return ((name, "title"), ("   nothing is sent before you have seen its dry run", "dim"))

    def on_mount(self) -> None:
        self.query_one(Input).focus()
        self._fit_fields()
        app = self.rackrate
        app.asking.job_lists(view.name for view in app.fleet)  # how long the same command took before
        self._quote_soon()

    async def on_unmount(self) -> None:
        self._live.close()

    @property
    def draft(self) -> dict[str, str]:
        """What is typed."""
        return {each.field.key: each.value for each in self.query(FormField)}

    @property
    def is_tried(self) -> bool:
        """The dry run on the screen is of exactly what is typed."""
        return self._tried is not None and self._tried[0] == self.draft

    def draw(self) -> None:
        columns, rows = self.app.size
        for sides in self.query(".sides"):
            sides.set_class(columns >= TWO_SIDES_FROM, "-two")
        self.set_class(rows < 20, "-low")
        self.set_class(columns < NARROW_BELOW, "-narrow")
        self._show_told()
        self._show_quote()
        self._show_plan()
        self._show_line()

    def _fit_fields(self) -> None:
        """Those that are seldom needed are there when they are asked for, or say something."""
        for each in self.query(FormField):
            each.display = not each.field.more or self._more or bool(each.value)

    def _pane(self, name: str, lines: list[Line]) -> None:
        pane = self.query_one(name, LinesView)
        pane.display = bool(lines)
        pane.styles.height = max(1, len(lines))
        pane.show(lines)

    @property
    def _cells(self) -> int:
        return max(20, self.app.size.width - 3)

    def _show_told(self) -> None:
        lines = [line for text in self._told for line in wrapped(text, "idle", self._cells, "  ")]
        self._pane("#told", [rule("Not taken over", self._cells), *lines] if lines else [])

    def _show_quote(self) -> None:
        if self.is_attached and self.query("#quote"):
            reasons = self.app.size.height >= REASONS_FROM_ROWS
            self._pane("#quote", self._live.lines(self.draft, self._cells, reasons=reasons))

    def _show_line(self) -> None:
        """The same as a command, in as many lines as there is room for."""
        rows, pane = self.app.size.height, self.query_one("#line", LinesView)
        cells = max(12, self.app.size.width - 2)
        most = LINE_ROWS if rows >= 24 else 1
        lines = _folded(f"$ {fmt.clean(command_line(self.draft))}", cells, most)
        pane.display = rows >= 6
        pane.styles.height = len(lines)
        pane.show([((f" {text}", "dim"),) for text in lines])

    def _show_plan(self) -> None:
        self._pane("#plan", self._plan_lines(self._cells))
        if not self.query_one(StatusLine).display:
            return
        word, style = self._standing()
        self.query_one(StatusLine).show_line(((f" {word}", style),))

    def _standing(self) -> tuple[str, str]:
        if self._busy:
            return "asking ...", "dim"
        if self.is_tried and self._tried is not None:
            return f"Enter sends it to {fmt.clean(self._tried[1].name)}.", "accent"
        return "Enter makes the dry run; Tab: next field; Space: turn a switch.", "dim"

    def _plan_lines(self, cells: int) -> list[Line]:
        if self._problem:
            return [rule("Dry run", cells), *wrapped(self._problem, "lost", cells, "  ")]
        if self._tried is None:
            return []
        lines: list[Line] = [rule("Dry run", cells, "" if self.is_tried else "of what was typed before: Enter tries again")]
        for label, text, style in plan_lines_of(self._tried[3]):
            if not self.is_tried:
                style = "dim"
            first, *more = wrapped(fmt.clean(text), style, max(12, cells - 16)) or [BLANK]
            lines.append(((f"  {fitted(label, 13)} ", "dim"), *first))
            lines += [((" " * 16, "dim"), *line) for line in more]
        return lines

    def on_input_changed(self, event: Input.Changed) -> None:
        self._changed(event.input.query_ancestor(FormField))

    def on_switch_turned(self, event: Switch.Turned) -> None:
        self._changed(None)

    def _changed(self, field: FormField | None) -> None:
        if self._again:
            self.rackrate.again_drafts[self._again] = self.draft
        else:
            self.rackrate.job_draft = self.draft
        self._problem = ""
        if field is not None:
            field.say("")
        self._quote_soon()
        self._show_quote()
        self._show_plan()
        self._show_line()

    def _quote_soon(self) -> None:
        if self._timer is not None:
            self._timer.stop()
        self._timer = self.set_timer(QUOTE_SECONDS, self._ask_quote)

    def _ask_quote(self) -> None:
        self._timer = None
        self._live.ask(self.draft)

    @property
    def is_quoting(self) -> bool:
        """The quote of what is typed is on its way."""
        return self._timer is not None or self._live.reading.busy

    def on_reading_done(self, event: Reading.Done) -> None:
        self._live.take(event)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.action_send()

    def on_switch_submitted(self, event: Switch.Submitted) -> None:
        self.action_send()

    def say(self, sentences: dict[str, str]) -> None:
        """What is wrong, each beside its field; the first of them gets the cursor."""
        for field in self.query(FormField):
            field.say(sentences.get(field.field.key, ""))
        for field in self.query(FormField):
            if field.field.key in sentences:
                field.query_one(Switch if field.field.switch else Input).focus()
                break
        self._show_plan()

    # -- what it does ------------------------------------------------------------------------------------------

    def action_more_fields(self) -> None:
        """Those that are seldom needed, or without them again."""
        self._more = not self._more
        self._fit_fields()
        first = next((each for each in self.query(FormField) if each.field.more and self._more), None)
        (first.query_one(Input) if first is not None else self.query_one(Input)).focus()

    def action_copy_line(self) -> None:
        """The command that does the same."""
        self.rackrate.copy_text(command_line(self.draft), "the command")

    def action_try_out(self) -> None:
        """The dry run of what is typed."""
        if not self._busy:
            self._busy = True
            self.rackrate.asking.start(self._try(self.draft))
            self._show_plan()

    def action_send(self) -> None:
        """Sends what was tried; else tries it."""
        if self._busy or actions.read_only():
            return
        if not self.is_tried or self._tried is None:
            self.action_try_out()
            return
        self._busy = True
        _, view, spec, _ = self._tried
        self.rackrate.asking.start(self._send(view, spec))
        self._show_plan()

    async def _try(self, draft: dict[str, str]) -> None:
        self._problem, self._tried = "", None
        wrong: dict[str, str] = {}
        try:
            spec = spec_of(draft)
            view, plan = await self._planned(draft, spec)
            self._tried = (draft, view, with_price(spec, view), plan)
        except Wrong as error:
            wrong = error.sentences
        finally:
            self._busy = False
        if self.is_attached:
            self.say(wrong)
            self.query_one(VerticalScroll).scroll_end(animate=False) if not wrong else None

    async def _planned(self, draft: dict[str, str], spec: wire.JobSpec) -> tuple[NodeView, wire.JobPlan]:
        """On the node that was named; else on the first where it would start now, or the likeliest where it would wait."""
        app = self.rackrate
        name = draft[NODE].strip()
        views = [named_node(app.fleet, name, app.clock())] if name else candidates(app.fleet, spec, app.clock())[:MOST_ASKED]
        if not views:
            raise Wrong({NODE if not spec.gpus else "gpus": why_none(app.fleet, spec, app.clock())})
        found: list[tuple[NodeView, wire.JobPlan]] = []
        refused: Wrong | None = None
        for view in views:
            try:
                found.append((view, await self._dry_run(view, spec)))
            except Wrong as error:
                refused = refused or error
                continue
            if found[-1][1].starts_now:
                return found[-1]
        if not found:
            raise refused or Wrong({NODE: "No node answered."})
        return found[0]

    async def _dry_run(self, view: NodeView, spec: wire.JobSpec) -> wire.JobPlan:
        from agent.client import ClientError
        from tui.errors import RackrateError

        try:
            async with self.rackrate.asking.client(view.name) as client:
                return await client.dry_run(with_price(spec, view))
        except (ClientError, RackrateError) as error:
            raise self._refusal(view, error) from None

    def _refusal(self, view: NodeView, error: Exception) -> Wrong:
        text = getattr(error, "text", None)
        sentence = fmt.clean(text or str(error))
        return Wrong({field_of_refusal(sentence) if text else NODE: f"{fmt.clean(view.name)}: {sentence}"})

    async def _send(self, view: NodeView, spec: wire.JobSpec) -> None:
        from agent.client import ClientError
        from tui.errors import RackrateError

        app = self.rackrate
        try:
            async with app.asking.client(view.name) as client:
                job = await client.submit(spec)
        except (ClientError, RackrateError) as error:
            self._problem = f"It was not sent. {next(iter(self._refusal(view, error).sentences.values()))}"
            self._tried = None
            if self.is_attached:
                self.say(self._refusal(view, error).sentences)
            return
        finally:
            self._busy = False
        app.fleet.apply(view.name, wire.JobEvent(job=job), app.clock())
        if app.screen is self:
            app.pop_screen()
            app.open_job(view.name, job.id)

    def action_back(self) -> None:
        self.app.pop_screen()


class _Pane(LinesView, can_focus=False):
    """Lines that are only read."""


def _folded(text: str, cells: int, most: int) -> list[str]:
    """Cut anywhere, as a terminal does; what does not fit ends with `…`."""
    rows = [text[at : at + cells] for at in range(0, len(text), cells)] or [""]
    if len(rows) > most:
        rows = [*rows[: most - 1], rows[most - 1][: cells - 1] + "…"]
    return rows
