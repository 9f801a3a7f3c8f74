"""What is done with jobs."""

from __future__ import annotations

from tui.ui.action import Action

JOBS_ACTIONS: tuple[Action, ...] = (
    Action(id="submit", keys=("n", "insert"), shown="n", title="Submit a new job", group="Jobs", call="submit",
           scopes=("jobs", "node"), footer="new", changes=True),
    Action(id="cancel", keys=("x", "delete"), shown="x", title="Stop the job; again: by force", group="Jobs", call="cancel_job",
           scopes=("jobs", "job"), footer="stop", changes=True),
    Action(id="signal", keys=("k", "f12"), shown="k", title="Send the job a signal", group="Jobs", call="signal_job",
           scopes=("jobs", "job"), footer="signal", late=True, changes=True),
    Action(id="copy", keys=("c", "ctrl+insert"), shown="c", title="Copy the job's id", group="Jobs", call="copy_id",
           scopes=("jobs", "job"), footer="copy id", late=True),
    Action(id="try", keys=("f5", "ctrl+t"), shown="F5", title="Dry run: where the job would run, and for how much",
           group="Jobs", call="try_out", scopes=("submit",), footer="dry run"),
    Action(id="send", keys=("ctrl+s", "f7"), shown="Ctrl+S", title="Send the job; what was not tried is tried first",
           group="Jobs", call="send", scopes=("submit",), footer="send", changes=True),
)  # fmt: skip
