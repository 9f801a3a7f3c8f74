"""All alerts of the fleet: what, where, since when, the reading that fired it, and what it costs per hour.

Invariant: a node that fell silent is an alert too; a price that is not known is `–`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, ClassVar

import msgspec
from textual import events
from textual.app import ComposeResult

from agent import wire
from tui import format as fmt
from tui.alerts import all_alerts, message_text, severity_text
from tui.columns import Column, fit
from tui.query import Predicate
from tui.query_rows import ALERT_WORDS, AlertLook
from tui.ui import actions
from tui.ui.lines import Line, at_most, fitted, joined, width, wrapped
from tui.ui.screens.base import RackrateScreen
from tui.ui.widgets.header import Header
from tui.ui.widgets.line_table import Cells, LineTable
from tui.ui.widgets.lines_view import RaisedLines
from tui.ui.widgets.status import FilterBar, Footer, StatusLine

EXAMPLE = "severity:critical rule:idle age>20m cost>2 user:me"
BUDGET_RULES = ("budget", "budget_forecast")
NOTHING: tuple[Line, ...] = (
    (("  No alerts: what is held is used, and every node is heard.", "strong"),),
    (),
    (("  What will stand here: ", "dim"), ("GPUs that are held and idle, too hot, throttled or", "dim")),
    (("  lost; full disks; notices of the cloud; silent nodes; budgets that run out.", "dim"),),
    (("  [alerts] in agent.toml", "key"), ("    sets the limits of a node", "dim")),
    (("  E", "key"), ("                         shows alerts that are over", "dim")),
)
WHOLE_FROM_ROWS, WHOLE_ROWS = 16, 2
WORDS = (("critical", "lost"), ("warning", "idle"), ("paused", "dim"))
NO_MATCH: tuple[Line, ...] = ((("  No alert matches this filter. Esc clears it.", "dim"),),)


class AlertRow(msgspec.Struct, frozen=True):
    """An alert, the index of its GPU, and the time it is looked at."""

    alert: wire.Alert
    gpu: str
    at: datetime

    @property
    def age_seconds(self) -> float:
        return max(0.0, (self.at - self.alert.since).total_seconds())


def _column(ident: str, title: str, width: int, priority: int, text: Callable[[AlertRow], str], **more: Any) -> Column:
    return Column(id=ident, title=title, width=width, priority=priority, value=lambda row, _: None,
                  text=lambda row, _: fmt.clean(text(row)), **more)  # fmt: skip


ALERT_COLUMNS: tuple[Column, ...] = (
    _column("severity", "SEVERITY", 8, 2, lambda row: severity_text(row.alert)),
    _column("node", "NODE", 16, 1, lambda row: row.alert.node),
    _column("rule", "RULE", 13, 3, lambda row: row.alert.rule.replace("_", " ")),
    _column("gpu", "GPU", 3, 4, lambda row: row.gpu),
    _column("reading", "READING", 15, 4, lambda row: row.alert.reading or fmt.UNKNOWN, flex=True),
    _column("threshold", "LIMIT", 14, 5, lambda row: row.alert.threshold or fmt.UNKNOWN, flex=True),
    _column("since", "FOR", 4, 2, lambda row: fmt.age(row.age_seconds), align="right"),
    _column("money", "$/H", 9, 2, lambda row: money_text(row.alert.usd_per_hour), align="right"),
    _column("message", "  WHAT", 30, 6, lambda row: f"  {message_text(row.alert, row.at)}", flex=True),
)


NARROW_CELLS = 34
"""Below it there is one column."""
BRIEF = _column("brief", "ALERT", 4, 1, lambda row: brief_text(row.alert))


def brief_text(alert: wire.Alert) -> str:
    """`✗ gpu lost v100-01`: all that a very narrow screen has room for."""
    sign = "-" if alert.paused_until is not None else "✗" if alert.severity == "critical" else "!"
    return f"{sign} {alert.rule.replace('_', ' ')} {alert.node}".rstrip()


class AlertTable(LineTable):
    """Rows are alerts, by node and key."""

    def __init__(self, gpu_index: Callable[[wire.Alert], str]) -> None:
        super().__init__(id="alerts")
        self._gpu_index = gpu_index
        self._shown: list[tuple[Column, int]] = []
        self.alerts: dict[str, wire.Alert] = {}
        self.at = datetime.now(UTC)
        self.empty = NOTHING

    def on_resize(self, event: events.Resize) -> None:
        self.forget()
        narrow = self.room < NARROW_CELLS
        self._shown = [(BRIEF, self.room)] if narrow else _growing(fit(ALERT_COLUMNS, self.room)[0], self.room)
        self.set_titles([(c.id, c.title, cells, c.align == "right") for c, cells in self._shown], ("", False))

    def cells_of(self, key: str) -> Cells:
        alert = self.alerts[key]
        row = AlertRow(alert, self._gpu_index(alert), self.at)
        return tuple(
            ((fitted(column.text(row, 0.0), cells, right=column.align == "right"), _style(column, alert)),)
            for column, cells in self._shown
        )


def _growing(shown: list[tuple[Column, int]], room: int) -> list[tuple[Column, int]]:
    """The last column takes what is left when it is the message."""
    if not shown or shown[-1][0].id != "message":
        return shown
    used = sum(cells for _, cells in shown) + len(shown) - 1
    return [*shown[:-1], (shown[-1][0], shown[-1][1] + room - used)]


def _style(column: Column, alert: wire.Alert) -> str:
    match column.id:
        case "severity" | "brief":
            return "dim" if alert.paused_until is not None else "lost" if alert.severity == "critical" else "idle"
        case "money":
            return "idle" if alert.usd_per_hour else "dim"
        case "node":
            return "strong"
        case "threshold" | "message" | "gpu":
            return "dim"
    return "text"


def money_text(usd_per_hour: str | None) -> str:
    """`$2.10`, or `–`."""
    return fmt.UNKNOWN if usd_per_hour is None else fmt.usd(Decimal(usd_per_hour))


class AlertsScreen(RackrateScreen):
    """Enter goes to the node."""

    SCOPE = "alerts"
    BINDINGS: ClassVar = actions.bindings("alerts")

    def compose(self) -> ComposeResult:
        yield Header()
        yield AlertTable(self._gpu_index)
        yield RaisedLines(id="whole")
        yield FilterBar(ALERT_WORDS, EXAMPLE)
        yield StatusLine(self.rackrate.clock)
        yield Footer("alerts")

    def __init__(self) -> None:
        super().__init__()
        self._wanted: Predicate | None = None

    def on_mount(self) -> None:
        self.query_one(AlertTable).focus()

    def _looks(self) -> list[AlertLook]:
        """All alerts with their nodes."""
        app = self.rackrate
        found = all_alerts(app.fleet, app.clock(), app.now(), app.costs.alerts)
        return [AlertLook(one, app.fleet[one.node] if one.node in app.fleet else None, app.now()) for one in found]

    def _gpu_index(self, alert: wire.Alert) -> str:
        for gpu in self.rackrate.fleet[alert.node].gpus if alert.gpu else ():
            if gpu.uuid == alert.gpu:
                return str(gpu.index)
        return ""

    def draw(self) -> None:
        app, table = self.rackrate, self.query_one(AlertTable)
        self.show_header()
        looks, wanted = self._looks(), self._wanted
        found = [look.alert for look in looks if wanted is None or wanted(look, app.clock())]
        table.empty = NOTHING if not looks else NO_MATCH
        table.at = app.now()
        table.alerts = {f"{alert.node} {alert.key}": alert for alert in found}
        table.set_keys(list(table.alerts))
        table.refresh_rows()
        table.drop_rows(set(table.alerts))
        alert = self.alert_here()
        whole = self._show_whole(alert)
        self.query_one(StatusLine).show_line(self._summary(found, None if whole else alert))

    def _show_whole(self, alert: wire.Alert | None) -> bool:
        """What is under the cursor in full, where there are lines for it."""
        pane, (columns, rows) = self.query_one("#whole", RaisedLines), self.app.size
        pane.display = rows >= WHOLE_FROM_ROWS and alert is not None
        if pane.display and alert is not None:
            pane.styles.height = WHOLE_ROWS
            lines = wrapped(fmt.clean(message_text(alert, self.rackrate.now())), "text", columns - 1, " ")
            pane.show(at_most(lines, WHOLE_ROWS, columns - 1))
        return pane.display

    def _summary(self, found: list[wire.Alert], alert: wire.Alert | None) -> Line:
        """How many, by how bad they are; the sentence of `alert`, where it has no lines of its own."""
        applied, cells = self.query_one(FilterBar).applied, self.app.size.width
        query: Line = ((f" /{applied} ", "key"),) if applied else ()
        count: Line = (*query, (f" {fmt.counted(len(found), 'alert')}", "text"))
        if alert is not None:
            room = max(0, cells - width(count) - 3)
            return (*count, ("   ", "dim"), (fitted(fmt.clean(alert.message), room).rstrip(), "dim"))
        counts = Counter(map(severity_text, found))
        words: list[Line] = [((f"{counts[word]} ", style), (word, "dim")) for word, style in WORDS if counts[word]]
        return joined([count, *words], "   ", cells)

    def on_line_table_moved(self, event: LineTable.Moved) -> None:
        self.redraw()

    def on_line_table_opened(self, event: LineTable.Opened) -> None:
        self.action_open()

    def alert_here(self) -> wire.Alert | None:
        """The one under the cursor."""
        return self.query_one(AlertTable).alerts.get(self.query_one(AlertTable).cursor_key or "")

    def action_open(self) -> None:
        alert = self.query_one(AlertTable).alerts.get(self.query_one(AlertTable).cursor_key or "")
        if alert is not None and alert.rule in BUDGET_RULES:
            self.rackrate.action_budgets()
        elif alert is not None:
            self.rackrate.open_node(alert.node)

    def action_filter(self) -> None:
        bar = self.query_one(FilterBar)
        bar.rows = self._looks
        bar.open()
        self.redraw()

    def on_filter_bar_changed(self, event: FilterBar.Changed) -> None:
        self._wanted = event.wanted
        self.redraw()

    def on_filter_bar_closed(self, event: FilterBar.Closed) -> None:
        self.query_one(AlertTable).focus()
        self.redraw()

    def action_back(self) -> None:
        """Clears the filter; where there is none, leaves."""
        bar = self.query_one(FilterBar)
        if bar.applied or bar.is_open:
            bar.clear()
        else:
            self.app.pop_screen()
