"""What happened in a fleet: a bounded list that the app keeps while it is open, in the order of when it happened.

Invariant: nothing is in it twice, whoever told it (a stream, a list of jobs, the alerts of the last hour); the oldest are
dropped. No I/O and no clock. The sentences are those of `tui.watch`.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any, Literal, NamedTuple

from agent import wire
from tui import format as fmt
from tui.fleet import Fleet, NodeView
from tui.fleet_jobs import RUNNING, JobView
from tui.query import Words
from tui.watch import Said, Watcher, job_said

MOST_EVENTS = 5000
LOOK_SECONDS = 2.0
"""A fleet is looked through this often."""
BACK_SECONDS = 2.0
"""Time that runs backwards by more than this was turned back: what lies ahead is not known any more."""
KINDS = ("node", "idle", "alert", "job", "notice", "drain", "price", "budget")
Level = Literal["", "good", "warning", "bad"]
_DONE = ("exit:0", None)


class Event(NamedTuple):
    """One thing that happened. `node` is empty for what is of no node (a budget); `facts` are those of `watch --json`."""

    at: datetime
    number: int
    """Of two at the same moment the one that was noted first has the lower one."""
    kind: str
    text: str
    node: str = ""
    job: str = ""
    level: Level = ""
    facts: Mapping[str, Any] = {}

    def age_seconds(self, now: datetime) -> float:
        """How long ago it was."""
        return max(0.0, (now - self.at).total_seconds())


class EventLog:
    """`look` is called as time goes on, `seed_alerts` with what an agent remembers."""

    def __init__(self, most: int = MOST_EVENTS) -> None:
        self._most = most
        self.version = 0
        """Grows whenever something came or went."""
        self._count = 0
        self._begin()

    def _begin(self) -> None:
        self._events: list[Event] = []
        self._known: dict[Hashable, datetime] = {}
        self._watcher = Watcher(lambda view, now: True, every=float("inf"), with_jobs=False)
        self._jobs: dict[str, tuple[str, int]] = {}
        self._jobs_version = -1
        self._prices: dict[str, Fraction | None] = {}
        self._drains: dict[str, wire.Drain | None] = {}
        self._budgets: dict[str, wire.Alert] = {}
        self._looked: tuple[float, datetime] | None = None

    @property
    def count(self) -> int:
        """Number of the newest that was noted."""
        return self._count

    def until(self, at: datetime) -> Iterator[Event]:
        """What had happened by a moment, the newest first."""
        return reversed(self._events[: bisect_right(self._events, at, key=lambda event: event.at)])

    def __len__(self) -> int:
        return len(self._events)

    def __iter__(self) -> Iterator[Event]:
        """The newest first."""
        return reversed(self._events)

    # -- what is noted --------------------------------------------------------------------------------------------

    def look(self, fleet: Fleet, now: float, at: datetime, budgets: Sequence[wire.Alert] = ()) -> None:
        """Notes what changed since the last look; `now` is monotonic, `at` the same moment in UTC."""
        first = self._looked is None
        if self._looked is not None:
            if at < self._looked[1] - timedelta(seconds=BACK_SECONDS):
                self._turn_back(at)
                first = True
            elif now - self._looked[0] < LOOK_SECONDS:
                return
        self._looked = (now, at)
        for said in self._watcher.look(fleet, now):
            if said.kind in KINDS:
                self._note_said(said, at)
        for view in fleet:
            self._note_node(view, at, now)
        self._look_at_jobs(fleet, now)
        self._look_at_budgets(budgets, at, first)

    def _turn_back(self, at: datetime) -> None:
        """Keeps what had happened by then; how things stand is found out anew."""
        kept = [event for event in self._events if event.at <= at]
        known = {key: when for key, when in self._known.items() if when <= at}
        self._begin()
        self._events, self._known = kept, known
        self.version += 1

    def _note_said(self, said: Said, at: datetime) -> None:
        facts = said.facts
        node, key, when = str(facts.get("node") or ""), None, at
        if said.kind == "alert":
            since = facts.get("since")
            key = ("alert", node, facts.get("rule"), facts.get("gpu"), since, facts["active"])
            if facts["active"] and since:
                when = min(at, datetime.fromisoformat(since))
        self._note(when, said.kind, said.text, node, level=_level(said), facts=facts, key=key)

    def _note_node(self, view: NodeView, at: datetime, now: float) -> None:
        """Its price and its drain, where they changed."""
        price, drain = view.usd_per_hour, view.info.drain if view.info is not None else None
        before = self._prices.get(view.name)
        self._prices[view.name] = price
        if price is not before and before is not None and price is not None and price != before:
            change = f"{float(price / before - 1):+.1%}" if before else ""
            text = f"node {fmt.clean(view.name)} costs {fmt.usd(price)}/h now, {change} against {fmt.usd(before)}/h"
            facts = {"node": view.name, "usd_per_hour": fmt.usd(price), "before": fmt.usd(before)}
            self._note(at, "price", text, view.name, level="warning" if price > before else "good", facts=facts)
        if view.info is not None and drain != self._drains.get(view.name):
            self._drains[view.name] = drain
            self._note_drain(view.name, drain, at)

    def _note_drain(self, name: str, drain: wire.Drain | None, at: datetime) -> None:
        if drain is None:
            self._note(at, "drain", f"node {fmt.clean(name)} takes jobs again", name, level="good", facts={"node": name})
            return
        why = f": {fmt.clean(drain.reason)}" if drain.reason else ""
        text = f"node {fmt.clean(name)} is drained by {fmt.clean(drain.by)}{why}"
        facts = {"node": name, "by": drain.by, "reason": drain.reason}
        self._note(min(at, drain.since), "drain", text, name, level="warning", facts=facts, key=("drain", name, drain.since))

    def _look_at_jobs(self, fleet: Fleet, now: float) -> None:
        if fleet.jobs_version == self._jobs_version:
            return
        self._jobs_version = fleet.jobs_version
        known, self._jobs = self._jobs, {}
        for view in fleet.jobs():
            step = "running" if view.job.state in RUNNING else view.job.state
            before = known.get(view.key)
            self._jobs[view.key] = (step, view.job.attempt)
            if before != (step, view.job.attempt):
                self._note_job(view, step, now, again=before is not None)

    def _note_job(self, view: JobView, step: str, now: float, *, again: bool) -> None:
        """By the job's own times: what was not seen to begin is told with its end."""
        job, node = view.job, view.node.name
        if step == "ended" and job.started_at is not None:
            self._note_step(view, "running", job.started_at, now, again=again)
        at = {"queued": job.submitted_at, "running": job.started_at}.get(step, job.ended_at)
        if step == "queued" and again:
            at = job.ended_at or job.started_at or job.submitted_at
        if node and at is not None:
            self._note_step(view, step, at, now, again=again)

    def _note_step(self, view: JobView, step: str, at: datetime, now: float, *, again: bool) -> None:
        said, job = job_said(view, step, again=again, now=now), view.job
        level: Level = "" if step != "ended" else "good" if job.cause in _DONE else "bad"
        key = ("job", view.node.name, job.id, job.attempt, step)
        self._note(at, "job", said.text, view.node.name, job=job.id, level=level, facts=said.facts, key=key)

    def _look_at_budgets(self, alerts: Sequence[wire.Alert], at: datetime, first: bool) -> None:
        found = {alert.key: alert for alert in alerts}
        for key, alert in found.items():
            if key not in self._budgets:
                level: Level = "bad" if alert.severity == "critical" else "warning"
                self._note(min(at, alert.since), "budget", fmt.clean(alert.message), level=level, key=("budget", key, alert.since))
        for key, alert in self._budgets.items() if not first else ():
            if key not in found:
                self._note(at, "budget", f"is over: {fmt.clean(alert.message)}", level="good")
        self._budgets = found

    def seed_alerts(self, node: str, alerts: Iterable[wire.Alert]) -> None:
        """What an agent tells of the last hour: alerts that are over."""
        for alert in alerts:
            if alert.ended_at is None:
                continue
            since = alert.since.isoformat()
            facts = {"node": node, "rule": alert.rule, "severity": alert.severity, "gpu": alert.gpu, "message": alert.message}
            where, key = fmt.clean(node), ("alert", node, alert.rule, alert.gpu, since)
            began = f"{alert.severity} alert {fmt.clean(alert.rule)} on {where}: {fmt.clean(alert.message)}"
            over = f"alert {fmt.clean(alert.rule)} on {where} is over: {fmt.clean(alert.message)}"
            level: Level = "bad" if alert.severity == "critical" else "warning"
            self._note(alert.since, "alert", began, node, level=level, facts=facts, key=(*key, True))
            self._note(alert.ended_at, "alert", over, node, level="good", facts=facts, key=(*key, False))

    def _note(
        self, at: datetime, kind: str, text: str, node: str = "", *, job: str = "", level: Level = "",
        facts: Mapping[str, Any] = {}, key: Hashable = None,
    ) -> None:  # fmt: skip
        """`key`: by which it is known when it is told again."""
        if key is not None:
            if key in self._known:
                return
            self._known[key] = at
        self._count += 1
        self.version += 1
        insort(self._events, Event(at, self._count, kind, text, node, job, level, facts))
        del self._events[: max(0, len(self._events) - self._most)]
        while len(self._known) > 2 * self._most:
            del self._known[next(iter(self._known))]


