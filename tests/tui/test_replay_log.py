"""What happened in a recording is what an app would have noted that was open then."""

from __future__ import annotations

import re
from datetime import timedelta

import msgspec
import pytest

from agent import wire
from tests.support.fleets import AT, StubCatalog, alert
from tests.support.jobs import ended, job, notice, queued
from tests.support.recording import START_MS, Stage
from tui.events import Event, EventLog
from tui.replay_log import ReplayLog
from tui.replay_time import moment


def plain(event: Event) -> str:
    """Without spans of time, which depend on when somebody looked."""
    return re.sub(r"(\d+[smh])+", "#", event.text)


class Watched:
    """A stage that an app watches: what it had noted after each second."""

    def __init__(self) -> None:
        self.stage = Stage(None)
        self.log = EventLog()
        self.noted: dict[int, list[str]] = {}

    def run(self, seconds: int, silent: str = "") -> None:
        stage = self.stage
        for _ in range(seconds):
            stage.seconds += 1
            for name in stage.names:
                if name != silent:
                    stage.sample(name, 0.5)
            if int(stage.seconds) % 5 == 0:
                stage.write()
            self.log.look(stage.fleet, stage.seconds, moment(stage.now_ms()))
            self.noted[stage.now_ms()] = [plain(event) for event in self.log]


def _watched() -> Watched:
    made = Watched()
    stage = made.stage
    for name in stage.names:
        stage.connect(name)
    made.run(10)
    fired = msgspec.structs.replace(alert("gpu-01"), since=AT + timedelta(seconds=9), fired_at=AT + timedelta(seconds=9))
    stage.tell("gpu-01", wire.AlertEvent(alert=fired), wire.JobEvent(job=job(1)), wire.JobEvent(job=queued(2)))
    made.run(20)
    stage.tell("gpu-01", wire.AlertEvent(alert=msgspec.structs.replace(fired, ended_at=AT + timedelta(seconds=30))))
    stage.tell("gpu-01", wire.JobEvent(job=ended(1, "oom", ended_at=AT + timedelta(seconds=30))), wire.JobEvent(job=job(2)))
    stage.tell("gpu-02", wire.NoticeEvent(notice=notice()))
    made.run(40, silent="gpu-02")
    made.run(60)
    return made


def test_at_each_moment_it_is_what_a_live_app_had_noted() -> None:
    watched = _watched()
    recording = watched.stage.recording()
    catalog = StubCatalog()
    log = ReplayLog(recording, lambda at_ms: catalog)  # type: ignore[arg-type, return-value]
    assert len(log.until(recording.ends_ms).events) > 8
    for at_ms in (recording.ends_ms, START_MS + 20_000, START_MS + 110_000, START_MS + 47_000, START_MS + 90_000):
        told = log.until(at_ms)
        told_by_look = {plain(event) for event in told.events}
        before, after = (set(watched.noted[moment_ms]) for moment_ms in (at_ms - 3000, at_ms))
        assert before <= told_by_look <= set(watched.noted[min(at_ms + 3000, max(watched.noted))]) | after, at_ms
        assert all(event.at <= moment(at_ms) for event in told.events)


def test_of_before_the_span_there_are_alerts_and_jobs_that_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tui.replay_log.SHORTEST_MS", 20_000)
    monkeypatch.setattr("tui.replay_log.MOST_SAMPLES", 10)
    watched = _watched()
    recording = watched.stage.recording()
    log = ReplayLog(recording)
    told = log.until(START_MS + 120_000)
    assert told.starts_ms == START_MS + 100_000
    texts = [event.text for event in told.events]
    assert any("is over" in text for text in texts) and any("ended: oom" in text for text in texts)
    assert not any("is lost" in text for text in texts), "what is not gone through is not told"
    assert log.until(START_MS + 5_000).events == () or log.until(START_MS + 5_000).starts_ms <= START_MS + 5_000
