"""The watch as the daemon uses it: a thread that asks the stand-in services and tells what they announce, once."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import pytest

from agent import wire
from agent.interruption.watch import NoticeWatch
from tests.support.imds import MetadataService, metadata_service

SOON = 60.0
"""Seconds within which anything that a test waits for must happen."""
T = TypeVar("T")


def action(seconds: float, kind: str = "terminate") -> str:
    at = datetime.now(UTC) + timedelta(seconds=seconds)
    return json.dumps({"action": kind, "time": f"{at:%Y-%m-%dT%H:%M:%SZ}"})


class Heard:
    """What a watch has told."""

    def __init__(self) -> None:
        self.queue: queue.Queue[wire.Notice] = queue.Queue()

    def __call__(self, notice: wire.Notice) -> None:
        self.queue.put(notice)

    def next(self) -> wire.Notice:
        return self.queue.get(timeout=SOON)

    def nothing(self) -> bool:
        return self.queue.empty()


@contextmanager
def watching(cloud: str, service: MetadataService, **options: Any) -> Iterator[tuple[NoticeWatch, Heard]]:
    heard = Heard()
    options = {"pace": 0.01, "timeout_seconds": 30.0, "problem_seconds": 0.2, **options}
    watch = NoticeWatch(cloud, options.pop("on_notice", heard), base_urls={cloud: service.url}, **options)
    watch.start()
    try:
        yield watch, heard
    finally:
        watch.close()
        assert ended(watch)


def ended(watch: NoticeWatch) -> bool:
    if watch._thread is not None:
        watch._thread.join(SOON)
    return watch._thread is None or not watch._thread.is_alive()


def until(what: Callable[[], T]) -> T:
    """What it was when it came true."""
    end = time.monotonic() + SOON
    while not (found := what()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)
    return found


def asked(service: MetadataService, count: int) -> Callable[[], bool]:
    before = len(service.requests)
    return lambda: len(service.requests) >= before + count


def test_a_spot_interruption_is_told_once_with_the_time_that_is_left_and_once_when_it_is_withdrawn() -> None:
    with metadata_service("ec2") as service, watching("aws", service) as (watch, heard):
        until(asked(service, 6))
        assert watch.current is None and watch.seconds_left() is None
        service.values["spot/instance-action"] = action(120)
        told = heard.next()
        assert (told.cloud, told.kind) == ("aws", "terminate") and watch.current == told
        left = watch.seconds_left()
        assert left is not None and 90 < left <= 121
        until(asked(service, 10))
        assert heard.nothing()
        del service.values["spot/instance-action"]
        ended = heard.next()
        assert ended.ended_at is not None and ended.id == told.id
        until(lambda: watch.current is None)


def test_a_recommendation_and_an_interruption_are_both_told_and_the_interruption_is_the_current_one() -> None:
    values = {"events/recommendations/rebalance": '{"noticeTime": "2026-11-30T12:00:00Z"}'}
    with metadata_service("ec2", values) as service, watching("aws", service) as (watch, heard):
        assert heard.next().kind == "rebalance"
        service.values["spot/instance-action"] = action(60)
        assert heard.next().kind == "terminate"
        assert [one.kind for one in watch.notices] == ["terminate", "rebalance"]


@pytest.mark.parametrize("fault", [503, "hang", "drop", "garbage"])
def test_a_service_that_fails_withdraws_nothing_is_said_after_a_while_and_recovers(fault: Any) -> None:
    values = {"spot/instance-action": action(300)}
    with metadata_service("ec2", values) as service, watching("aws", service, timeout_seconds=1.0) as (watch, heard):
        told = heard.next()
        service.faults["/latest/"] = fault
        problem = until(lambda: watch.problem)
        assert "spot notices" in (problem or "") and watch.current == told and heard.nothing()
        service.faults.clear()
        until(lambda: watch.problem is None)
        assert heard.nothing()


def test_one_fault_now_and_then_is_no_problem() -> None:
    with metadata_service("ec2") as service, watching("aws", service, problem_seconds=600.0) as (watch, heard):
        service.faults["/latest/meta-data/spot"] = 503
        until(asked(service, 12))
        assert watch.problem is None and heard.nothing()


def test_a_token_that_the_service_has_forgotten_costs_one_question() -> None:
    with metadata_service("ec2") as service, watching("aws", service, problem_seconds=0.0) as (watch, heard):
        until(asked(service, 4))
        service.tokens.clear()
        service.values["spot/instance-action"] = action(60)
        assert heard.next().kind == "terminate" and watch.problem is None


def test_gcp_is_told_while_a_question_waits() -> None:
    with metadata_service("gcp") as service, watching("gcp", service) as (watch, heard):
        until(asked(service, 3))
        service.values["instance/preempted"] = "TRUE"
        told = heard.next()
        left = watch.seconds_left(told)
        assert told.kind == "terminate" and left is not None and 0 < left <= 30


def test_azure_is_told_that_all_is_saved_only_where_that_is_configured() -> None:
    event = {"EventId": "A1", "EventType": "Preempt", "Resources": ["node-1"], "NotBefore": ""}
    for approve in (False, True):
        with metadata_service("azure") as service, watching("azure", service, approve=approve) as (watch, heard):
            service.events = [event]
            service.incarnation += 1
            assert heard.next().id == "A1"
            service.faults["/metadata/scheduledevents"] = 503
            watch.saved()
            until(asked(service, 3))
            service.faults.clear()
            until(asked(service, 3))
            if approve:
                until(lambda: service.approved)
            until(lambda: watch.problem is None)
            assert service.approved == (["A1"] if approve else [])


@pytest.mark.parametrize("cloud", [None, "on_premises", "alibaba", ""])
def test_a_node_of_no_known_cloud_asks_nobody(cloud: str | None) -> None:
    with metadata_service("ec2", {"spot/instance-action": action(60)}) as service:
        watch = NoticeWatch(cloud, Heard(), base_urls={"aws": service.url})
        watch.start()
        watch.saved()
        assert watch._thread is None and watch.problem is None and watch.current is None
        watch.close()
        assert service.requests == []


@pytest.mark.parametrize("environ", [{"RACKRATE_METADATA": "off"}, {"RACKRATE_GCP_METADATA_URL": "http://127.0.0.1:9"}])
def test_what_is_switched_off_or_replaced_by_another_cloud_is_not_asked(environ: dict[str, str]) -> None:
    watch = NoticeWatch("aws", Heard(), environ=environ)
    watch.start()
    assert watch._thread is None
    watch.close()


def test_the_address_in_the_environment_is_asked() -> None:
    with metadata_service("ec2", {"spot/instance-action": action(60)}) as service:
        heard = Heard()
        watch = NoticeWatch("aws", heard, environ={"RACKRATE_EC2_METADATA_URL": service.url + "/"})
        watch.start()
        assert heard.next().kind == "terminate"
        watch.close()


def test_a_listener_that_fails_does_not_end_the_watch() -> None:
    heard = Heard()

    def broken(notice: wire.Notice) -> None:
        heard(notice)
        raise RuntimeError("nobody listens")

    with metadata_service("ec2", {"spot/instance-action": action(60)}) as service:
        with watching("aws", service, on_notice=broken):
            heard.next()
            del service.values["spot/instance-action"]
            assert heard.next().ended_at is not None


def test_a_watch_ends_at_once_while_the_service_hangs() -> None:
    with metadata_service("gcp", faults={"/": "hang"}) as service:
        watch = NoticeWatch("gcp", Heard(), base_urls={"gcp": service.url}, timeout_seconds=60.0)
        watch.start()
        until(lambda: service.requests)
        begun = time.monotonic()
        watch.close()
        watch.start()
        assert time.monotonic() - begun < SOON and watch._thread is not None and ended(watch)


def test_a_watch_that_fails_asks_less_and_less_often_but_within_the_notice() -> None:
    seconds, tries = 0.0, []

    watch = NoticeWatch("azure", Heard(), base_urls={"azure": "http://127.0.0.1:9"}, clock=lambda: seconds)
    one = watch._asked[0]
    for _ in range(12):
        watch._turn()
        tries.append(one.due - seconds)
        seconds = one.due
    assert tries[:3] == [1.0, 2.0, 4.0] and set(tries[3:]) == {5.0}
    assert watch.problem is None
    seconds += 200
    assert "127.0.0.1" in (watch.problem or "")


def test_threads_are_gone_after_close() -> None:
    with metadata_service("ec2") as service, watching("aws", service):
        assert any(thread.name == "notices" for thread in threading.enumerate())
    assert not any(thread.name == "notices" for thread in threading.enumerate())
