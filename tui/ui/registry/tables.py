"""Order, columns and movement in tables."""

from __future__ import annotations

from tui.ui.action import EVERYWHERE, MONEY, TABLES, Action

TABLES_ACTIONS: tuple[Action, ...] = (
    Action(id="sort_next", keys=("s", "f6"), shown="s", title="Sort by the next column", group="Order", call="sort_next(1)",
           scopes=TABLES, footer="sort", late=True),
    Action(id="sort_previous", keys=("S", "shift+f6"), shown="S", title="Sort by the column before", group="Order",
           call="sort_next(-1)", scopes=TABLES),
    Action(id="reverse", keys=("r", "f7"), shown="r", title="Reverse the order", group="Order", call="reverse",
           scopes=TABLES),
    Action(id="sort_column", keys=tuple("1234567890"), shown="0-9", title="Sort by the column with this number",
           group="Order", call="sort_key", scopes=TABLES, palette=False),
    Action(id="columns", keys=("w", "f8"), shown="w", title="Show the columns that are hidden", group="Order", call="columns",
           scopes=TABLES),
    Action(id="mark", keys=("space",), shown="Space", title="Mark the row, or take its mark away", group="Marks", call="mark",
           scopes=("fleet", "jobs"), footer="mark", late=True),
    Action(id="mark_range", keys=("V", "ctrl+@", "ctrl+space"), shown="V", title="Mark from the last mark to here", group="Marks",
           call="mark_range", scopes=("fleet", "jobs")),
    Action(id="move", keys=(), shown="arrows PgUp PgDn Home End", title="Move; the order of rows holds still meanwhile",
           group="Move", call="", scopes=EVERYWHERE, palette=False),
    Action(id="mouse", keys=(), shown="click, wheel", title="Click a row, a title to sort by it; twice to open",
           group="Move", call="", scopes=("fleet", "alerts", "jobs", *MONEY), palette=False),
)  # fmt: skip
