"""The meter's rows for what can happen to a node, one case each. Times are offsets in ms from T0 in a hand-moved clock."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest

from agent import wire
from agent.meter import Meter
from tests.support.metering import ANN, BOB, EVE, INFO, T0_MS, HandClock, Node, all_rows, check_cover, check_gpu_tiles, gpu, lost, sample

CLOUDLESS = wire.NodeInfo(node="n1", gpus=())


@pytest.fixture
def node() -> Iterator[Node]:
    one = Node()
    yield one
    one.meter.close()


def test_a_row_ends_at_whole_multiples_of_its_length(node: Node) -> None:
    for _ in range(25):
        node.see(1003, gpu(0, ANN))
    assert node.spans() == [(1003, 10_000, "held", "ann"), (10_000, 20_000, "held", "ann"), (20_000, 25_075, "held", "ann")]


def test_time_belongs_to_those_who_held_the_gpu_at_its_beginning(node: Node) -> None:
    node.see(0, gpu(0, ANN))
    node.see(2000, gpu(0, BOB))
    node.see(2000, gpu(0))
    node.see(2000, gpu(0))
    assert node.spans() == [(0, 2000, "held", "ann"), (2000, 4000, "held", "bob"), (4000, 6000, "idle", None)]


def test_three_holders_share_one_gpu_to_the_last_millionth(node: Node) -> None:
    node.see(0, gpu(0, ANN, BOB, EVE))
    node.see(3000, gpu(0))
    rows = node.rows()
    assert [(row.user, row.share, row.gpu_seconds) for row in rows] == [
        ("ann", Decimal("0.333334"), Decimal("1.000002")),
        ("bob", Decimal("0.333333"), Decimal("0.999999")),
        ("eve", Decimal("0.333333"), Decimal("0.999999")),
    ]


def test_the_project_comes_from_the_process_else_from_the_user() -> None:
    node = Node(projects={"ann": "other", "eve": "speech"})
    node.see(0, gpu(0, ANN), gpu(1, EVE), gpu(2, BOB))
    node.see(1000, gpu(0), gpu(1), gpu(2))
    assert {row.user: row.project for row in node.rows() if row.user} == {"ann": "vision", "eve": "speech", "bob": None}
    node.meter.close()


def test_a_driver_that_does_not_tell_processes_means_held_by_somebody(node: Node) -> None:
    node.see(0, gpu(0, processes=None))
    node.see(1000, gpu(0, processes=None))
    assert node.spans() == [(0, 1000, "held", None)]


def test_utilisation_is_the_mean_over_the_time_it_was_told(node: Node) -> None:
    node.see(0, gpu(0, ANN))
    node.see(1000, gpu(0, ANN, utilization_ratio=0.2))
    node.see(3000, gpu(0, ANN, utilization_ratio=1.0))
    node.see(2000, gpu(0, ANN, utilization_ratio=None))
    assert node.rows()[0].utilization_ratio == pytest.approx(0.8)


def test_utilisation_that_was_never_told_is_not_known(node: Node) -> None:
    node.see(0, gpu(0, ANN, utilization_ratio=None))
    node.see(1000, gpu(0, ANN, utilization_ratio=None))
    assert node.rows()[0].utilization_ratio is None


def test_energy_of_the_counter_is_split_by_share(node: Node) -> None:
    node.see(0, gpu(0, ANN, BOB, energy_joules_total=5_000.0))
    node.see(1000, gpu(0, energy_joules_total=5_300.5))
    assert [(row.energy_joules, row.energy_source) for row in node.rows()] == [(150.25, "counter")] * 2


def test_without_a_counter_power_is_integrated(node: Node) -> None:
    node.see(0, gpu(0, ANN, power_watts=100.0))
    node.see(2000, gpu(0, power_watts=300.0))
    assert [(row.energy_joules, row.energy_source) for row in node.rows()] == [(400.0, "integrated")]


def test_without_counter_and_power_energy_is_not_known(node: Node) -> None:
    node.see(0, gpu(0, ANN, power_watts=None))
    node.see(2000, gpu(0, ANN, power_watts=None))
    assert [(row.energy_joules, row.energy_source) for row in node.rows()] == [(None, None)]


def test_a_counter_that_was_reset_begins_anew_and_power_fills_in(node: Node) -> None:
    node.see(0, gpu(0, ANN, energy_joules_total=9_000.0, power_watts=100.0))
    node.see(1000, gpu(0, ANN, energy_joules_total=3.0, power_watts=100.0))
    node.see(1000, gpu(0, ANN, energy_joules_total=103.0, power_watts=100.0))
    assert [(row.energy_joules, row.energy_source) for row in node.rows()] == [(200.0, "integrated")]


def test_a_lost_gpu_is_neither_held_nor_idle(node: Node) -> None:
    node.see(0, gpu(0, ANN), gpu(1))
    node.see(1000, lost(0), gpu(1))
    node.see(1000, gpu(0), gpu(1))
    node.see(1000, gpu(0), gpu(1))
    assert node.spans() == [(0, 1000, "held", "ann"), (1000, 2000, "lost", "gpu_lost"), (2000, 3000, "idle", None)]


def test_a_gpu_that_is_not_listed_any_more_is_lost_until_the_agent_restarts(tmp_path: Path) -> None:
    node = Node(tmp_path / "usage.db")
    node.see(0, gpu(0), gpu(1))
    node.see(1000, gpu(1))
    node.see(5000, gpu(1))
    assert node.spans() == [(0, 1000, "idle", None), (1000, 6000, "lost", "gpu_missing")]
    node.meter.close()
    again = Node(tmp_path / "usage.db", node.hands)
    again.see(4000, gpu(1))
    again.see(4000, gpu(1))
    assert again.spans()[-1] == (6000, 10_000, "down", "agent_stopped")
    rows, placements = all_rows(again.meter)
    assert placements[rows[-1].placement].gpu_count == 1
    check_cover(rows, placements)
    again.meter.close()


def test_when_the_driver_is_gone_all_known_gpus_are_lost_also_after_a_restart(tmp_path: Path) -> None:
    node = Node(tmp_path / "usage.db")
    node.see(0, gpu(0), gpu(1))
    node.see(1000, reason="the driver was unloaded", ok=False)
    node.see(1000, reason="the driver was unloaded", ok=False)
    node.meter.close()
    again = Node(tmp_path / "usage.db", node.hands)
    again.see(1000, reason="no driver")
    again.see(1000, reason="no driver")
    expected = [(0, 1000, "idle", None), (1000, 2000, "lost", "driver_unavailable"), (2000, 3000, "down", "agent_stopped")]
    assert again.spans() == [*expected, (3000, 4000, "lost", "driver_unavailable")]
    again.meter.close()


def unreadable() -> wire.Gpu:
    return wire.Gpu(index=0, uuid="GPU-0", model="Tesla T4", state="error", reason="the driver does not answer")


def test_while_the_driver_is_late_its_gpus_stay_with_their_holders_and_are_then_lost(node: Node) -> None:
    node.see(0, gpu(0, ANN))
    for second in range(1, 41):
        late = second > 6  # the sampler shows no old values as new ones
        node.see(1000, unreadable() if late else gpu(0, ANN), age_ms=second * 1000)
    spans = node.spans()
    assert {span[2:] for span in spans if span[1] <= 30_000} == {("held", "ann")}
    assert {span[2:] for span in spans if span[0] >= 31_000} == {("lost", "driver_unresponsive")}


def test_a_gpu_that_cannot_be_read_while_the_driver_answers_is_lost_not_held_by_nobody_known(node: Node) -> None:
    node.see(0, gpu(0, ANN))
    node.see(1000, unreadable())
    node.see(1000, unreadable())
    assert node.spans() == [(0, 1000, "held", "ann"), (1000, 2000, "lost", "gpu_error")]


def test_a_driver_that_hangs_for_longer_than_a_stall_loses_its_gpus(node: Node) -> None:
    node.see(0, gpu(0, ANN))
    for second in range(1, 41):
        node.see(1000, gpu(0, ANN, utilization_ratio=0.9), age_ms=second * 1000)
    kinds = {(kind, why) for start, _, kind, why in node.spans() if start >= 31_000}
    assert kinds == {("lost", "driver_unresponsive")}
    assert node.spans()[0][2:] == ("held", "ann")


def test_old_readings_measure_nothing(node: Node) -> None:
    node.see(0, gpu(0, ANN, energy_joules_total=100.0))
    node.see(1000, gpu(0, ANN, energy_joules_total=100.0, utilization_ratio=0.9), age_ms=20_000)
    node.see(1000, gpu(0, ANN, energy_joules_total=700.0, utilization_ratio=0.3))
    (row,) = node.rows()
    assert (row.utilization_ratio, row.energy_joules) == (pytest.approx(0.3), 600.0)


def test_a_node_without_gpus_has_host_rows(node: Node) -> None:
    node.see(0, reason="no NVIDIA driver")
    node.see(12_000, reason="no NVIDIA driver")
    rows = node.rows()
    assert [(row.kind, row.gpu, row.share, row.gpu_seconds) for row in rows] == [("host", None, 1, 0)] * 2
    assert {one.gpu_count for one in all_rows(node.meter)[1].values()} == {0}


def test_gpus_that_appear_on_a_host_end_its_rows(node: Node) -> None:
    node.see(0, reason="no NVIDIA driver")
    node.see(2000, gpu(0), gpu(1))
    node.see(2000, gpu(0), gpu(1))
    assert node.spans(None) == [(0, 2000, "host", None)] and node.spans() == [(2000, 4000, "idle", None)]
    check_cover(*all_rows(node.meter))


def test_a_gpu_that_appears_later_begins_at_its_first_sight(node: Node) -> None:
    node.see(0, gpu(0))
    node.see(2000, gpu(0), gpu(1))
    node.see(2000, gpu(0), gpu(1))
    assert node.spans("GPU-1") == [(2000, 4000, "idle", None)]
    rows, placements = all_rows(node.meter)
    assert [placements[row.placement].gpu_count for row in rows if row.gpu == "GPU-0"] == [1, 2]


def test_the_time_before_the_drivers_first_answer_is_covered_afterwards(node: Node) -> None:
    node.see(0, ok=None)
    node.see(1500, ok=None)
    node.see(1500, gpu(0, ANN))
    node.see(1000, gpu(0, ANN))
    assert node.spans() == [(0, 3000, "down", "starting"), (3000, 4000, "held", "ann")]


def test_a_driver_that_never_answers_makes_a_host_after_ten_seconds(node: Node) -> None:
    for _ in range(13):
        node.see(1000, ok=None)
    assert node.spans(None) == [(1000, 11_000, "down", "starting"), (11_000, 13_000, "host", None)]


def test_a_gap_longer_than_a_stall_is_down(node: Node) -> None:
    node.see(0, gpu(0, ANN, energy_joules_total=0.0))
    node.see(30_000, gpu(0, ANN, energy_joules_total=300.0))
    node.see(30_001, gpu(0, ANN, energy_joules_total=700.0))
    assert node.spans()[-2:] == [(20_000, 30_000, "held", "ann"), (30_000, 60_001, "down", "stalled")]
    assert node.rows()[-1].energy_joules == 400.0


def test_a_clock_that_is_set_forward_leaves_a_row_that_says_so(node: Node) -> None:
    node.see(0, gpu(0, ANN))
    node.hands.step_wall(3_600_000)
    node.see(1000, gpu(0, ANN))
    node.see(1000, gpu(0, ANN))
    assert node.spans() == [
        (0, 1000, "held", "ann"),
        (1000, 3_601_000, "down", "clock_step"),
        (3_601_000, 3_602_000, "held", "ann"),
    ]


def test_a_clock_that_is_set_back_changes_nothing_and_is_said_once(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    node.see(0, gpu(0, ANN))
    node.hands.step_wall(-3_600_000)
    node.see(1000, gpu(0, ANN))
    node.see(1000, gpu(0, ANN))
    assert node.spans() == [(0, 2000, "held", "ann")]
    assert [record.message for record in caplog.records] == [
        "the clock is 3600.0 s behind the usage already recorded; the record keeps its own time"
    ]


def test_a_restart_before_the_end_of_the_record_goes_on_at_that_end(tmp_path: Path) -> None:
    node = Node(tmp_path / "usage.db")
    node.see(0, gpu(0, ANN))
    node.see(5000, gpu(0, ANN))
    node.meter.close()
    early = Node(tmp_path / "usage.db", HandClock(T0_MS - 100_000))
    early.see(0, gpu(0, BOB))
    early.see(2000, gpu(0, BOB))
    assert early.spans() == [(0, 5000, "held", "ann"), (5000, 7000, "held", "bob")]
    early.meter.close()


def test_time_without_an_agent_is_down(tmp_path: Path) -> None:
    node = Node(tmp_path / "usage.db")
    node.see(0, gpu(0, ANN))
    node.see(5000, gpu(0, ANN))
    node.meter.close()
    again = Node(tmp_path / "usage.db", node.hands)
    again.see(86_400_000, ok=None)
    again.see(1000, gpu(0))
    again.see(1000, gpu(0))
    assert again.spans()[1:] == [
        (5000, 86_405_000, "down", "agent_stopped"),
        (86_405_000, 86_406_000, "down", "starting"),
        (86_406_000, 86_407_000, "idle", None),
    ]
    again.meter.close()


def test_a_clock_that_was_never_set_records_nothing_and_says_so() -> None:
    node = Node(hands=HandClock(86_400_000))
    node.see(0, gpu(0))
    assert node.meter.problem is not None and "clock" in node.meter.problem
    node.hands.step_wall(T0_MS)
    node.see(1000, gpu(0))
    node.see(5000, gpu(0))
    assert node.rows()[0].kind == "idle" and node.meter.problem is None
    node.meter.close()


def test_another_placement_ends_the_rows_of_the_one_before(node: Node) -> None:
    node.see(0, gpu(0, ANN))
    node.see(5000, gpu(0, ANN))
    node.meter.flush()
    node.info = msgspec.structs.replace(INFO, purchase="on_demand")
    node.see(1000, gpu(0, ANN))
    node.see(1000, gpu(0, ANN))
    assert node.spans() == [(0, 6000, "held", "ann"), (6000, 7000, "held", "ann")]
    assert [one.purchase for one in all_rows(node.meter)[1].values()] == ["spot", "on_demand"]


def test_an_identity_that_arrives_a_moment_after_the_start_prices_the_first_seconds_too(tmp_path: Path) -> None:
    node = Node(tmp_path / "usage.db")
    node.info = CLOUDLESS
    node.see(0, ok=None)
    node.see(1000, gpu(0, ANN))
    node.info = INFO
    node.see(1000, gpu(0, ANN))
    node.see(9000, gpu(0, ANN))
    assert {one.instance_type for one in all_rows(node.meter)[1].values()} == {"g4dn.12xlarge"}
    node.meter.close()


def test_an_identity_that_arrives_after_rows_were_written_does_not_alter_them(node: Node) -> None:
    node.info = CLOUDLESS
    node.see(0, gpu(0))
    node.see(11_000, gpu(0))
    node.meter.flush()
    node.info = INFO
    node.see(1000, gpu(0))
    node.see(1000, gpu(0))
    node.rows()
    assert [one.instance_type for one in all_rows(node.meter)[1].values()] == [None, "g4dn.12xlarge"]


def test_another_instance_type_ends_the_gpus_that_it_does_not_have(tmp_path: Path) -> None:
    node = Node(tmp_path / "usage.db")
    node.see(0, gpu(0))
    node.see(1000, gpu(0))
    node.meter.close()
    again = Node(tmp_path / "usage.db", node.hands)
    again.info = msgspec.structs.replace(INFO, instance_type="c7i.large")
    again.see(1000, reason="no NVIDIA driver")
    again.see(1000, reason="no NVIDIA driver")
    assert again.spans()[-1] == (1000, 2000, "down", "agent_stopped") and again.spans(None) == [(2000, 3000, "host", None)]
    again.meter.close()


def test_a_past_is_recorded_at_the_times_that_are_given() -> None:
    meter = Meter.open(":memory:", "n1", durable=False, row_seconds=60)
    for minute in range(1441):
        at_ms = T0_MS + minute * 60_000
        meter.observe(sample(gpu(0, ANN), gpu(1), at_ms=at_ms), INFO, at_ms=at_ms)
    rows, placements = all_rows(meter)
    assert {row.kind for row in rows} == {"held", "idle"}
    assert sum(row.gpu_seconds for row in rows if row.gpu == "GPU-0") == pytest.approx(86_400, abs=60)
    check_cover(rows, placements)
    meter.close()


def test_going_live_after_a_past_leaves_no_hole() -> None:
    node = Node(durable=False, row_seconds=60)
    for minute in range(-5, 1):
        at_ms = T0_MS + minute * 60_000 + 500
        node.meter.observe(sample(gpu(0), at_ms=at_ms), INFO, at_ms=at_ms)
    node.see(0, gpu(0))
    node.see(1000, gpu(0))
    check_gpu_tiles(node.rows(), "GPU-0")
    assert node.spans()[-1][1] == 1500, "the record is 500 ms ahead of the wall clock, and stays so"
    node.meter.close()


def test_times_that_go_backwards_count_as_the_last_one() -> None:
    meter = Meter.open(":memory:", "n1", durable=False)
    for at_ms in (T0_MS, T0_MS + 5000, T0_MS + 1000, T0_MS + 8000):
        meter.observe(sample(gpu(0, ANN), at_ms=at_ms), INFO, at_ms=at_ms)
    meter.close(T0_MS + 8000)


def test_closing_records_the_last_moment(tmp_path: Path) -> None:
    node = Node(tmp_path / "usage.db")
    node.see(0, gpu(0, ANN))
    node.hands.pass_ms(2500)
    node.meter.close()
    node.meter.close()
    again = Node(tmp_path / "usage.db", node.hands)
    assert again.spans() == [(0, 2500, "held", "ann")]
    again.meter.close()


def test_samples_after_the_close_are_ignored(node: Node) -> None:
    node.see(0, gpu(0))
    node.meter.close()
    node.see(1000, gpu(0))
