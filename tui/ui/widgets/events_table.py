"""The table of what happened, the newest first.

Invariant: an event never changes; only its age does.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING

from tui import format as fmt
from tui.columns import Column
from tui.events import Event, EventLook
from tui.ui.lines import Line, fitted
from tui.ui.widgets.arranged_table import ArrangedTable

if TYPE_CHECKING:
    from tui.ui.happenings import Shown

EVENT_COLUMNS: tuple[Column, ...] = (
    Column(id="when", title="WHEN", width=12, priority=3, sort_key="1", descending=True,
           value=lambda row, now: (row.event.at, row.event.number), text=lambda row, now: ""),
    Column(id="age", title="AGO", width=5, priority=1,
           value=lambda row, now: None, text=lambda row, now: fmt.age(row.event.age_seconds(row.at))),
    Column(id="kind", title="KIND", width=6, priority=2, sort_key="2",
           value=lambda row, now: row.event.kind, text=lambda row, now: row.event.kind),
    Column(id="node", title="NODE", width=14, priority=4, sort_key="3",
           value=lambda row, now: row.event.node or None, text=lambda row, now: fmt.clean(row.event.node) or fmt.UNKNOWN),
    Column(id="what", title="WHAT", width=30, priority=1, flex=True,
           value=lambda row, now: None, text=lambda row, now: fmt.clean(brief_text(row.event))),
)  # fmt: skip
SIGNS = {"good": "✓", "warning": "!", "bad": "✗", "": " "}
"""Before what happened, so that it is not told by colour alone."""
_STYLES = {"good": "accent", "warning": "idle", "bad": "lost", "": "text"}


class EventsTable(ArrangedTable):
    """`zone` is the reader's."""

    def __init__(self, shown: Callable[[], Shown], clock: Callable[[], float], now: Callable[[], datetime], zone: tzinfo) -> None:
        super().__init__(EVENT_COLUMNS, "when", clock, id="events")
        self._descending = True
        self._shown_events = shown
        self._now = now
        self._zone = zone
        self._by_key: dict[str, EventLook] = {}
        self._version: Hashable = -1
        self._of_another = False
        """What stands in it is of another time than now."""

    def _layout(self) -> None:
        """What happened takes all the room that is left."""
        super()._layout()
        for place, shown in enumerate(self._sets):
            if shown and shown[-1][0].id == "what":
                used = sum(cells for _, cells in shown) + self.gap * (len(shown) - 1)
                self._sets[place] = [*shown[:-1], (shown[-1][0], shown[-1][1] + max(0, self.room - used))]
        self._show_titles()

    @property
    def _names_nodes(self) -> bool:
        """A column says of which node it is; on narrow screens the sentence must."""
        return any(column.id == "node" for column, _ in self.shown_columns)

    def order_rows(self, now: float) -> None:
        """Whoever stands on the newest event stays on the newest."""
        on_newest = self.sort_column.id == "when" and self._descending and self.position(self.cursor_key) == 0
        super().order_rows(now)
        if on_newest and self.keys and self.cursor_key != self.keys[0]:
            self.cursor_key = self.keys[0]  # not `move_to`: nobody moved, so the order need not hold still
            self.scroll_to(y=0, animate=False)
            self.refresh(self.size.region)

    @property
    def chosen(self) -> EventLook | None:
        return self._by_key.get(self.cursor_key) if self.cursor_key is not None else None

    def rows(self) -> Iterable[EventLook]:
        at, shown = self._now(), self._shown_events()
        self._version, self._of_another = shown.version, shown.other_time
        self._by_key = {str(event.number): EventLook(event, at) for event in shown.events}
        return self._by_key.values()

    def key_of(self, row: EventLook) -> str:
        return str(row.event.number)

    def row_of(self, key: str) -> EventLook:
        return EventLook(self._by_key[key].event, self._now())

    @property
    def pace(self) -> float:
        """Another moment is shown at once: it was asked for."""
        return 0.0 if self._of_another or self._shown_events().other_time else super().pace

    def changed(self) -> bool:
        return self._shown_events().version != self._version

    def look_of(self, row: EventLook, now: float) -> Hashable:
        return fmt.age(row.event.age_seconds(row.at))

    def cell(self, row: EventLook, column: Column, cells: int, now: float) -> Line:
        event = row.event
        if column.id == "what":
            text = column.text(row, now) if self._names_nodes else event.text.removeprefix("node ")
            return ((f"{SIGNS[event.level]} ", _STYLES[event.level]), (fitted(text, cells - 2), "text"))
        text = when_text(event.at, row.at, self._zone) if column.id == "when" else column.text(row, now)
        style = {"when": "dim", "age": "text", "kind": "accent", "node": "strong"}[column.id]
        return ((fitted(text, cells, right=column.align == "right"), style),)


_OPENINGS = ("critical alert ", "warning alert ", "alert ", "job ")


def brief_text(event: Event) -> str:
    """Its sentence without what the other columns say."""
    name = fmt.clean(event.node)
    text = event.text.removeprefix(f"node {name} ").removeprefix(f"notice for {name}: ").replace(f" on {name}", "", 1)
    return next((text.removeprefix(each) for each in _OPENINGS if text.startswith(each)), text)


def when_text(at: datetime, now: datetime, zone: tzinfo) -> str:
    """`14:05:10`, of another day `Nov 29 14:05`."""
    local, today = at.astimezone(zone), now.astimezone(zone).date()
    return f"{local:%H:%M:%S}" if local.date() == today else f"{local:%b %d %H:%M}"
