"""Why a job waits: its place, what has to end first, and when at the latest; and how it ended, in words."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest

from tests.support.fleets import AT, NOW, StubCatalog, gpu, put
from tests.support.jobs import ended, ident, job, queued, tell
from tui.fleet import Fleet
from tui.job_wait import end_text, wait_of, wait_text


def node_with(*jobs: object, gpus: int = 4) -> Fleet:
    """All GPUs are held by the jobs that run."""
    fleet = Fleet(StubCatalog())  # type: ignore[arg-type]
    put(fleet, "gpu-01", tuple(gpu(i, node="gpu-01") for i in range(gpus)))
    tell(fleet, *jobs)  # type: ignore[arg-type]
    return fleet


def runs(number: int, gpus: tuple[int, ...], hours_left: float | None) -> object:
    limit = None if hours_left is None else 3600.0 + hours_left * 3600
    return job(number, gpus=tuple(f"GPU-gpu-01-{index}" for index in gpus), gpus_wanted=len(gpus),
               started_at=AT - timedelta(hours=1), time_limit_seconds=limit)  # fmt: skip


def text_of(fleet: Fleet, number: int) -> str:
    view = fleet.job("gpu-01", ident(number))
    assert view is not None
    return wait_text(view, NOW)


def test_the_first_in_line_waits_for_the_ends_that_free_enough() -> None:
    fleet = node_with(runs(1, (0, 1), 2), runs(2, (2, 3), 5), queued(3, gpus_wanted=2))
    assert text_of(fleet, 3) == f"1st of 1 in line; when {ident(1)} has ended; in 2h00m at the latest"
    fleet = node_with(runs(1, (0, 1), 2), runs(2, (2, 3), 5), queued(3, gpus_wanted=4))
    assert text_of(fleet, 3) == f"1st of 1 in line; when {ident(1)}, {ident(2)} have ended; in 5h00m at the latest"


def test_who_is_further_back_waits_for_those_before_it_too() -> None:
    fleet = node_with(
        runs(1, (0, 1, 2, 3), 1), queued(2, gpus_wanted=4, time_limit_seconds=7200.0), queued(3, gpus_wanted=1, priority=-1),
        queued(4, gpus_wanted=2, priority=5, time_limit_seconds=3600.0),
    )  # fmt: skip
    assert [text_of(fleet, number).partition(" of ")[0] for number in (4, 2, 3)] == ["1st", "2nd", "3rd"]
    assert "in 1h00m at the latest" in text_of(fleet, 4)
    assert text_of(fleet, 2) == f"2nd of 3 in line, behind {ident(4)}; when {ident(1)}, {ident(4)} have ended; in 2h00m at the latest"
    assert "in 4h00m at the latest" in text_of(fleet, 3)


def test_no_time_is_made_up_where_a_job_has_no_limit() -> None:
    fleet = node_with(runs(1, (0, 1), None), runs(2, (2, 3), 1), queued(3, gpus_wanted=4))
    assert text_of(fleet, 3) == f"1st of 1 in line; when {ident(2)} has ended; nobody can say when: {ident(1)} has no time limit"
    fleet = node_with(runs(1, (0, 1, 2, 3), 1), queued(2, gpus_wanted=1, gpu_share=Decimal("0.5")), queued(3, gpus_wanted=8))
    assert text_of(fleet, 2) == "1st of 2 in line" and "at the latest" not in text_of(fleet, 3)
    fleet = node_with(runs(1, (0, 1, 2, 3), 1), queued(2, gpus_wanted=1, after=("x",)))
    assert text_of(fleet, 2) == "1st of 1 in line"


def test_only_what_waits_in_the_line_has_a_place() -> None:
    fleet = node_with(runs(1, (0,), 1), ended(2), queued(3, array_counts={"queued": 4}))
    for number in (1, 2, 3):
        view = fleet.job("gpu-01", ident(number))
        assert view is not None and wait_of(view, NOW) is None and wait_text(view, NOW) == ""


@pytest.mark.parametrize(
    ("cause", "fields", "text"),
    [
        ("exit:0", {}, "ended well"),
        ("exit:2", {}, "its exit code was 2"),
        ("exit:2", {"evidence": "exit code 2"}, "exit code 2"),
        ("signal:9", {}, "killed by signal 9 (KILL)"),
        ("oom", {"evidence": "the kernel killed 1 process at its limit of 64.0 GiB", "signal": 9},
         "out of memory, signal 9 (KILL): the kernel killed 1 process at its limit of 64.0 GiB"),
        ("time_limit", {"exit_code": 143}, "its time limit, exit code 143"),
        ("new_cause", {}, "new_cause"),
    ],
)  # fmt: skip
def test_how_it_ended_is_said_in_words(cause: str, fields: dict[str, object], text: str) -> None:
    assert end_text(ended(1, cause, **{"exit_code": None, **fields})) == text
    assert end_text(job(1)) == ""
