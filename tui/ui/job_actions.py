"""What a person can do to a job: stop it, by force when it does not go, signal it, copy its id.

Invariant: the job that is asked about is the one that is acted on, whatever moved meanwhile; what went wrong is a sentence.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from agent import wire
from tui import format as fmt
from tui.fleet_jobs import RUNNING, JobView
from tui.job_rows import name_text, span
from tui.ui.actions import read_only
from tui.ui.screens.base import RackrateScreen
from tui.ui.screens.confirm import ConfirmScreen, SignalScreen

if TYPE_CHECKING:
    from agent.client import AgentClient
    from tui.ui.app import RackrateApp


class JobActions(RackrateScreen):
    """A screen with a job in its focus."""

    def job_here(self) -> JobView | None:
        """The job that is acted on; None: there is none."""
        raise NotImplementedError

    def action_cancel_job(self) -> None:
        view = self.job_here()
        if view is None:
            self.note("There is no job here.", "dim")
            return
        if view.job.state == "ended":
            self.note(f"{view.job.id} has ended: {view.job.cause or 'nothing to stop'}.", "dim")
            return
        force = view.job.state == "stopping"
        name, ident = view.node.name, view.job.id

        def answered(yes: bool | None) -> None:
            if yes:
                act(self.rackrate, name, ident, "stop", lambda client: client.cancel(ident, force=force))

        self.app.push_screen(stop_question(view, self.rackrate.clock()), answered)

    def action_signal_job(self) -> None:
        view = self.job_here()
        if view is None or view.job.state not in RUNNING:
            self.note("Only a job that runs can be signalled.", "dim")
            return
        name, ident = view.node.name, view.job.id

        def answered(signal: str | None) -> None:
            if signal:
                act(self.rackrate, name, ident, f"signal {signal}", lambda client: client.signal(ident, signal))

        self.app.push_screen(SignalScreen(f"{ident} ({_short(view.job)}) on {fmt.clean(name)}"), answered)

    def action_copy_id(self) -> None:
        view = self.job_here()
        if view is not None:
            self.rackrate.copy_text(view.job.id, fmt.clean(view.job.id))

    def action_open_node(self) -> None:
        view = self.job_here()
        if view is not None:
            self.rackrate.open_node(view.node.name)


def _short(job: wire.Job) -> str:
    text = name_text(job)
    return text if len(text) <= 40 else text[:39] + "…"


def stop_question(view: JobView, now: float) -> ConfirmScreen:
    """Says what stopping this job does now."""
    job = view.job
    force = job.state == "stopping"
    where = f"{job.id} ({_short(job)}) on {fmt.clean(view.node.name)}"
    sentences: list[tuple[str, str]] = []
    run, cost = view.run_seconds(now), view.cost(now)
    if run is not None:
        money = f" and cost {fmt.usd(cost)}" if cost is not None else ""
        sentences.append((f"{fmt.clean(job.user or 'Somebody')}'s job, which ran for {span(run)}{money}.", "text"))
    if force:
        sentences.append(("It is being stopped already. By force every process of it is killed at once, without grace:"
                          " what it has not saved is lost.", "idle"))  # fmt: skip
    elif job.state == "queued":
        sentences.append(("It has not started: it is taken out of the queue.", "text"))
    else:
        grace = "its grace" if job.grace_seconds is None else f"{job.grace_seconds:g} s"
        sentences.append((f"Its first process gets SIG{fmt.clean(job.stop_signal or 'TERM').removeprefix('SIG')} and {grace} to save"
                          " and end; then every process of it is killed.", "text"))  # fmt: skip
    sentences.append((f"the same: rackrate job cancel {job.id}{' --force' * force}", "dim"))
    if job.array_counts:
        sentences.insert(0, (f"All of its {sum(job.array_counts.values())} tasks.", "idle"))
    question = f"Kill job {where} by force?" if force else f"Stop job {where}?"
    return ConfirmScreen(question, sentences, "leave it", "kill it now" if force else "stop it")


Call = Callable[["AgentClient"], Awaitable[wire.Job]]


def act(app: RackrateApp, name: str, ident: str, verb: str, call: Call) -> None:
    """Asks the node; the answer is in the fleet and in the status line when it comes."""
    if read_only():
        tell(app, f"{verb} {ident}: refused, this is read-only.", "idle")
        return
    app.asking.start(_act(app, name, ident, verb, call))


async def _act(app: RackrateApp, name: str, ident: str, verb: str, call: Call) -> None:
    from agent.client import ClientError
    from tui.errors import RackrateError

    tell(app, f"{verb} {ident}: asking {fmt.clean(name)} ...", "dim")
    try:
        async with app.asking.client(name) as client:
            job = await call(client)
    except (ClientError, RackrateError) as error:
        tell(app, f"{verb} {ident}: {fmt.clean(getattr(error, 'text', None) or str(error))}", "lost")
        return
    app.fleet.apply(name, wire.JobEvent(job=job), app.clock())
    tell(app, f"{verb} {ident}: done, it is {job.state}", "accent")
    app.redraw()


def tell(app: RackrateApp, text: str, style: str) -> None:
    """In the status line of whatever screen is on top."""
    if isinstance(app.screen, RackrateScreen):
        app.screen.note(text, style)
