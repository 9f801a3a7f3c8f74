"""What an action would touch, before it is done: which nodes and jobs, whose, how much work is lost, what it costs.

Invariant: what is not known is said as that, and never counted as nothing. The app's dialogs and the commands say the same.
"""

from __future__ import annotations

import getpass
import shlex
from collections.abc import Iterable, Sequence
from decimal import Decimal
from fractions import Fraction

import msgspec

from agent import wire
from tui import format as fmt
from tui.fleet import Fleet, NodeView
from tui.fleet_jobs import RUNNING, JobView
from tui.format import counted as counted
from tui.job_rows import span

TYPED_ABOVE = 10
"""Of more targets their number has to be typed."""
SHOWN = 6
"""Names in a sentence."""
Sentence = tuple[str, str]
"""Text and the name of its style."""


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """What some jobs are and hold now."""

    running: int
    queued: int
    owners: tuple[str, ...]
    gpu_hours: Fraction
    """Of work since the start of their newest attempts, of those of which it is known."""
    unknown: int
    """Jobs that run and do not tell since when."""
    usd_per_hour: Decimal
    unpriced: int
    """Jobs that run and whose price is not known."""


def work_of(jobs: Iterable[JobView], now: float) -> Work:
    """Sums over jobs; an array's own row is left out, its tasks count."""
    single = [view for view in jobs if not view.job.array_counts]
    running = [view for view in single if view.job.state in RUNNING]
    seconds = [(view, view.run_seconds(now)) for view in running]
    held = [(_gpus(view.job), Fraction(round(run))) for view, run in seconds if run is not None]
    prices = [view.job.usd_per_hour for view in running]
    return Work(
        running=len(running),
        queued=sum(view.job.state == "queued" for view in single),
        owners=tuple(sorted({fmt.clean(view.job.user) for view in single if view.job.user})),
        gpu_hours=sum((gpus * run / 3600 for gpus, run in held), Fraction(0)),
        unknown=sum(run is None for _, run in seconds),
        usd_per_hour=sum((price for price in prices if price is not None), Decimal(0)),
        unpriced=sum(price is None for price in prices),
    )


def _gpus(job: wire.Job) -> Fraction:
    return Fraction(job.gpu_share) if job.gpu_share is not None else Fraction(len(job.gpus) or job.gpus_wanted)


def names_text(names: Sequence[str], most: int = SHOWN) -> str:
    """`a, b and c`, `a, b and 9 more`."""
    shown = [fmt.clean(name) for name in names]
    if len(shown) > most:
        return f"{', '.join(shown[: most - 1])} and {len(shown) - most + 1} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else "".join(shown)


def shell(*words: str) -> str:
    """The equivalent command, as a shell takes it."""
    return shlex.join(["rackrate", *words])


def me() -> str | None:
    """The login name, to be read by people."""
    try:
        return getpass.getuser()[:64]
    except (KeyError, OSError):
        return None


# -- sentences ---------------------------------------------------------------------------------------------------------


def stop_sentences(jobs: Sequence[JobView], now: float, *, force: bool = False) -> list[Sentence]:
    """What stopping these jobs does."""
    work, nodes = work_of(jobs, now), sorted({view.node.name for view in jobs})
    whose = f", of {names_text(work.owners)}" if work.owners else ""
    state = f"{work.running} running, {work.queued} waiting" if work.queued else f"{work.running} running"
    found: list[Sentence] = [(f"{counted(len(jobs), 'job')} on {names_text(nodes)}{whose}: {state}.", "text")]
    if len(jobs) == 1 and (run := jobs[0].run_seconds(now)) is not None:
        cost = jobs[0].cost(now)
        money = f" and cost {fmt.usd(cost)}" if cost is not None else ""
        found = [(f"{names_text(work.owners) or 'Somebody'}'s job, which ran for {span(run)}{money}.", "text")]
    tasks = sum(sum(view.job.array_counts.values()) for view in jobs if view.job.array_counts)
    if tasks:
        found.append((f"Arrays are among them: all of their {tasks:,} tasks.", "idle"))
    if work.running:
        found.append(lost_sentence(work, force=force))
        found.append(moved_sentence(work))
    return found


def lost_sentence(work: Work, *, force: bool) -> Sentence:
    """The work that may be gone. No agent knows of a job's checkpoints."""
    hours = f"{float(work.gpu_hours):,.1f} GPU-hours since their start" if work.gpu_hours else "what they did since their start"
    unknown = f" (of {counted(work.unknown, 'job')} it is not known)" if work.unknown else ""
    if force:
        return f"Lost: {hours}{unknown}, but for what they saved before.", "lost"
    return f"Lost, unless they saved it or save it now: {hours}{unknown}.", "idle"


def moved_sentence(work: Work) -> Sentence:
    if work.unpriced == work.running:
        return "What they cost per hour is not known.", "dim"
    unknown = f" (of {counted(work.unpriced, 'job')} it is not known)" if work.unpriced else ""
    return f"${work.usd_per_hour:,.2f}/h goes from jobs to idle{unknown}: the nodes are paid on.", "text"


