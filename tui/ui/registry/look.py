"""What is looked at: rows, nodes, jobs, alerts."""

from __future__ import annotations

from tui.ui.action import LOOKS, TABLES, Action

LOOK_ACTIONS: tuple[Action, ...] = (
    Action(id="open", keys=("enter",), shown="Enter", title="Open what is under the cursor", group="Look", call="open",
           scopes=("fleet", "alerts", "events", "jobs", "market", "advice"), footer="open"),
    Action(id="back", keys=("escape", "backspace"), shown="Esc", title="Back; in a table: clear marks, then the filter", group="Look",
           call="back", scopes=LOOKS, footer="back"),
    Action(id="leave", keys=("escape",), shown="Esc", title="Back; the form keeps what was typed", group="Look",
           call="back", scopes=("submit",), footer="back"),
    Action(id="filter", keys=("slash", "f3"), shown="/", title="Filter the rows", group="Look", call="filter",
           scopes=(*TABLES, "alerts"), footer="filter"),
    Action(id="jobs", keys=("j", "f5"), shown="j", title="Jobs of the fleet, or of this node", group="Look", call="jobs",
           scopes=("fleet", "node", "alerts", "events"), footer="jobs"),
    Action(id="alerts", keys=("a", "f4"), shown="a", title="Alerts of the whole fleet", group="Look", call="app.alerts",
           scopes=("fleet", "node", "jobs", "events", "budgets"), footer="alerts"),
    Action(id="events", keys=("E",), shown="E", title="Events: what happened to nodes, jobs, alerts and prices", group="Look",
           call="app.events", scopes=tuple(scope for scope in LOOKS if scope not in ("events", "help")), footer="events", late=True),
    Action(id="go_back", keys=("alt+left", "minus"), shown="Alt+←", title="Back to the screen of before", group="Look",
           call="app.travel(-1)", scopes=LOOKS),
    Action(id="go_forward", keys=("alt+right", "plus"), shown="Alt+→", title="Forward again", group="Look",
           call="app.travel(1)", scopes=LOOKS),
    Action(id="keep_filter", keys=("K",), shown="K", title="Keep this filter under a name: @name", group="Look",
           call="app.keep_filter", scopes=(*TABLES, "alerts")),
    Action(id="job_node", keys=("g", "f11"), shown="g", title="The node of this job", group="Look", call="open_node",
           scopes=("jobs", "job")),
    Action(id="next_node", keys=("right_square_bracket", "ctrl+right"), shown="]", title="Next node", group="Look",
           call="step_node(1)", scopes=("node",), footer="next"),
    Action(id="previous_node", keys=("left_square_bracket", "ctrl+left"), shown="[", title="Previous node", group="Look",
           call="step_node(-1)", scopes=("node",)),
    Action(id="next_attempt", keys=("right_square_bracket", "ctrl+right"), shown="]", title="Log of the next attempt",
           group="Look", call="step_attempt(1)", scopes=("job",)),
    Action(id="previous_attempt", keys=("left_square_bracket", "ctrl+left"), shown="[", title="Log of the attempt before",
           group="Look", call="step_attempt(-1)", scopes=("job",)),
    Action(id="pane", keys=("tab", "shift+tab"), shown="Tab", title="From the facts of a job to its log and back",
           group="Look", call="switch_pane", scopes=("job",), footer="log/facts"),
    Action(id="whole_log", keys=("l", "f6"), shown="l", title="The log on the whole screen", group="Look", call="whole_log",
           scopes=("job",), footer="whole log"),
)  # fmt: skip
