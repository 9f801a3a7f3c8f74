"""What a drill's facts mean: saved only on evidence, and otherwise why not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from agent.interruption.drill_report import SAVED, Facts, judge, text

T0 = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


GOOD = Facts(
    cloud="aws", lead_seconds=120.0, command=("train",), notice_at=T0, marker="model.pt", marker_at=at(4.5), heard_at=at(2.25),
    signalled_at=at(2.5), ended_at=at(5.0), cause="spot_reclaim", exit_code=0,
)  # fmt: skip
BARE = msgspec.structs.replace(GOOD, marker=None, marker_at=None)


def changed(facts: Facts, **fields: object) -> Facts:
    return msgspec.structs.replace(facts, **fields)


def test_a_marker_written_after_the_notice_and_before_the_end_is_saved_in_time() -> None:
    report = judge(GOOD)
    assert (report.saved, report.verdict) == (True, SAVED)
    assert (report.heard_seconds, report.signalled_seconds, report.saved_seconds, report.ended_seconds) == (2.25, 2.5, 4.5, 5.0)
    assert report.left_seconds == 115.5


def test_without_a_marker_an_end_by_itself_with_0_is_saved_and_what_is_left_counts_from_it() -> None:
    report = judge(BARE)
    assert report.saved and report.saved_seconds is None and report.left_seconds == 115.0


def test_a_job_that_is_killed_but_whose_marker_is_new_has_saved() -> None:
    assert judge(changed(GOOD, killed_at=at(32), ended_at=at(32), signal=9, exit_code=None)).saved


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        (changed(GOOD, heard_at=None, signalled_at=None, ended_at=None), "did not notice"),
        (changed(GOOD, signalled_at=None, ended_at=None), "not asked to stop"),
        (changed(GOOD, marker_at=None), "model.pt is not there"),
        (changed(GOOD, marker_at=at(-61)), "61.0 s before the notice"),
        (changed(GOOD, marker_at=at(121)), "1.0 s after the node would have gone"),
        (changed(BARE, ended_at=None), "still ran"),
        (changed(BARE, killed_at=at(32.5), ended_at=at(33), exit_code=None, signal=9), "killed after 32.5 s"),
        (changed(BARE, ended_at=at(130)), "10.0 s after"),
        (changed(BARE, exit_code=None, signal=15), "signal 15"),
        (changed(BARE, exit_code=1), "exit code 1"),
    ],
)
def test_everything_else_is_not_saved_and_says_why(facts: Facts, why: str) -> None:
    report = judge(facts)
    assert not report.saved and report.verdict.startswith("not saved: ") and why in report.verdict


def test_the_report_for_a_person_has_a_line_a_step() -> None:
    assert text(judge(GOOD)).splitlines() == [
        "notice          0.00 s  aws, 12:00:00 UTC; the node ends after 120 s",
        "agent knew      2.25 s",
        "soft signal     2.50 s",
        "checkpoint      4.50 s",
        "job ended       5.00 s  exit 0, spot_reclaim",
        "time left     115.50 s",
        "saved in time",
    ]


def test_what_did_not_happen_is_a_dash() -> None:
    lines = text(judge(changed(BARE, ended_at=None, signalled_at=None, heard_at=None))).splitlines()
    assert lines[1] == "agent knew           –" and lines[4] == "job ended            –"
