"""What changed in a fleet, as sentences: the line mode, which screen readers and logs can follow.

Invariant: each change is said once, when it is seen; what was there at the beginning is summed up and not told as a change.
No I/O and no clock: `look` takes the fleet and the time. No outside text brings a control character.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal, NamedTuple, get_args

from agent import wire
from tui import format as fmt
from tui.alerts import priced
from tui.columns import totals_money
from tui.fleet import Fleet, NodeView, mean
from tui.fleet_jobs import RUNNING, JobView
from tui.job_rows import DONE, name_text, span
from tui.query_rows import AlertLook
from tui.records import money

KINDS = ("watch", "node", "idle", "alert", "job", "notice", "money", "use")
SETTLE_SECONDS = 5.0
"""How long nodes are waited for before the beginning is summed up."""
OVER_SECONDS = 3.0
"""An alert that is not told any more is over after this: a stream that opens anew tells them anew."""
MONEY_SECONDS = 60.0


Level = Literal["low", "normal", "high"]
LEVELS: tuple[Level, ...] = get_args(Level)
"""`low`: what somebody should see to. `normal`: what changes. `high`: also what each node does, as often as what it costs."""


def _everything(row: Any, now: float) -> bool:
    return True


class Said(NamedTuple):
    """One line: `kind` is one of `KINDS`, `facts` are its values for `--json`."""

    kind: str
    text: str
    facts: Mapping[str, Any]


class Wanted(NamedTuple):
    """What is spoken of: on which nodes, and which of their jobs and alerts."""

    nodes: Callable[[NodeView, float], bool] = _everything
    jobs: Callable[[JobView, float], bool] = _everything
    alerts: Callable[[AlertLook, float], bool] = _everything


class Watcher:
    """`every`: seconds between two lines of money. What happens on nodes that are not `wanted` is not said."""

    def __init__(
        self,
        wanted: Wanted | Callable[[NodeView, float], bool],
        *,
        every: float = MONEY_SECONDS,
        with_jobs: bool = True,
        level: Level = "normal",
    ) -> None:
        self._wanted, self._wanted_jobs, self._wanted_alerts = wanted if isinstance(wanted, Wanted) else Wanted(wanted)
        self._every = every
        self._with_jobs = with_jobs
        self._level = level
        self._began: float | None = None
        self._settled = False
        self._money_at = 0.0
        self._states: dict[str, str] = {}
        self._idle: dict[str, bool] = {}
        self._alerts: dict[str, dict[str, tuple[wire.Alert, float]]] = {}
        self._jobs: dict[str, str] = {}
        self._known_jobs: set[str] = set()
        self._jobs_version = -1
        self._notices: dict[str, tuple[Any, str]] = {}

    def look(self, fleet: Fleet, now: float) -> list[Said]:
        """What changed since the last look; `now` is monotonic seconds."""
        self._began = now if self._began is None else self._began
        if not self._settled:
            waiting = any(view.state(now) == "connecting" for view in fleet)
            if waiting and now - self._began < SETTLE_SECONDS:
                return []
            self._settled, self._money_at = True, now
            return self._beginning(fleet, now)
        said = [line for view in fleet for line in self._of_node(view, now)]
        said += self._of_jobs(fleet, now)
        if now - self._money_at >= self._every:
            self._money_at = now
            said.append(self._money(fleet, now))
            if self._level == "high":
                said += [self._use(view, now) for view in fleet if view.state(now) == "live" and self._selected(view, now)]
        return [line for line in said if self._level != "low" or _matters(line)]

    def _selected(self, view: NodeView, now: float) -> bool:
        return self._wanted(view, now)

    # -- the beginning --------------------------------------------------------------------------------------------

    def _beginning(self, fleet: Fleet, now: float) -> list[Said]:
        """A sum of what is there, then what is not as it should be."""
        lines = [line for view in fleet for line in self._of_node(view, now) if line.kind in ("alert", "notice") or self._is_bad(line)]
        self._of_jobs(fleet, now)
        views = [view for view in fleet if self._selected(view, now)]
        totals = fleet.totals(now, [view.name for view in views])
        counts = fleet.job_counts([view.name for view in views])
        text = (
            f"watching {fmt.counted(totals.nodes, 'node')}: {totals.live:,} live, {totals.stale:,} stale, {totals.lost:,} lost; "
            f"{totals.gpus_held:,} of {fmt.counted(totals.gpus, 'GPU')} held; {totals_money(totals)}; "
            f"{fmt.counted(counts.running, 'job')} running, {counts.queued:,} waiting"
        )
        return [Said("watch", text, self._sums(totals)), *lines]

    @staticmethod
    def _is_bad(line: Said) -> bool:
        return line.kind == "node" and line.facts.get("state") != "live"

    # -- a node ---------------------------------------------------------------------------------------------------------

    def _of_node(self, view: NodeView, now: float) -> Iterable[Said]:
        if self._is_quiet(view, now):
            return ()
        lines = [*self._state(view, now), *self._idleness(view, now), *self._of_alerts(view, now), *self._notice(view, now)]
        return lines if lines and self._selected(view, now) else ()

    def _is_quiet(self, view: NodeView, now: float) -> bool:
        """Nothing can be said of it: so it is with nearly all of a thousand nodes, at each look."""
        name, state = view.name, view.state(now)
        if state != self._states.get(name) or view.alerts or self._alerts.get(name):
            return False
        if view.notice is not None or name in self._notices:
            return False
        return state != "live" or _stands_idle(view) == self._idle.get(name)

    def _state(self, view: NodeView, now: float) -> Iterable[Said]:
        state, before = view.state(now), self._states.get(view.name)
        if state == before or (state == "connecting" and before is None):
            return
        self._states[view.name] = state
        name, facts = fmt.clean(view.name), {"node": view.name, "state": state, "before": before}
        match state:
            case "live":
                price = f", {fmt.usd(view.usd_per_hour)}/h" if view.usd_per_hour is not None else ""
                again = " again" if before in ("stale", "lost") else f": {fmt.counted(len(view.gpus), 'GPU')}{price}"
                yield Said("node", f"node {name} is live{again}", facts)
            case "stale":
                yield Said("node", f"node {name} is stale: nothing heard for {fmt.age(view.age_seconds(now))}", facts)
            case _:
                age = view.age_seconds(now)
                heard = "never heard" if age is None else f"nothing heard for {fmt.age(age)}"
                why = f": {fmt.clean(view.error)}" if view.error else ""
                yield Said("node", f"node {name} is {state}, {heard}{why}", {**facts, "error": view.error})

    def _idleness(self, view: NodeView, now: float) -> Iterable[Said]:
        """All GPUs of a node became free, or the first was taken."""
        idle, before = _stands_idle(view), self._idle.get(view.name)
        if view.state(now) != "live" or idle is None:
            return
        self._idle[view.name] = idle
        if before is None or before == idle:
            return
        name, price = fmt.clean(view.name), money(view.usd_per_hour)
        facts = {"node": view.name, "idle": idle, "usd_per_hour": price}
        if idle:
            cost = f", {fmt.usd(view.usd_per_hour)}/h" if view.usd_per_hour is not None else ""
            yield Said("idle", f"node {name} became idle: nobody holds its {fmt.counted(len(view.uses), 'GPU')}{cost}", facts)
        else:
            who = ", ".join(map(fmt.clean, view.users))
            yield Said("idle", f"node {name} is in use again{f', by {who}' if who else ''}", facts)

    def _of_alerts(self, view: NodeView, now: float) -> Iterable[Said]:
        if not view.alerts and not self._alerts.get(view.name):
            return
        here = self._alerts.setdefault(view.name, {})
        for key, alert in view.alerts.items():
            known = key in here
            whole = priced(view, alert)
            if not known and not self._wanted_alerts(AlertLook(whole, view, view.utc(now)), now):
                continue
            here[key] = (alert, now)
            if not known:
                cost = f"{fmt.usd(Decimal(whole.usd_per_hour))}/h" if whole.usd_per_hour else ""
                about = ", ".join(filter(None, (fmt.clean(alert.reading or ""), cost)))
                where = f"{fmt.clean(view.name)}{f' ({about})' if about else ''}"
                text = f"{alert.severity} alert {fmt.clean(alert.rule)} on {where}: {fmt.clean(alert.message)}"
                yield Said("alert", text, _alert_facts(whole, active=True))
        if view.state(now) != "live":
            return
        for key, (alert, seen) in list(here.items()):
            if key not in view.alerts and now - seen >= OVER_SECONDS:
                del here[key]
                text = f"alert {fmt.clean(alert.rule)} on {fmt.clean(view.name)} is over: {fmt.clean(alert.message)}"
                yield Said("alert", text, _alert_facts(priced(view, alert), active=False))

    def _notice(self, view: NodeView, now: float) -> Iterable[Said]:
        known, shown = self._notices.get(view.name, (None, ""))
        name = fmt.clean(view.name)
        if view.notice is not None:
            told = (view.notice.notice.kind, view.notice.notice.at)
            if told != known:
                sentence = fmt.clean(view.notice.sentence(view.utc(now)))
                self._notices[view.name] = (told, view.notice.notice.kind)
                yield Said("notice", f"notice for {name}: {sentence}", {
                    "node": view.name, "notice": view.notice.notice.kind, "happens_at": _iso(view.notice.notice.at), "active": True,
                })  # fmt: skip
        elif known is not None and view.state(now) == "live":
            del self._notices[view.name]
            yield Said("notice", f"the notice for {name} ({fmt.clean(shown)}) is withdrawn", {
                "node": view.name, "notice": shown, "happens_at": None, "active": False,
            })  # fmt: skip

    # -- jobs ---------------------------------------------------------------------------------------------------------------

    def _of_jobs(self, fleet: Fleet, now: float) -> list[Said]:
        """Of a node that is heard for the first time its jobs are only noted."""
        if not self._with_jobs:
            return []
        heard = {view.name for view in fleet if view.sample is not None}
        if fleet.jobs_version == self._jobs_version and heard == self._known_jobs:
            return []
        self._jobs_version = fleet.jobs_version
        said: list[Said] = []
        alive: set[str] = set()
        for view in fleet:
            lines = [line for job in view.jobs for line in self._of_job(job, now)]
            alive.update(job.key for job in view.jobs)
            if view.name in self._known_jobs and lines and self._selected(view, now):
                said += lines
        self._jobs = {key: state for key, state in self._jobs.items() if key in alive}
        self._known_jobs = heard
        return said

    def _of_job(self, view: JobView, now: float) -> Iterable[Said]:
        job, before = view.job, self._jobs.get(view.key)
        step = "running" if job.state in RUNNING else job.state
        if step == before:
            return
        self._jobs[view.key] = step
        if self._wanted_jobs(view, now):
            yield job_said(view, step, again=before is not None, now=now)

    # -- money ----------------------------------------------------------------------------------------------------------------

    def _money(self, fleet: Fleet, now: float) -> Said:
        totals = fleet.totals(now, [view.name for view in fleet if self._selected(view, now)])
        text = f"{totals_money(totals)}; {totals.gpus_held:,} of {fmt.counted(totals.gpus, 'GPU')} held on {fmt.counted(totals.nodes, 'node')}"
        return Said("money", text, self._sums(totals))

    def _use(self, view: NodeView, now: float) -> Said:
        """`node gpu-01: 3 of 4 GPUs held, util 62%, ada,bo, $2.10/h`."""
        held, shares = sum(bool(use.held) for use in view.uses), [gpu.utilization_ratio for gpu in view.gpus]
        util = mean(shares)
        parts = [f"{held} of {fmt.counted(len(view.uses), 'GPU')} held", f"util {fmt.percent(util)}"]
        parts += [",".join(map(fmt.clean, view.users))] if view.users else []
        parts += [f"{fmt.usd(view.usd_per_hour)}/h"] if view.usd_per_hour is not None else []
        facts = {
            "node": view.name, "gpus": len(view.uses), "gpus_held": held, "utilization_ratio": util, "users": list(view.users),
            "usd_per_hour": money(view.usd_per_hour),
        }  # fmt: skip
        return Said("use", f"node {fmt.clean(view.name)}: {', '.join(parts)}", facts)

    @staticmethod
    def _sums(totals: Any) -> dict[str, Any]:
        return {
            "nodes": totals.nodes, "live": totals.live, "stale": totals.stale, "lost": totals.lost, "gpus": totals.gpus,
            "gpus_held": totals.gpus_held, "usd_per_hour": money(totals.usd_per_hour), "unpriced": totals.unpriced,
            "idle_usd_per_hour": money(totals.idle_usd_per_hour),
        }  # fmt: skip


def _stands_idle(view: NodeView) -> bool | None:
    """Nobody holds any of its GPUs; None: it has none, or not all of them tell."""
    use = view.use
    return None if use.untold or not use.gpus else not use.held


def job_said(view: JobView, step: str, *, again: bool, now: float) -> Said:
    """A job reached `step` (`queued`, `running`, `ended`). `again`: it had been further already."""
    job = view.job
    who = f", {fmt.clean(job.user)}" if job.user else ""
    what = f"job {fmt.clean(job.id)} ({name_text(job)[:60]}{who}) on {fmt.clean(view.node.name)}"
    cost, ran = view.cost(now), view.run_seconds(now)
    facts = {
        "node": view.node.name, "job": job.id, "name": job.name, "user": job.user, "state": job.state, "cause": job.cause,
        "cost": None if cost is None else format(cost, "f"), "run_seconds": ran, "attempt": job.attempt,
    }  # fmt: skip
    match step:
        case "queued":
            why = f": {fmt.clean(job.reason)}" if job.reason else ""
            return Said("job", f"{what} {'waits again' if again else 'waits'}{why}", facts)
        case "running":
            return Said("job", f"{what} started", facts)
    took = f", ran {span(ran)}" if ran is not None else ""
    paid = f", {fmt.usd(cost)}" if cost is not None else ""
    why = f": {fmt.clean(job.evidence)}" if job.evidence and job.cause != "exit:0" else ""
    return Said("job", f"{what} ended: {fmt.clean(job.cause or 'done')}{took}{paid}{why}", facts)


def _matters(line: Said) -> bool:
    """Whether somebody should see to it: alerts, notices, nodes that are heard or lost, jobs that ended badly."""
    match line.kind:
        case "watch" | "alert" | "notice":
            return True
        case "node":
            return line.facts.get("state") != "stale"
        case "job":
            return line.facts.get("state") == "ended" and line.facts.get("cause") != DONE
    return False


def _iso(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()


def _alert_facts(alert: wire.Alert, *, active: bool) -> dict[str, Any]:
    return {
        "node": alert.node, "rule": alert.rule, "severity": alert.severity, "gpu": alert.gpu, "message": alert.message,
        "reading": alert.reading, "since": _iso(alert.since), "usd_per_hour": alert.usd_per_hour, "active": active,
    }  # fmt: skip
