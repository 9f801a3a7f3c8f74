"""What happened in a fleet, kept in order and told once."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import msgspec

from agent import wire
from tests.support.fleets import AT, NOW, Clock, alert, gpu, put, small_fleet
from tests.support.jobs import ended, job, job_fleet, queued, tell
from tui.events import EVENT_WORDS, EventLog, EventLook
from tui.fleet import Fleet
from tui.query import parse


class Watched:
    """A fleet, its log and the time."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet, self.log, self.clock = fleet, EventLog(), Clock()
        for _ in range(6):
            self.look(4)  # until nodes that never answered are not waited for any more, and those that fell silent are lost

    def look(self, seconds: float = 3) -> list[str]:
        """The new ones, the oldest first."""
        known = {event.number for event in self.log}
        for view in self.fleet:
            if view.heard_at is not None and view.heard_at >= NOW - 1 and view.name not in self.silent:
                view.heard_at = self.clock.at + seconds
        self.clock.at += seconds
        self.log.look(self.fleet, self.clock.at, self.clock.now(), self.budgets)
        return [event.text for event in reversed(list(self.log)) if event.number not in known]

    silent: frozenset[str] = frozenset()
    budgets: tuple[wire.Alert, ...] = ()


def test_nodes_alerts_drains_and_prices_are_told_when_they_change() -> None:
    seen = Watched(small_fleet())
    seen.silent = frozenset({"a100-busy"})
    assert any("a100-busy is stale" in text for text in seen.look(6))
    seen.silent = frozenset()
    assert any("a100-busy is live again" in text for text in seen.look())
    view = seen.fleet["a100-busy"]
    view._price *= 2  # type: ignore[operator]
    (told,) = seen.look()
    assert told.startswith("node a100-busy costs $65.55/h now, +100.0% against $32.77/h") and next(iter(seen.log)).level == "warning"
    drained = msgspec.structs.replace(view.info, drain=wire.Drain(since=seen.clock.now(), by="ada", reason="new disk"))
    seen.fleet.apply("a100-busy", wire.NodeEvent(node=drained), seen.clock.at)
    assert "node a100-busy is drained by ada: new disk" in seen.look()
    seen.fleet.apply("a100-busy", wire.NodeEvent(node=msgspec.structs.replace(drained, drain=None)), seen.clock.at)
    assert "node a100-busy takes jobs again" in seen.look()
    seen.fleet.apply("a100-busy", wire.AlertEvent(alert=alert("a100-busy", key="hot", rule="gpu_hot")), seen.clock.at)
    assert any("alert gpu_hot on a100-busy" in text for text in seen.look())


def test_jobs_are_told_by_their_own_times_and_once_whoever_tells_them() -> None:
    seen = Watched(job_fleet())
    texts = [event.text for event in seen.log if event.kind == "job"]
    assert any("ended: oom" in text for text in texts) and any("waits: " in text for text in texts)
    ends = next(event for event in seen.log if "ended: oom" in event.text)
    assert ends.at == AT - timedelta(hours=2) and ends.level == "bad" and ends.age_seconds(AT) == 7200
    assert seen.look() == []
    tell(seen.fleet, job(20, started_at=AT))
    assert [text.split(" on ")[1] for text in seen.look()] == ["gpu-01 started"]
    tell(seen.fleet, ended(20, "exit:0", started_at=AT, ended_at=AT + timedelta(seconds=30)))
    assert len(seen.look()) == 1, "that it started is known"
    tell(seen.fleet, queued(20, attempt=1, ended_at=AT + timedelta(seconds=30), reason="it is tried again"))
    assert any("waits again: it is tried again" in text for text in seen.look())
    moments = [event.at for event in seen.log]
    assert moments == sorted(moments, reverse=True)


def test_jobs_that_no_node_tells_of_any_more_are_forgotten_and_not_told_again() -> None:
    watched = Watched(job_fleet())
    assert watched.log._jobs and len(watched.log) > 3
    before = len(watched.log)
    jobs = [view.job for view in watched.fleet.jobs()]
    for name in {view.node.name for view in watched.fleet.jobs()}:
        watched.fleet.apply(name, wire.NodeEvent(node=watched.fleet[name].info), watched.clock.at)
        watched.fleet.apply(name, wire.SampleEvent(sample=watched.fleet[name].sample), watched.clock.at)
    watched.look()
    assert set(watched.log._jobs) == {view.key for view in watched.fleet.jobs()}
    tell(watched.fleet, *jobs)
    watched.look()
    assert [event for event in watched.log if event.kind == "job"][: len(watched.log) - before] == []


def test_what_an_agent_remembers_is_told_once() -> None:
    seen = Watched(small_fleet())
    over = alert("a100-half", key="k", rule="gpu_hot", since=AT - timedelta(minutes=40), ended_at=AT - timedelta(minutes=20))
    for _ in range(2):
        seen.log.seed_alerts("a100-half", [over, alert("a100-half", key="x")])
    found = [event.text for event in seen.log if "gpu_hot" in event.text]
    assert len(found) == 2 and "is over" in found[0]


def test_budgets_come_and_go() -> None:
    seen = Watched(small_fleet())
    seen.budgets = (
        wire.Alert(key="b", rule="budget", severity="critical", node="", message="Budget vision: all spent.", reading="104%",
                   threshold="100 %", since=AT, fired_at=AT, holders=("vision",)),
    )  # fmt: skip
    assert seen.look() == ["Budget vision: all spent."]
    seen.budgets = ()
    assert seen.look() == ["is over: Budget vision: all spent."]


def test_the_list_is_bounded_and_time_that_is_turned_back_forgets_what_lies_ahead() -> None:
    fleet, log = Fleet(), EventLog(most=20)
    put(fleet, "gpu-01", (gpu(0),))
    tell(fleet, *(ended(number, ended_at=AT + timedelta(seconds=number)) for number in range(1, 60)))
    log.look(fleet, NOW, AT + timedelta(minutes=2))
    assert len(log) == 20 and len(log._known) <= 200
    log.look(Fleet(), NOW + 1, AT + timedelta(seconds=45))
    assert len(log) == 6 and all(event.at <= AT + timedelta(seconds=45) for event in log)
    log.look(fleet, NOW + 4, AT + timedelta(minutes=2))
    assert len(log) == 20, "what lies ahead is told again"


def test_the_filter_language_asks_events() -> None:
    seen = Watched(job_fleet())
    rows = [EventLook(event, seen.clock.now()) for event in seen.log]

    def found(query: str) -> set[str]:
        wanted = parse(query, EVENT_WORDS)
        return {row.event.text for row in rows if wanted(row, 0.0)}

    assert found("kind:job level:bad cause:oom") == {next(row.event.text for row in rows if "oom" in row.event.text)}
    assert found("user:dan") and found("age<5m") and not found("age<5m kind:job") and found("cost>20") <= found("kind:job")
    assert found("what:/ended: exit:2/") and found("!kind:job") and found("node:gpu-02 or job:train-6")
    assert Decimal(next(row.event.facts["cost"] for row in rows if "oom" in row.event.text)) > 0
