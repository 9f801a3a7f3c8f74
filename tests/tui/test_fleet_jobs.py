"""Jobs and notices of a fleet: what is known, what goes, what it adds up to."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import msgspec
import pytest

from agent import wire
from tests.support.fleets import AT, NOW, StubCatalog, gpu, info, put, sample
from tests.support.jobs import ended, ident, job, job_fleet, notice, queued, tell
from tui.alerts import all_alerts
from tui.columns import FLEET_COLUMNS, NODE_COLUMNS, jobs_text, state_text
from tui.fleet import LOST_SECONDS, Fleet
from tui.fleet_jobs import MOST_ENDED, TOLD_AT_MOST, NoticeView, countdown


def one_node(*jobs: wire.Job) -> Fleet:
    fleet = Fleet(StubCatalog())  # type: ignore[arg-type]
    put(fleet, "gpu-01", (gpu(0, node="gpu-01"),))
    tell(fleet, *jobs)
    return fleet


def ids(fleet: Fleet) -> list[str]:
    return [view.job.id for view in fleet["gpu-01"].jobs]


def reconnect(fleet: Fleet, *told: wire.Job) -> None:
    fleet.failed("gpu-01", "the agent closed the stream")
    fleet.apply("gpu-01", wire.NodeEvent(node=info("gpu-01", (gpu(0),))), NOW)
    assert ids(fleet), "until everything was told nothing is gone"
    tell(fleet, *told)
    fleet.apply("gpu-01", wire.SampleEvent(sample=sample("gpu-01", (gpu(0),))), NOW)


def test_a_job_is_counted_as_it_waits_runs_and_ends() -> None:
    fleet = one_node(queued(1))
    counts = []
    for each in (job(1, state="starting"), job(1), job(1, state="stopping"), ended(1)):
        tell(fleet, each)
        counts.append((fleet["gpu-01"].jobs.running, fleet["gpu-01"].jobs.queued))
    assert counts == [(1, 0), (1, 0), (1, 0), (0, 0)]
    assert ids(fleet) == [ident(1)]


def test_a_job_that_is_queued_again_is_no_longer_among_the_ended() -> None:
    fleet = one_node(ended(1), queued(1))
    assert [view.job.state for view in fleet["gpu-01"].jobs] == ["queued"]
    assert fleet.job_counts().queued == 1


def test_after_a_reconnect_jobs_that_are_no_longer_told_of_are_gone_and_ended_ones_stay() -> None:
    fleet = one_node(job(1), queued(2), ended(3))
    before = fleet.job("gpu-01", ident(1))
    reconnect(fleet, job(1))
    assert ids(fleet) == [ident(1), ident(3)]
    assert fleet.job("gpu-01", ident(1)) is before, "the row is the same one"
    assert fleet.job_counts().queued == 0


def test_where_an_agent_may_have_told_only_a_part_nothing_is_taken_away() -> None:
    fleet = one_node(queued(TOLD_AT_MOST + 5))
    reconnect(fleet, *(queued(number) for number in range(TOLD_AT_MOST)))
    assert len(fleet["gpu-01"].jobs) == TOLD_AT_MOST + 1


def test_a_new_inventory_in_the_middle_of_a_stream_loses_neither_jobs_nor_the_notice() -> None:
    fleet = one_node(job(1))
    fleet.apply("gpu-01", wire.NoticeEvent(notice=notice()), NOW)
    fleet.apply("gpu-01", wire.NodeEvent(node=info("gpu-01", ())), NOW)
    tell(fleet, job(1))
    fleet.apply("gpu-01", wire.SampleEvent(sample=sample("gpu-01", ())), NOW)
    assert ids(fleet) == [ident(1)] and fleet["gpu-01"].notice is not None


def test_at_most_200_ended_jobs_of_a_node_are_kept_the_newest() -> None:
    fleet = one_node(*(ended(number) for number in range(MOST_ENDED + 30)))
    assert len(fleet["gpu-01"].jobs) == MOST_ENDED
    assert ids(fleet)[0] == ident(MOST_ENDED + 29)


def test_the_whole_list_brings_what_ended_before_and_takes_away_what_is_no_more() -> None:
    fleet = one_node(queued(1), job(2))
    listed = wire.JobList(node="gpu-01", jobs=(job(2), ended(9), ended(8)), problem="the disk is full")
    fleet.seed_jobs("gpu-01", listed, NOW)
    assert ids(fleet) == [ident(2), ident(9), ident(8)]
    assert fleet["gpu-01"].jobs.problem == "the disk is full"


def test_an_arrays_own_row_is_not_counted_beside_its_tasks() -> None:
    fleet = one_node(queued(1, array_counts={"queued": 3}), queued(2, array=ident(1), array_index=0))
    assert fleet.job_counts().queued == 1


def test_run_time_and_cost_grow_by_the_nodes_clock_and_stand_still_when_it_is_lost() -> None:
    fleet = one_node(job(1, cost=Decimal(10), usd_per_hour=Decimal(3600), started_at=AT - timedelta(seconds=60)))
    view = fleet.job("gpu-01", ident(1))
    assert view is not None
    assert (view.run_seconds(NOW + 2), view.cost(NOW + 2)) == (62, Decimal(12))
    assert view.run_seconds(NOW + LOST_SECONDS + 100) == 60 and view.cost(NOW + LOST_SECONDS + 100) == 10


def test_an_unknown_cost_stays_unknown() -> None:
    fleet = one_node(job(1, cost=None, usd_per_hour=None))
    view = fleet.job("gpu-01", ident(1))
    assert view is not None and view.cost(NOW + 50) is None


def test_only_what_happens_to_jobs_moves_the_version_of_the_jobs() -> None:
    fleet = one_node(job(1))
    before = fleet.jobs_version
    fleet.apply("gpu-01", wire.SampleEvent(sample=sample("gpu-01", (gpu(0),))), NOW)
    assert fleet.jobs_version == before
    tell(fleet, ended(1))
    assert fleet.jobs_version == before + 1


def test_the_notice_counts_down_on_the_node_and_ends_when_the_cloud_takes_it_back() -> None:
    fleet = job_fleet()
    view = fleet["gpu-02"]
    assert [state_text(view, NOW + second) for second in (0, 3)] == ["!1m43s", "!1m40s"]
    later = msgspec.structs.replace(sample("gpu-02", ()), taken_at=AT + timedelta(seconds=200))
    fleet.apply("gpu-02", wire.SampleEvent(sample=later), NOW + 200)
    assert state_text(view, NOW + 200) == "!now"
    fleet.apply("gpu-02", wire.NoticeEvent(notice=notice(ended_at=AT)), NOW + 200)
    assert view.notice is None and state_text(view, NOW + 200) == "live"


def test_a_notice_that_is_not_told_again_after_a_reconnect_is_gone() -> None:
    fleet = job_fleet()
    fleet.failed("gpu-02", "the agent closed the stream")
    assert fleet["gpu-02"].notice is not None
    fleet.apply("gpu-02", wire.NodeEvent(node=info("gpu-02", ())), NOW)
    assert fleet["gpu-02"].notice is None


@pytest.mark.parametrize(
    ("fields", "short", "brief", "hard"),
    [
        ({"at": None}, "!now", "terminate now", True),
        ({"kind": "rebalance", "at": None}, "!rebal", "rebalance", False),
        ({"kind": "maintenance", "at": AT + timedelta(hours=5)}, "!5h", "maintenance in 5h", False),
        ({"at": AT + timedelta(minutes=20)}, "!20m", "terminate in 20m", True),
        ({"at": AT - timedelta(minutes=1)}, "!now", "terminate now", True),
    ],
)
def test_every_kind_of_notice_says_what_and_when(fields: dict[str, object], short: str, brief: str, hard: bool) -> None:
    view = NoticeView(notice(**fields))
    assert (view.short(AT), view.brief(AT), view.hard) == (short, brief, hard)
    assert len(view.short(AT)) <= 6


def test_a_countdown_fits_its_five_cells_at_any_time() -> None:
    assert all(len(countdown(seconds)) <= 5 for seconds in range(0, 86_400 * 4, 7))


def test_a_notice_is_an_alert_with_the_time_that_is_left() -> None:
    alerts = [alert for alert in all_alerts(job_fleet(), NOW, AT) if alert.rule == "cloud_notice"]
    assert [(alert.node, alert.severity, alert.reading) for alert in alerts] == [("gpu-02", "critical", "terminate in 1m43s")]
    assert job_fleet().totals(NOW).alerts == 1


def test_the_column_of_jobs_is_for_the_app_alone() -> None:
    fleet = job_fleet()
    assert [jobs_text(fleet[name]) for name in ("gpu-01", "gpu-02", "sim-01")] == ["3+2", "0", "–"]
    assert {column.id for column in FLEET_COLUMNS} - {column.id for column in NODE_COLUMNS} == {"jobs"}
    tell(fleet, queued(70, "gpu-02"))
    assert jobs_text(fleet["gpu-02"]) == "0+1"


def test_a_job_of_an_unknown_node_is_none() -> None:
    assert job_fleet().job("nowhere", ident(1)) is None
    assert msgspec.structs.asdict(job_fleet().job_counts(["gpu-02"])) == {"running": 0, "queued": 0, "notices": 1}
