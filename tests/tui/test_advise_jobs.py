"""What the nodes tell of their jobs, as the advice on spot takes it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from agent import wire
from pricing.fleet_use import NodeUse
from tests.support.buying import P4D
from tui.advise_jobs import spot_jobs

START = datetime(2026, 10, 1, tzinfo=UTC)
END = START + timedelta(hours=730)


def at(hours: float) -> datetime:
    return START + timedelta(hours=hours)


def node(name: str = "n1", gpus: int = 8) -> NodeUse:
    return NodeUse(
        node=name, key=P4D, cloud="aws", zone=None, purchase="on_demand", usd_per_hour=None, on_premises=None, gpu_count=gpus,
        gpu_model="A100", node_hours=0, held_hours=0, idle_hours=0, dark_hours=0, measured_hours=0, busy_hours=0, days=1,
        most_busy_day=None, least_measured_day=0, running=True, peak_held=None, gpus=(), holders=(),
    )  # fmt: skip


def job(*attempts: tuple[float, float | None, str | None], **more: object) -> wire.Job:
    runs = tuple(
        wire.Attempt(number=n, started_at=at(a), ended_at=None if b is None else at(b), cause=cause)
        for n, (a, b, cause) in enumerate(attempts, 1)
    )
    usual = {"id": "abcdefghijkl", "state": "running", "node": "n1", "submitted_at": at(0), "gpus": tuple("abcd")}
    usual["interruptible"] = True
    return wire.Job(**(usual | {"attempts": runs} | more))  # type: ignore[arg-type]


def test_hours_are_of_the_range_and_of_the_part_of_the_node_that_a_job_holds() -> None:
    (one,) = spot_jobs([job((-100, 50, "exit:1"), (60, None, None), name="train")], {"n1": node()}, START, END)
    assert (one.name, one.key, one.interruptible, one.checkpoints) == ("train", P4D, True, None)
    assert one.node_hours_per_month == (50 + 670) / 2
    assert one.changeover_hours is None and one.work_hours is None and one.deadline_hours is None


def test_a_changeover_is_measured_where_spot_was_taken_away() -> None:
    (one,) = spot_jobs([job((0, 10, "spot_reclaim"), (10.25, None, None))], {"n1": node()}, START, END)
    assert one.changeover_hours == 0.25


def test_a_job_that_ended_well_tells_how_long_it_takes_and_a_deadline_how_long_it_may() -> None:
    ended = job((1, 11, None), state="ended", exit_code=0, deadline=at(20), command=("python", "-m", "agent.recipes.images"))
    (one,) = spot_jobs([ended], {"n1": node()}, START, END)
    assert (one.work_hours, one.deadline_hours, one.checkpoints) == (10.0, 20.0, True)


def test_jobs_of_other_nodes_or_times_are_left_out() -> None:
    elsewhere = job((0, 10, None), node="n2")
    before, never = job((-10, -1, None)), job()
    assert spot_jobs([elsewhere, before, never], {"n1": node()}, START, END) == ()
