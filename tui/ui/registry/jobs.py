"""What is done with jobs."""

from __future__ import annotations

from tui.ui.action import Action

JOBS_ACTIONS: tuple[Action, ...] = (
    Action(id="submit", keys=("n", "insert"), shown="n", title="Submit a new job", group="Jobs", call="submit",
           scopes=("jobs", "node"), footer="new", changes=True),
    Action(id="cancel", keys=("x", "delete"), shown="x", title="Stop the job, or those that are marked; again: by force", group="Jobs", call="cancel_job",
           scopes=("jobs", "job"), footer="stop", changes=True),
    Action(id="signal", keys=("k", "f12"), shown="k", title="Send the job, or those that are marked, a signal", group="Jobs", call="signal_job",
           scopes=("jobs", "job"), footer="signal", late=True, changes=True),
    Action(id="copy", keys=("y", "c", "ctrl+insert"), shown="y", title="Copy the job's id; of marked ones one a line", group="Jobs",
           call="copy_id", scopes=("jobs", "job"), footer="copy id", late=True),
    Action(id="log", keys=("l",), shown="l", title="Log of the job, on the whole screen", group="Jobs", call="open_log",
           scopes=("jobs",), footer="log", late=True),
    Action(id="resubmit", keys=("e", "shift+insert"), shown="e", title="Submit a new job like this one, with changes", group="Jobs",
           call="resubmit", scopes=("jobs", "job"), footer="again", late=True, changes=True),
    Action(id="try", keys=("f5", "ctrl+t"), shown="F5", title="Dry run: where the job would run, and for how much",
           group="Jobs", call="try_out", scopes=("submit",), footer="dry run"),
    Action(id="send", keys=("ctrl+s", "f7"), shown="Ctrl+S", title="Send the job; what was not tried is tried first",
           group="Jobs", call="send", scopes=("submit",), footer="send", changes=True),
)  # fmt: skip