def _level(said: Said) -> Level:
    facts = said.facts
    match said.kind:
        case "node":
            return {"live": "good", "stale": "warning"}.get(str(facts.get("state")), "bad")  # type: ignore[return-value]
        case "alert":
            return ("bad" if facts.get("severity") == "critical" else "warning") if facts["active"] else "good"
        case "notice":
            return "bad" if facts.get("active") else "good"
        case "idle":
            return "warning" if facts.get("idle") else "good"
    return ""


# -- what can be asked of them ----------------------------------------------------------------------------------------


class EventLook(NamedTuple):
    """An event and the moment (UTC) at which it is looked at."""

    event: Event
    at: datetime


_FACTS = ("user", "cause", "rule", "severity", "state", "gpu")


def _texts(row: EventLook, key: str, now: float) -> list[str]:
    event = row.event
    match key:
        case "kind":
            return [event.kind]
        case "node":
            return [event.node] if event.node else []
        case "job":
            return [text for text in (event.job, event.facts.get("name")) if text]
        case "what":
            return [event.text]
        case "level":
            return [event.level] if event.level else []
    value = event.facts.get(key)
    return [str(value)] if value else []


def _number(row: EventLook, key: str, now: float) -> float | None:
    """`age` in seconds; `cost`/`$` of a job that ended in dollars, of an alert in $/h."""
    if key == "age":
        return row.event.age_seconds(row.at)
    cost = row.event.facts.get("cost") or row.event.facts.get("usd_per_hour")
    try:
        return float(cost) if cost else None
    except ValueError:
        return None


EVENT_WORDS = Words(
    ("kind", "node", "job", "what", "level", *_FACTS), ("age", "cost", "$"),
    _texts, _number, lambda row: [row.event.text, row.event.node],
    known={"kind": KINDS, "level": ("good", "warning", "bad"), "user": ("me",), "state": ("live", "stale", "lost")},
)  # fmt: skip
