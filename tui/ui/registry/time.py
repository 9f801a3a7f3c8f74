"""Time: stepping back from live, jumping, and a replay's pace."""

from __future__ import annotations

from tui.ui.action import LOOKS, Action, Scope

SCOPES: tuple[Scope, ...] = tuple(scope for scope in LOOKS if scope not in ("help", "submit"))

TIME_ACTIONS: tuple[Action, ...] = (
    Action(id="time_back", keys=("comma",), shown=",", title="A second back in time; live goes on meanwhile", group="Time",
           call="app.time_step(-1)", scopes=SCOPES),
    Action(id="time_on", keys=("full_stop",), shown=".", title="A second on", group="Time", call="app.time_step(1)",
           scopes=SCOPES),
    Action(id="time_minute_back", keys=("less_than_sign",), shown="<", title="A minute back in time", group="Time",
           call="app.time_step(-60)", scopes=SCOPES),
    Action(id="time_minute_on", keys=("greater_than_sign",), shown=">", title="A minute on", group="Time",
           call="app.time_step(60)", scopes=SCOPES),
    Action(id="time_jump", keys=("at",), shown="@", title="Jump to a time: -2h, 14:05, an ISO time", group="Time",
           call="app.time_jump", scopes=SCOPES),
    Action(id="time_live", keys=("L",), shown="L", title="Back to live; in a replay the newest moment", group="Time",
           call="app.time_live", scopes=SCOPES),
    Action(id="time_run", keys=("P",), shown="P", title="Time stands still, or goes on 1, 10, 60 times as fast", group="Time",
           call="app.time_run", scopes=SCOPES),
)  # fmt: skip