def drain_sentences(nodes: Sequence[NodeView], now: float) -> list[Sentence]:
    """What draining these nodes does."""
    work = work_of((job for view in nodes for job in view.jobs if job.job.state != "ended"), now)
    free = sum(use.held is False for view in nodes for use in view.uses)
    found: list[Sentence] = [("No job starts there any more, over restarts too, until they are undrained.", "text")]
    waits = f"; {counted(work.queued, 'job')} in the queue there wait{'s' * (work.queued == 1)}" if work.queued else ""
    found.append((f"{_go_on(work, nodes)}{waits}.", "text"))
    price = sum((view.usd_per_hour for view in nodes if view.usd_per_hour is not None), Fraction(0))
    if any(view.usd_per_hour is not None for view in nodes):
        idle = sum((view.idle_usd_per_hour for view in nodes if view.idle_usd_per_hour is not None), Fraction(0))
        empty = f", {fmt.usd(idle)}/h of it for {counted(free, 'GPU')} that nobody holds and no job gets" if free else ""
        found.append((f"{fmt.usd(price)}/h is paid on{empty}.", "idle" if free else "text"))
    return found


def _go_on(work: Work, nodes: Sequence[NodeView]) -> str:
    users = sorted({user for view in nodes for user in view.users})
    if not work.running:
        return f"No job runs there; processes of {names_text(users)} go on" if users else "No job runs there"
    whose = f" (of {names_text(work.owners)})" if work.owners else ""
    return f"{counted(work.running, 'running job')}{whose} go{'es' * (work.running == 1)} on to the end"


def undrain_sentences(nodes: Sequence[NodeView], now: float) -> list[Sentence]:
    work = work_of((job for view in nodes for job in view.jobs if job.job.state != "ended"), now)
    found: list[Sentence] = [(f"Jobs start there again at once: {work.queued} wait in the queue there.", "text")]
    reasons = sorted({view.info.drain.reason for view in nodes if view.info and view.info.drain and view.info.drain.reason})
    if reasons:
        found.append((f"Drained because of: {names_text(reasons)}.", "idle"))
    return found


def pause_sentences(nodes: Sequence[NodeView], order: wire.PauseOrder) -> list[Sentence]:
    """What pausing alerts does, and which hold now."""
    what = "All alerts" if order.rule is None else f"Alerts of the rule {fmt.clean(order.rule)}"
    where = "of one GPU " if order.gpu else ""
    now = [alert for view in nodes for alert in view.alerts.values() if pauses(order, alert)]
    urgent = sum(alert.severity == "critical" for alert in now)
    found: list[Sentence] = [((f"{what} {where}are shown as paused and fire no metric for {length(order.seconds)}; then they"
                              " come back by themselves."), "text")]  # fmt: skip
    held = f"{counted(len(now), 'alert')} that hold{'s' * (len(now) == 1)} now"
    found.append((f"It covers {held}{f', {urgent} of them critical' if urgent else ''}.", "idle" if urgent else "text"))
    return found


def pauses(order: wire.PauseOrder, alert: wire.Alert) -> bool:
    return order.rule in (None, alert.rule) and order.gpu in (None, alert.gpu)


def share_sentences(view: NodeView, gpus: Sequence[wire.Gpu], setting: wire.MpsSetting) -> list[Sentence]:
    """What another default of a GPU's sharing does."""
    parts = []
    if setting.active_thread_percentage is not None:
        parts.append(f"{setting.active_thread_percentage.normalize():f} % of the SMs")
    if setting.pinned_memory_bytes is not None:
        parts.append(f"{fmt.size(setting.pinned_memory_bytes)} of memory")
    found: list[Sentence] = [((f"A client of MPS that names no limit gets at most {' and '.join(parts)}, from the next server on;"
                              " clients that run keep what they have."), "text")]  # fmt: skip
    here = {one.job: one.user for gpu in gpus for one in gpu.allocations}
    if here:
        owners = sorted({user for user in here.values() if user})
        whose = f" of {names_text(owners)}" if owners else ""
        have, them = "have" if len(here) > 1 else "has", "it" if len(gpus) == 1 else "them"
        found.append((f"{counted(len(here), 'job')}{whose} {have} {them} now: {names_text(sorted(here))}.", "idle"))
    else:
        found.append(("No job has it now.", "text"))
    return found


def length(seconds: float) -> str:
    """`90 s`, `45 min`, `2 h`, `1 h 30 min`, `3 d 4 h`."""
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    units = ((whole // 86_400, "d"), (whole % 86_400 // 3600, "h"), (whole % 3600 // 60, "min"))
    return " ".join(f"{count} {unit}" for count, unit in units if count)


# -- what must still be so when it is sent ------------------------------------------------------------------------------


def job_changed(fleet: Fleet, node: str, ident: str, *, force: bool = False, running: bool = False) -> str | None:
    """Why a job is left out now; None: it is as it was when it was chosen. `running`: only one that runs is meant."""
    view = fleet.job(node, ident)
    if view is None:
        return "is gone"
    if view.job.state == "ended":
        return "has ended"
    if running and view.job.state not in RUNNING:
        return "does not run any more"
    return "is being stopped already" if view.job.state == "stopping" and not force and not running else None


def holders(view: NodeView, gpu: str) -> frozenset[str] | None:
    """The jobs that have a GPU; None: there is no such GPU any more."""
    found = next((one for one in view.gpus if one.uuid == gpu), None)
    return None if found is None else frozenset(one.job for one in found.allocations)
