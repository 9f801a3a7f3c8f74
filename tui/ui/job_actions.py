"""What can be done with jobs wherever they are shown: stop, signal, copy, see their log, go to their node.

Invariant: an action is bound to the jobs that were marked or under the cursor when the key was pressed, and nothing is sent to a
node before a dialog was answered and its five seconds are over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agent import wire
from tui import format as fmt
from tui.blast import Sentence, counted, job_changed, names_text, shell, stop_sentences
from tui.fleet_jobs import RUNNING, JobView
from tui.job_rows import name_text
from tui.ui.blast import Plan, Target, ask
from tui.ui.screens.base import RackrateScreen
from tui.ui.screens.confirm import SignalScreen

if TYPE_CHECKING:
    from agent.client import AgentClient
    from tui.fleet import Fleet


MOST_CURVES = 10
"""Over each other."""


class JobActions(RackrateScreen):
    """A screen with jobs in its focus."""

    def job_here(self) -> JobView | None:
        """The job under the cursor; None: there is none."""
        raise NotImplementedError

    def jobs_here(self) -> list[JobView]:
        """The jobs that are acted on: those that are marked, else the one under the cursor."""
        here = self.job_here()
        return [here] if here is not None else []

    def action_cancel_job(self) -> None:
        views = self.jobs_here()
        stoppable = [view for view in views if view.job.state != "ended"]
        if not views:
            self.note("There is no job here.", "dim")
        elif not stoppable:
            ended = f"{views[0].job.id} has ended: {fmt.clean(views[0].job.cause or 'nothing to stop')}."
            self.note(ended if len(views) == 1 else "They have all ended.", "dim")
        else:
            ask(self.rackrate, stop_plan(stoppable, self.rackrate.clock()))

    def action_signal_job(self) -> None:
        running = [view for view in self.jobs_here() if view.job.state in RUNNING and not view.job.array_counts]
        if not running:
            self.note("Only a job that runs can be signalled.", "dim")
            return

        def answered(signal: str | None) -> None:
            if signal:
                ask(self.rackrate, signal_plan(running, signal))

        self.app.push_screen(SignalScreen(_whom(running)), answered)

    def action_copy_id(self) -> None:
        """Ids, one a line."""
        views = self.jobs_here()
        if views:
            what = views[0].job.id if len(views) == 1 else counted(len(views), "id")
            self.rackrate.copy_text("\n".join(view.job.id for view in views), what)

    def action_resubmit(self) -> None:
        """The form of a new job, filled from this one."""
        view = self.job_here()
        if view is not None:
            self.rackrate.submit_again(view.node.name, view.job.id)

    def action_curves(self) -> None:
        """What their trainings told, over each other."""
        views = [view for view in self.jobs_here() if not view.job.array_counts]
        if not views:
            self.note("An array has no curves of its own: mark its tasks." if self.jobs_here() else "There is no job here.", "dim")
            return
        if len(views) > MOST_CURVES:
            self.note(f"The first {MOST_CURVES} of {len(views)} are shown.", "dim")
        self.rackrate.open_curves([(view.node.name, view.job.id) for view in views[:MOST_CURVES]])

    def action_open_node(self) -> None:
        view = self.job_here()
        if view is not None:
            self.rackrate.open_node(view.node.name)

    def action_open_log(self) -> None:
        """The log of the job under the cursor, on the whole screen."""
        view = self.job_here()
        if view is None:
            self.note("There is no job here.", "dim")
            return
        self.rackrate.open_job(view.node.name, view.job.id)
        self.app.call_later(self.app.run_action, "whole_log", self.app.screen)


def _short(job: wire.Job) -> str:
    text = name_text(job)
    return text if len(text) <= 40 else text[:39] + "…"


def _whom(views: Sequence[JobView]) -> str:
    """`0abc00000001 (train-1) on gpu-01`, `3 jobs on gpu-01 and gpu-02`."""
    if len(views) == 1:
        return f"{views[0].job.id} ({_short(views[0].job)}) on {fmt.clean(views[0].node.name)}"
    return f"{counted(len(views), 'job')} on {names_text(sorted({view.node.name for view in views}))}"


def _targets(views: Sequence[JobView]) -> tuple[Target, ...]:
    return tuple(Target(node=view.node.name, name=_short(view.job), ident=view.job.id) for view in views)


def _event(job: wire.Job) -> wire.JobEvent:
    return wire.JobEvent(job=job)


def stop_plan(views: Sequence[JobView], now: float) -> Plan:
    """Softly; by force where all of them are being stopped already. Of some that are, those that are not are meant."""
    force = all(view.job.state == "stopping" for view in views)
    meant = views if force else [view for view in views if view.job.state != "stopping"]
    one, them = len(meant) == 1, "it" if len(meant) == 1 else "them"

    async def send(client: AgentClient, target: Target) -> wire.Event:
        return _event(await client.cancel(target.ident, force=force))

    def changed(fleet: Fleet, target: Target) -> str | None:
        return job_changed(fleet, target.node, target.ident, force=force)

    verb, noun = ("Kill", "killing") if force else ("Stop", "stopping")
    whom = f"job {_whom(meant)}" if one else _whom(meant)
    return Plan(
        doing=noun, done="killed" if force else "asked to stop", noun="job", targets=_targets(meant),
        question=f"{verb} {whom} by force?" if force else f"{verb} {whom}?",
        sentences=(*_stop_words(meant, force), *stop_sentences(meant, now, force=force), *_left_out(len(views) - len(meant))),
        no=f"leave {them}", yes=f"kill {them} now" if force else f"stop {them}",
        command=shell("job", "cancel", *(view.job.id for view in meant), *(["--force"] if force else [])),
        changed=changed, send=send,
    )  # fmt: skip


def _left_out(count: int) -> list[Sentence]:
    if not count:
        return []
    return [(f"{counted(count, 'job')} of these {'is' if count == 1 else 'are'} being stopped already and left out.", "dim")]


def _stop_words(views: Sequence[JobView], force: bool) -> list[Sentence]:
    """How they are stopped."""
    if force:
        return [(("What is being stopped already: by force every process of it is killed at once, without grace, and what it has not"
                 " saved is lost."), "idle")]  # fmt: skip
    found: list[Sentence] = []
    running = [view.job for view in views if view.job.state in RUNNING]
    if running:
        signals = {(job.stop_signal or "TERM").removeprefix("SIG") for job in running}
        graces = {job.grace_seconds for job in running}
        grace = next(iter(graces)) if len(graces) == 1 else None
        signal = f"SIG{fmt.clean(signals.pop())}" if len(signals) == 1 else "its signal"
        time = f"{grace:g} s" if grace is not None else "its grace"
        whose = "Its first process" if len(views) == 1 else "The first process of each"
        found.append((f"{whose} gets {signal} and {time} to save and end; then every process is killed.", "text"))
    if len(running) < len(views):
        found.append(("What has not started is taken out of the queue.", "text"))
    return found


def signal_plan(views: Sequence[JobView], signal: str) -> Plan:
    async def send(client: AgentClient, target: Target) -> wire.Event:
        return _event(await client.signal(target.ident, signal))

    def changed(fleet: Fleet, target: Target) -> str | None:
        return job_changed(fleet, target.node, target.ident, running=True)

    shown, one = fmt.clean(signal), len(views) == 1
    owners = sorted({view.job.user for view in views if view.job.user})
    whose = f" They are of {names_text(owners)}." if owners and not one else f" It is of {names_text(owners)}." if owners else ""
    return Plan(
        doing=f"sending {shown} to", done=f"sent {shown} to", noun="job", targets=_targets(views),
        question=f"Send {shown} to {_whom(views)}?",
        sentences=(((f"It goes once to the first process of {'the job' if one else 'each'}, which does with it what it was made to do;"
                    f" most programs end at a signal that they do not know.{whose}"), "text"),),
        no="send nothing", yes="send it", command=shell("job", "signal", signal, *(view.job.id for view in views)),
        changed=changed, send=send,
    )  # fmt: skip
