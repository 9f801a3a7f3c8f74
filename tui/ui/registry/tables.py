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
    Action(id="follow", keys=("F",), shown="F", title="Follow the row: the view goes with it when the order changes", group="Order",
           call="follow", scopes=("fleet", "jobs")),
    Action(id="group_by", keys=("o", "shift+f8"), shown="o", title="Group the nodes by the next of cloud, region, type, ...",
           group="Groups", call="grouping(1)", scopes=("fleet",), footer="group", late=True),
    Action(id="group_by_back", keys=("O",), shown="O", title="Group the nodes by the one before", group="Groups",
           call="grouping(-1)", scopes=("fleet",)),
    Action(id="fold", keys=("left",), shown="←", title="Fold the group", group="Groups", call="fold", scopes=("fleet",)),
    Action(id="unfold", keys=("right",), shown="→", title="Unfold the group", group="Groups", call="unfold", scopes=("fleet",)),
    Action(id="fold_all", keys=("shift+left",), shown="Shift+←", title="Fold all groups", group="Groups", call="fold_all(True)",
           scopes=("fleet",)),
    Action(id="unfold_all", keys=("shift+right",), shown="Shift+→", title="Unfold all groups", group="Groups",
           call="fold_all(False)", scopes=("fleet",)),
    Action(id="move", keys=(), shown="arrows PgUp PgDn Home End", title="Move; the order of rows holds still meanwhile",
           group="Move", call="", scopes=EVERYWHERE, palette=False),
    Action(id="mouse", keys=(), shown="click, wheel", title="Click a row, before it to mark it, a title to sort by it; twice to open",
           group="Move", call="", scopes=("fleet", "alerts", "events", "jobs", "budgets", *MONEY), palette=False),
)  # fmt: skip
