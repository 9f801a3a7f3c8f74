"""Costs, market and advice."""

from __future__ import annotations

from tui.ui.action import MONEY, Action

MONEY_ACTIONS: tuple[Action, ...] = (
    Action(id="narrow", keys=("enter",), shown="Enter", title="Only this group, by the next grouping", group="Money",
           call="open", scopes=("costs",), footer="drill"),
    Action(id="costs", keys=("c", "f12"), shown="c", title="Costs of the month, and budgets", group="Money", call="app.costs",
           scopes=("fleet", "node", "alerts", "market", "price", "advice"), footer="costs", late=True),
    Action(id="market", keys=("m", "shift+f5"), shown="m", title="Market: what a GPU-hour costs everywhere", group="Money",
           call="app.market", scopes=("fleet", "node", "alerts", "jobs", "job", "costs", "advice"), footer="market", late=True),
    Action(id="advice", keys=("v", "shift+f7"), shown="v", title="Advice: what would save money", group="Money",
           call="app.advice", scopes=("fleet", "node", "alerts", "jobs", "job", "costs", "market"), footer="advice", late=True),
    Action(id="dismiss", keys=("x", "delete"), shown="x", title="Dismiss advice with a reason; dismissed: take it back",
           group="Money", call="dismiss", scopes=("advice", "card"), footer="dismiss"),
    Action(id="dismissed", keys=("d", "f8"), shown="d", title="Show what was dismissed, or leave it out", group="Money",
           call="dismissed", scopes=("advice",), footer="dismissed"),
    Action(id="break_off", keys=("b", "f6"), shown="b", title="Break off computing advice", group="Money", call="break_off",
           scopes=("advice",)),
    Action(id="next_card", keys=("right_square_bracket", "ctrl+right"), shown="]", title="Card of the next advice",
           group="Money", call="step(1)", scopes=("card",), footer="next"),
    Action(id="previous_card", keys=("left_square_bracket", "ctrl+left"), shown="[", title="Card of the advice before",
           group="Money", call="step(-1)", scopes=("card",)),
    Action(id="more_days", keys=("right_square_bracket", "ctrl+right"), shown="]", title="More days of a price", group="Money",
           call="days(1)", scopes=("price",), footer="more days"),
    Action(id="fewer_days", keys=("left_square_bracket", "ctrl+left"), shown="[", title="Fewer days of a price", group="Money",
           call="days(-1)", scopes=("price",), footer="fewer"),
    Action(id="costs_from_jobs", keys=("C",), shown="C", title="Costs of the month, and budgets", group="Money",
           call="app.costs", scopes=("jobs", "job")),
    Action(id="grouping", keys=("g", "f11"), shown="g", title="Costs by the next grouping", group="Money", call="grouping(1)",
           scopes=("costs",), footer="group by"),
    Action(id="grouping_back", keys=("G",), shown="G", title="Costs by the grouping before", group="Money",
           call="grouping(-1)", scopes=("costs",)),
    Action(id="month_before", keys=("left_square_bracket", "ctrl+left"), shown="[", title="Costs of the month before",
           group="Money", call="month(-1)", scopes=("costs",), footer="month before"),
    Action(id="month_after", keys=("right_square_bracket", "ctrl+right"), shown="]", title="Costs of the month after",
           group="Money", call="month(1)", scopes=("costs",)),
    Action(id="export", keys=("e", "f4"), shown="e", title="Write what is on the screen as CSV", group="Money", call="export",
           scopes=("costs",), footer="export"),
    Action(id="again", keys=("u", "f5"), shown="u", title="Read it again now", group="Money", call="again", scopes=MONEY),
)  # fmt: skip
