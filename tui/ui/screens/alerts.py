"""All alerts of the fleet: what, where, since when, the reading that fired it, and what it costs per hour.

Invariant: a node that fell silent is an alert too; a price that is not known is `–`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import ClassVar

from textual import events
from textual.app import ComposeResult

from agent import wire
from tui import format as fmt
from tui.alerts import all_alerts
from tui.ui import actions
from tui.ui.lines import Line, fitted, joined
from tui.ui.screens.base import RackrateScreen
from tui.ui.widgets.header import Header
from tui.ui.widgets.line_table import Cells, LineTable
from tui.ui.widgets.status import Footer, StatusLine

_COLUMNS: tuple[tuple[str, str, int, int, bool], ...] = (
    ("severity", "SEVERITY", 8, 1, False),
    ("node", "NODE", 16, 1, False),
    ("rule", "RULE", 13, 3, False),
    ("gpu", "GPU", 3, 4, True),
    ("reading", "READING", 12, 2, True),
    ("threshold", "LIMIT", 10, 5, True),
    ("since", "FOR", 4, 2, True),
    ("money", "$/H", 9, 2, True),
    ("message", "WHAT", 30, 6, False),
)
"""Id, title, width, priority, right-aligned; the last one grows."""


class AlertTable(LineTable):
    """Rows are alerts, by node and key."""

    def __init__(self, gpu_index: Callable[[wire.Alert], str]) -> None:
        super().__init__(id="alerts")
        self._gpu_index = gpu_index
        self.alerts: dict[str, wire.Alert] = {}
        self.at = datetime.now(UTC)
        self.empty = ((("  No alerts. Everything that is held is used, and every node is heard.", "dim"),),)

    def on_resize(self, event: events.Resize) -> None:
        self.forget()
        self.set_titles(self._fitting(), ("", False))

    def _fitting(self) -> list[tuple[str, str, int, bool]]:
        used, chosen = -1, set[str]()
        for ident, _, cells, _, _ in sorted(_COLUMNS, key=lambda column: column[3]):
            if used + 1 + cells > self.room:
                break
            used += 1 + cells
            chosen.add(ident)
        spare = self.room - used
        return [
            (ident, title, cells + (spare if ident == "message" else 0), right)
            for ident, title, cells, _, right in _COLUMNS
            if ident in chosen
        ]

    def cells_of(self, key: str) -> Cells:
        alert = self.alerts[key]
        style = "lost" if alert.severity == "critical" else "idle"
        texts = {
            "severity": (alert.severity, style),
            "node": (fmt.clean(alert.node), "strong"),
            "rule": (alert.rule.replace("_", " "), "text"),
            "gpu": (self._gpu_index(alert), "dim"),
            "reading": (fmt.clean(alert.reading or fmt.UNKNOWN), "text"),
            "threshold": (fmt.clean(alert.threshold or fmt.UNKNOWN), "dim"),
            "since": (fmt.age(max(0.0, (self.at - alert.since).total_seconds())), "text"),
            "money": (money_text(alert.usd_per_hour), "idle" if alert.usd_per_hour else "dim"),
            "message": (fmt.clean(alert.message), "dim"),
        }
        return tuple(
            ((fitted(texts[ident][0], cells, right=right), texts[ident][1]),) for ident, _, cells, right in self.titles
        )


def money_text(usd_per_hour: str | None) -> str:
    """`$2.10`, or `–`."""
    from decimal import Decimal

    return fmt.UNKNOWN if usd_per_hour is None else fmt.usd(Decimal(usd_per_hour))


class AlertsScreen(RackrateScreen):
    """Enter goes to the node."""

    SCOPE = "alerts"
    BINDINGS: ClassVar = actions.bindings("alerts")

    def compose(self) -> ComposeResult:
        yield Header()
        yield AlertTable(self._gpu_index)
        yield StatusLine(self.rackrate.clock)
        yield Footer("alerts")

    def on_mount(self) -> None:
        self.query_one(AlertTable).focus()

    def _gpu_index(self, alert: wire.Alert) -> str:
        for gpu in self.rackrate.fleet[alert.node].gpus if alert.gpu else ():
            if gpu.uuid == alert.gpu:
                return str(gpu.index)
        return ""

    def redraw(self) -> None:
        app, table = self.rackrate, self.query_one(AlertTable)
        self.show_header()
        found = all_alerts(app.fleet, app.clock(), app.now())
        table.at = app.now()
        table.alerts = {f"{alert.node} {alert.key}": alert for alert in found}
        table.set_keys(list(table.alerts))
        table.refresh_rows()
        table.drop_rows(set(table.alerts))
        self.query_one(StatusLine).show_line(self._summary(found, table.cursor_key))

    def _summary(self, found: list[wire.Alert], key: str | None) -> Line:
        width = self.app.size.width
        alert = self.query_one(AlertTable).alerts.get(key or "")
        count: Line = ((f" {len(found)} alert{'s' * (len(found) != 1)}", "text"),)
        if alert is None:
            return count
        return joined([count, ((fitted(fmt.clean(alert.message), max(0, width - 16)).rstrip(), "dim"),)], "   ", width)

    def on_line_table_moved(self, event: LineTable.Moved) -> None:
        self.redraw()

    def on_line_table_opened(self, event: LineTable.Opened) -> None:
        self.action_open()

    def action_open(self) -> None:
        alert = self.query_one(AlertTable).alerts.get(self.query_one(AlertTable).cursor_key or "")
        if alert is not None:
            self.rackrate.open_node(alert.node)

    def action_back(self) -> None:
        self.app.pop_screen()
