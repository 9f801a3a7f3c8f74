"""One thread of a sensor: started once, ended in time, left behind with a word where a call never returns."""

from __future__ import annotations

import logging
import threading

import pytest

from agent.sensors.lane import Lane


def test_a_lane_runs_once_until_it_is_stopped_and_can_be_started_again() -> None:
    lane, runs = Lane("lane", "driver"), []
    began = threading.Event()

    def work(stop: threading.Event) -> None:
        runs.append(threading.current_thread())
        began.set()
        stop.wait()

    assert lane.stop(0.0) and not lane.started, "one that was never started has ended"
    for count in (1, 2):
        began.clear()
        lane.start(work)
        lane.start(work)
        assert began.wait(60) and lane.started and len(runs) == count and runs[-1].daemon
        assert lane.stop(60) and not lane.started and not runs[-1].is_alive()


def test_a_call_that_never_returns_is_said_and_left_behind_and_the_next_start_is_not_its_own(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lane, driver, stuck = Lane("lane", "driver (XID events)"), threading.Event(), threading.Event()
    stops: list[threading.Event] = []

    def hang(stop: threading.Event) -> None:
        stops.append(stop)
        stuck.set()
        driver.wait()  # the driver does not see the sign

    lane.start(hang)
    assert stuck.wait(60)
    with caplog.at_level(logging.WARNING, "agent.sensors.lane"):
        assert not lane.stop(0.01)
    assert caplog.messages == ["driver (XID events) does not answer; it is left behind"]
    assert lane.stop(0.0), "it is left behind once, and no longer waited for"
    stuck.clear()
    lane.start(hang)
    assert stuck.wait(60)
    assert [stop.is_set() for stop in stops] == [True, False], "the one left behind still has its sign to stop"
    driver.set()
    assert lane.stop(60)
