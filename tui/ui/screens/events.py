"""What happened while the app was open, and before where agents still tell it: nodes, jobs, alerts, notices, prices.

Invariant: the list goes on in the background whatever screen is open; an event leads to the node or the job it is about.
"""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

from textual.app import ComposeResult

from tui import format as fmt
from tui.events import EVENT_WORDS, KINDS
from tui.ui import actions
from tui.ui.lines import Line, at_most, cropped, wrapped
from tui.ui.screens.table import TableScreen
from tui.ui.widgets.events_table import EventsTable
from tui.ui.widgets.header import Header
from tui.ui.widgets.line_table import LineTable
from tui.ui.widgets.lines_view import RaisedLines
from tui.ui.widgets.status import FilterBar, Footer, StatusLine

EXAMPLE = "kind:job user:me level:bad age<1h node:gpu-01"
WHOLE_FROM_ROWS, WHOLE_ROWS = 16, 2
NOTHING: tuple[Line, ...] = (
    (("  Nothing happened yet.", "strong"),),
    (),
    (("  What will stand here: ", "dim"), ("nodes that fall silent or come back, jobs that start and end,", "dim")),
    (("  alerts, notices of the cloud, drained nodes, prices that change.", "dim"),),
    (("  rackrate watch --plain", "key"), ("    says the same as lines, for a log or a screen reader", "dim")),
)
NO_MATCH: tuple[Line, ...] = ((("  No event matches this filter. Esc clears it.", "dim"),),)


def newer_line(left_out: Counter[str], cells: int) -> Line:
    """` 3 events of gpu-01, of kinds that only newer agents know, are not shown: update rackrate`; nothing where there are none."""
    if not left_out:
        return ()
    count = left_out.total()
    whose = fmt.clean(next(iter(left_out))) if len(left_out) == 1 else fmt.counted(len(left_out), "node")
    isnt = "is not" if count == 1 else "are not"
    events = fmt.counted(count, "event")
    for text in (
        f" {events} of {whose}, of kinds that only newer agents know, {isnt} shown: update rackrate",
        f" {events} of newer agents {isnt} shown: update rackrate",
        f" {events} too new: update rackrate",
    ):
        if len(text) <= cells:
            break
    return cropped(((text, "idle"),), cells)


class EventsScreen(TableScreen):
    """Enter opens the job or the node."""

    SCOPE = "events"
    ROWS = "Events"
    BINDINGS: ClassVar = actions.bindings("events")

    def compose(self) -> ComposeResult:
        app = self.rackrate
        yield Header()
        yield EventsTable(app.shown_events, app.clock, app.now, app.zone)
        yield RaisedLines(id="newer")
        yield RaisedLines(id="whole")
        yield FilterBar(EVENT_WORDS, EXAMPLE)
        yield StatusLine(app.clock)
        yield Footer("events")

    def on_mount(self) -> None:
        self.table.focus()

    def on_screen_resume(self) -> None:
        self.rackrate.ask_past_events()

    @property
    def table(self) -> EventsTable:
        return self.query_one(EventsTable)

    def draw(self) -> None:
        self.show_header()
        shown = self.rackrate.shown_events()
        reading: tuple[Line, ...] = (((f"  {shown.note}", "dim"),),)
        self.table.explain(NO_MATCH if any(True for _ in shown.events) else reading if shown.version is None else NOTHING)
        self.table.update(self.rackrate.clock())
        self.show_status()
        self._show_newer()
        self._show_whole()

    def _show_newer(self) -> None:
        """How much agents told that this program does not understand."""
        pane, live = self.query_one("#newer", RaisedLines), self.rackrate.live
        line = newer_line(live.left_out, self.app.size.width - 1) if live is not None and self.rackrate.travel is None else ()
        pane.display = bool(line)
        pane.styles.height = 1
        pane.show([line])

    def _show_whole(self) -> None:
        """What is under the cursor in full, where there are lines for it."""
        pane, row, (columns, rows) = self.query_one("#whole", RaisedLines), self.table.chosen, self.app.size
        pane.display = rows >= WHOLE_FROM_ROWS and row is not None
        if row is not None:
            pane.styles.height = WHOLE_ROWS
            pane.show(at_most(wrapped(fmt.clean(row.event.text), "text", columns - 1, " "), WHOLE_ROWS, columns - 1))

    def sums(self) -> tuple[Line, ...]:
        """How many, by kind."""
        keys = self.summed()
        rows = [self.table.row_of(key).event for key in keys]
        counts = Counter(event.kind for event in rows)
        bad = sum(event.level == "bad" for event in rows)
        parts: list[Line] = [((fmt.counted(len(keys), "event"), "text"),)]
        parts += [((f"{kind} ", "dim"), (str(counts[kind]), "text")) for kind in KINDS if counts[kind]]
        if bad:
            parts.insert(1, ((f"✗ {bad} bad", "lost"),))
        return tuple(parts)

    def aside(self) -> Line:
        """Since when they are told, where that is not the beginning."""
        note = self.rackrate.shown_events().note
        return ((note, "dim"),) if note else ()

    def action_open(self) -> None:
        row, app = self.table.chosen, self.rackrate
        if row is None:
            return
        event = row.event
        if event.job and app.fleet.job(event.node, event.job) is not None:
            app.open_job(event.node, event.job)
        elif event.node in app.fleet:
            app.open_node(event.node)
        elif event.kind == "budget":
            app.action_budgets()
        else:
            self.note(f"{event.node or 'This'} is not among the nodes any more.", "dim")

    def on_line_table_opened(self, event: LineTable.Opened) -> None:
        self.action_open()
