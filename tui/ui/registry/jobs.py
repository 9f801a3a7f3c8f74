"""What is done with jobs."""

from __future__ import annotations

from tui.ui.action import Action

JOBS_ACTIONS: tuple[Action, ...] = (
    Action(id="submit", keys=("n", "insert"), shown="n", title="Submit a new job", group="Jobs", call="submit",
           scopes=("jobs", "node"), footer="new", changes=True),
    Action(id="submit_here", keys=("n", "insert"), shown="n", title="Submit a new job", group="Jobs", call="app.submit",
           scopes=("fleet",), changes=True),
    Action(id="cancel", keys=("x", "delete"), shown="x", title="Stop the job, or those that are marked; again: by force", group="Jobs", call="cancel_job",
           scopes=("jobs", "job"), footer="stop", changes=True),
    Action(id="signal", keys=("k", "f12"), shown="k", title="Send the job, or those that are marked, a signal", group="Jobs", call="signal_job",
           scopes=("jobs", "job"), footer="signal", late=True, changes=True),
    Action(id="copy", keys=("y", "ctrl+insert"), shown="y", title="Copy the job's id; of marked ones one a line", group="Jobs",
           call="copy_id", scopes=("jobs", "job"), footer="copy id", late=True),
    Action(id="log", keys=("l",), shown="l", title="Log of the job, on the whole screen", group="Jobs", call="open_log",
           scopes=("jobs",), footer="log", late=True),
    Action(id="resubmit", keys=("e", "shift+insert"), shown="e", title="Submit a new job like this one, with changes", group="Jobs",
           call="resubmit", scopes=("jobs", "job"), footer="again", late=True, changes=True),
    Action(id="try", keys=("f5", "ctrl+t"), shown="F5", title="Dry run: where the job would run, and for how much",
           group="Jobs", call="try_out", scopes=("submit",), footer="dry run"),
    Action(id="send", keys=("ctrl+s", "f7"), shown="Ctrl+S", title="Send the job; what was not tried is tried first",
           group="Jobs", call="send", scopes=("submit",), footer="send", changes=True),
    Action(id="more_fields", keys=("f8",), shown="F8", title="Fields that are seldom needed, or without them", group="Jobs",
           call="more_fields", scopes=("submit",), footer="more fields", late=True),
    Action(id="copy_line", keys=("f9", "ctrl+y"), shown="F9", title="Copy the command line that does the same", group="Jobs",
           call="copy_line", scopes=("submit",), footer="copy command", late=True),
    Action(id="log_search", keys=("slash", "f3"), shown="/", title="Search the whole log: text, or /expression/", group="Log",
           call="search", scopes=("job",), footer="search"),
    Action(id="log_next", keys=("n", "shift+f3"), shown="n", title="Next line that matches", group="Log", call="find(1)",
           scopes=("job",), footer="next", late=True),
    Action(id="log_previous", keys=("N", "f4"), shown="N", title="The line before that matches", group="Log", call="find(-1)",
           scopes=("job",)),
    Action(id="log_pause", keys=("space", "f8"), shown="Space", title="Hold the log still; again: go on", group="Log", call="pause",
           scopes=("job",), footer="pause"),
    Action(id="log_follow", keys=("f", "f5"), shown="f", title="Follow the end of the log", group="Log", call="follow",
           scopes=("job",), footer="follow", late=True),
    Action(id="log_wrap", keys=("w", "f7"), shown="w", title="Long lines over several rows, or cut", group="Log", call="wrap",
           scopes=("job",), footer="wrap", late=True),
)  # fmt: skip
