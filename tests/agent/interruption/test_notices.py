"""An announcement is told once, again when its time changes, and when it is withdrawn; time left by a steady clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from agent.interruption.notices import Finding, NoticeBook

NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)
CLOCK = 1000.0
SPOT = Finding("spot-terminate", "terminate", "gone soon", at=NOW + timedelta(seconds=120))
EVENT = Finding("e-1", "maintenance", "reboot", at=NOW + timedelta(hours=5))
REBALANCE = Finding("rebalance", "rebalance", "leave")
PREEMPTED = Finding("preempted", "terminate", "gone soon", lead_seconds=30.0)


def later(seconds: float) -> tuple[datetime, float]:
    return NOW + timedelta(seconds=seconds), CLOCK + seconds


def test_an_announcement_is_told_once_with_its_time_and_what_is_left() -> None:
    book = NoticeBook("aws")
    (told,) = book.update("spot", [SPOT], *later(0))
    assert (told.cloud, told.kind, told.at, told.noticed_at, told.id) == ("aws", "terminate", SPOT.at, NOW, "spot-terminate")
    assert book.update("spot", [SPOT], *later(5)) == [] and book.in_force() == [told]
    assert book.seconds_left("spot-terminate", CLOCK + 5) == 115
    assert book.seconds_left("spot-terminate", CLOCK + 500) == 0


def test_what_is_left_does_not_change_when_the_wall_clock_is_set() -> None:
    book = NoticeBook("aws")
    book.update("spot", [SPOT], *later(0))
    assert book.update("spot", [SPOT], NOW + timedelta(hours=3), CLOCK + 10) == []
    assert book.seconds_left("spot-terminate", CLOCK + 10) == 110


def test_a_wall_clock_that_is_wrong_is_corrected_by_the_clock_of_the_cloud() -> None:
    book, wrong = NoticeBook("aws"), NOW + timedelta(minutes=10)
    (told,) = book.update("spot", [SPOT._replace(said_at=NOW)], wrong, CLOCK)
    assert told.at == wrong + timedelta(seconds=120) and book.seconds_left(told.id, CLOCK) == 120


def test_a_second_between_the_clocks_is_no_skew() -> None:
    (told,) = NoticeBook("aws").update("spot", [SPOT._replace(said_at=NOW - timedelta(seconds=1))], NOW, CLOCK)
    assert told.at == SPOT.at


def test_a_time_that_changes_is_told_again_and_one_that_is_no_longer_said_is_kept() -> None:
    book = NoticeBook("azure")
    book.update("events", [EVENT], *later(0))
    (again,) = book.update("events", [EVENT._replace(at=NOW + timedelta(seconds=90))], *later(30))
    assert again.at == NOW + timedelta(seconds=90) and again.noticed_at == NOW
    assert book.update("events", [EVENT._replace(at=None)], *later(95)) == []
    assert book.in_force() == [again] and book.seconds_left("e-1", CLOCK + 60) == 30


def test_a_time_that_comes_late_is_told() -> None:
    book = NoticeBook("azure")
    (first,) = book.update("events", [EVENT._replace(at=None)], *later(0))
    (then,) = book.update("events", [EVENT], *later(1))
    assert (first.at, then.at) == (None, EVENT.at)


def test_one_that_is_withdrawn_is_told_with_its_end_and_may_come_again() -> None:
    book = NoticeBook("aws")
    book.update("spot", [SPOT], *later(0))
    (ended,) = book.update("spot", [], *later(7))
    assert ended.ended_at == NOW + timedelta(seconds=7) and ended.at == SPOT.at
    assert book.in_force() == [] and book.seconds_left(ended.id, CLOCK) is None
    (again,) = book.update("spot", [SPOT], *later(9))
    assert again.ended_at is None and again.noticed_at == NOW + timedelta(seconds=9)


def test_what_one_source_says_withdraws_nothing_of_another() -> None:
    book = NoticeBook("aws")
    book.update("spot", [SPOT], *later(0))
    assert [one.kind for one in book.update("rebalance", [REBALANCE], *later(1))] == ["rebalance"]
    assert [one.kind for one in book.in_force()] == ["terminate", "rebalance"]


def test_a_promise_without_a_time_counts_from_the_first_sight() -> None:
    book = NoticeBook("gcp")
    (told,) = book.update("preempted", [PREEMPTED], *later(0))
    assert told.at == NOW + timedelta(seconds=30)
    assert book.update("preempted", [PREEMPTED], *later(10)) == [] and book.seconds_left("preempted", CLOCK + 10) == 20


def test_the_end_of_the_node_comes_before_maintenance_and_the_nearer_before_the_farther() -> None:
    book = NoticeBook("azure")
    soon = EVENT._replace(id="e-2", at=NOW + timedelta(seconds=10))
    book.update("events", [REBALANCE, EVENT, SPOT, soon], *later(0))
    assert [one.id for one in book.in_force()] == ["spot-terminate", "e-2", "e-1", "rebalance"]


def test_a_recommendation_has_no_time() -> None:
    book = NoticeBook("aws")
    (told,) = book.update("rebalance", [REBALANCE], *later(0))
    assert told.at is None and book.seconds_left("rebalance", CLOCK) is None
