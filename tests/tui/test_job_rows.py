"""Jobs as rows: what the columns say, and what the filter words find."""

from __future__ import annotations

from decimal import Decimal

import pytest

from tests.support.fleets import NOW
from tests.support.jobs import ended, ident, job, job_fleet, queued
from tui.columns import sort_rows
from tui.errors import WrongUsage
from tui.fleet_jobs import JobView
from tui.job_rows import IN_REPORTS, JOB_COLUMNS, JOB_WORDS, cost_text, gpus_text, name_text, span, state_text, why_text
from tui.query import parse

_BY_ID = {column.id: column for column in JOB_COLUMNS}


def selected(text: str) -> set[int]:
    wanted = parse(text, JOB_WORDS)
    return {int(view.job.id[4:]) for view in job_fleet().jobs() if wanted(view, NOW)}


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("", set(range(1, 10))),
        ("state:running", {1, 2}),
        ("state:failed", {7, 8}),
        ("state:done", {6}),
        ("user:bob", {2, 5}),
        ("cause:oom", {7}),
        ("cause:time", {3}),
        ("project:nlp", {2}),
        ("name:sweep", {2}),
        ("node:gpu-01 !state:ended", {1, 2, 3, 4, 5}),
        ("node:gpu-02", set()),
        ("id:0abc00000004", {4}),
        ("why:cpuset", {2}),
        ("sweep", {2}),
        ("gpus>2", {5}),
        ("gpus<1", {2}),
        ("cost>26 state:running", {1, 2}),
        ("run>3600 state:stopping", {3}),
        ("priority>0", {4}),
    ],
)
def test_a_query_selects_jobs(text: str, numbers: set[int]) -> None:
    assert selected(text) == numbers


def test_a_wrong_key_names_those_that_jobs_have() -> None:
    with pytest.raises(WrongUsage, match="cause"):
        parse("region:x", JOB_WORDS)
    with pytest.raises(WrongUsage, match="run"):
        parse("util<5", JOB_WORDS)


def ordered(column: str, descending: bool = False) -> list[int]:
    rows = sort_rows(list(job_fleet().jobs()), _BY_ID[column], NOW, descending=descending, tie=lambda view: view.key)
    return [int(row.job.id[4:]) for row in rows]


def test_the_first_order_is_what_stops_what_runs_the_queue_by_priority_and_what_ended() -> None:
    assert ordered("state") == [3, 1, 2, 4, 5, 6, 7, 8, 9]


def test_unknown_costs_and_run_times_stand_last_in_both_directions() -> None:
    for descending in (False, True):
        assert set(ordered("cost", descending)[-3:]) == {3, 4, 5}
        assert set(ordered("run", descending)[-2:]) == {4, 5}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (0, "0s"),
        (59.9, "59s"),
        (61, "1m01s"),
        (3599, "59m"),
        (11_520, "3h12m"),
        (86_400, "1d00h"),
        (9e8, "10416d"),
    ],
)
def test_lengths_of_time_have_their_two_largest_units(seconds: float | None, text: str) -> None:
    assert span(seconds) == text and len(text) <= 6


def test_a_cost_that_only_reports_know_is_marked_and_one_that_nobody_knows_is_not() -> None:
    without = job(1, gpus_wanted=0, gpus=(), cost=None)
    assert cost_text(without, None) == IN_REPORTS
    [column] = [one for one in JOB_COLUMNS if one.id == "cost"]
    assert len(IN_REPORTS) <= column.width
    assert cost_text(without, Decimal(2)) == "$2.00"
    assert cost_text(queued(2, gpus_wanted=0), None) == cost_text(job(3, cost=None), None) == "–"


def test_names_counts_and_reasons() -> None:
    assert name_text(job(1, name=None)) == "python train.py --config vit.yaml"
    assert name_text(job(1, array_index=3)) == "train-1 [3]"
    assert gpus_text(job(1, gpus_wanted=0, gpu_share=Decimal("0.500000"))) == "0.5"
    assert state_text(queued(1, array_counts={"running": 2, "queued": 7, "ended": 1})) == "2+7"
    assert (
        why_text(ended(1, left_behind=("2 processes could not be killed",), evidence="x")) == "2 processes could not be killed"
    )
    assert why_text(job(1, warnings=("careful",))) == "careful"
    assert why_text(job(1, state="stopping", stopping="spot_reclaim")) == "is being stopped: spot reclaim"


def test_no_column_lets_a_control_character_through() -> None:
    evil = "x\x1b[2J\x9b\x07\n"
    fleet = job_fleet()
    view = JobView(fleet["gpu-01"], job(1, name=evil, user=evil, project=evil, cause=evil, reason=evil, state="queued"), NOW)
    for column in JOB_COLUMNS:
        assert column.text(view, NOW).isprintable(), column.id


def test_each_sort_key_is_used_once() -> None:
    keys = [column.sort_key for column in JOB_COLUMNS if column.sort_key]
    assert sorted(keys) == sorted("0123456789") and ident(1) == "0abc00000001"
