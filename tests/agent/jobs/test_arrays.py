"""Arrays: what is refused, their rows, and what is said of all tasks together."""

from __future__ import annotations

import pytest

from agent.jobs import arrays
from tests.support.queueing import job_id, row


def test_an_array_becomes_its_own_row_and_one_for_each_index() -> None:
    own, *tasks = arrays.rows(row(1, array=(0, 2, 7), user="ann"))
    assert own.is_array
    assert not any(task.is_array for task in tasks)
    assert [(task.id, task.array, task.array_index, task.user) for task in tasks] == [
        (f"{job_id(1)}_{index}", job_id(1), index, "ann") for index in (0, 2, 7)
    ]
    assert all(task.spec is own.spec for task in tasks)


def test_a_job_without_an_array_stays_alone() -> None:
    assert arrays.rows(row(1)) == [row(1)]


@pytest.mark.parametrize(
    ("indexes", "at_once", "sentence"),
    [
        (range(10_001), None, "at most 10,000 tasks"),
        ((1, 2, 1), None, "index 1 is 2 times"),
        ((-1,), None, "so -1 cannot be one"),
        ((1_000_000,), None, "so 1000000 cannot be one"),
        ((1,), 0, "at least 1 task"),
        ((), 2, "only for a job with an array"),
    ],
)
def test_a_wrong_array_is_refused(indexes: tuple[int, ...], at_once: int | None, sentence: str) -> None:
    assert sentence in (arrays.refusal(indexes, at_once) or "")


def test_a_right_one_is_not() -> None:
    assert arrays.refusal(range(10_000), 10_000) is arrays.refusal((), None) is None


def test_the_state_shown_is_the_liveliest() -> None:
    assert arrays.state_of({"queued": 5, "running": 1, "ended": 4}) == "running"
    assert arrays.state_of({"queued": 5, "ended": 4}) == "queued"
    assert arrays.state_of({"ended": 4}) == arrays.state_of({}) == "ended"


def test_the_outcome_names_the_commonest_failure() -> None:
    assert arrays.outcome_of({"exit:0": 3}) == ("exit:0", "all 3 tasks ended with exit code 0")
    cause, evidence = arrays.outcome_of({"exit:0": 5, "oom": 2, "exit:1": 3})
    assert cause == "exit:1"
    assert evidence == "5 of 10 tasks did not end well: 3 exit:1, 2 oom"
