"""`agent.history`: what a plot gets back is what was put in, in bounded memory."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from agent import wire
from agent.history import HistoryRing
from agent.history_level import LevelSpec

START = datetime(2026, 3, 1, 12, 0, tzinfo=timezone.utc)


def sample(second: float, *gpus: wire.Gpu, cpu: float | None = 0.5) -> wire.Sample:
    return wire.Sample(
        node="n1",
        sequence=1,
        taken_at=START + timedelta(seconds=second),
        host=wire.Host(cpu_utilization_ratio=cpu),
        gpus=gpus,
    )


def gpu(uuid: str = "GPU-1", **readings: float | int | None) -> wire.Gpu:
    return wire.Gpu(index=0, uuid=uuid, state="ok", **readings)


def test_an_empty_ring_gives_an_empty_history() -> None:
    assert HistoryRing("n1").history(60) == wire.History(node="n1", step_seconds=1.0)


def test_points_come_back_oldest_first_with_their_values() -> None:
    ring = HistoryRing()
    for second in range(5):
        ring.add(sample(second, gpu(utilization_ratio=second / 10, memory_used_bytes=85_899_345_921 + second)))
    past = ring.history(60)
    points = past.gpus["GPU-1"]
    assert past.node == "n1" and past.step_seconds == 1.0
    assert [point.utilization_ratio for point in points] == [0.0, 0.1, 0.2, 0.3, 0.4]
    assert [point.taken_at for point in points] == [START + timedelta(seconds=s) for s in range(5)]
    assert points[4].memory_used_bytes == 85_899_345_925
    assert past.cpu[0] == (START, 0.5)


def test_an_unknown_reading_stays_unknown() -> None:
    ring = HistoryRing()
    ring.add(sample(0, gpu(utilization_ratio=None, power_watts=71.5), cpu=None))
    (point,) = ring.history(10).gpus["GPU-1"]
    assert point.utilization_ratio is None and point.temperature_celsius is None
    assert point.power_watts == pytest.approx(71.5)
    assert ring.history(10).cpu == ((START, None),)


def test_a_fine_ring_keeps_fifteen_minutes_and_no_more() -> None:
    ring = HistoryRing()
    for second in range(1000):
        ring.add(sample(second, gpu(power_watts=float(second))))
    points = ring.history(900).gpus["GPU-1"]
    assert len(points) == 900
    assert points[0].power_watts == 100 and points[-1].power_watts == 999


def test_only_the_seconds_asked_for_come_back() -> None:
    ring = HistoryRing()
    for second in range(100):
        ring.add(sample(second - 0.01 * (second % 2), gpu()))
    assert len(ring.history(10).gpus["GPU-1"]) == 10
    assert len(ring.history(2).gpus["GPU-1"]) == 2


def test_a_longer_past_is_the_mean_of_each_minute() -> None:
    ring = HistoryRing()
    for second in range(0, 3600):
        known = second % 2 == 0
        ring.add(sample(second, gpu(power_watts=100.0 + second // 60 if known else None)))
    past = ring.history(6 * 3600)
    points = past.gpus["GPU-1"]
    assert past.step_seconds == 60.0
    assert [point.power_watts for point in points] == [100.0 + minute for minute in range(60)]
    hour = ring.history(3600)
    assert hour.step_seconds == 10.0 and len(hour.gpus["GPU-1"]) == 360


def test_a_gpu_that_appears_later_has_no_past() -> None:
    ring = HistoryRing()
    ring.add(sample(0, gpu("GPU-1", power_watts=1.0)))
    ring.add(sample(1, gpu("GPU-1", power_watts=2.0), gpu("GPU-2", power_watts=3.0)))
    past = ring.history(60)
    assert [point.power_watts for point in past.gpus["GPU-2"]] == [None, 3.0]


def test_a_gpu_that_is_gone_for_a_whole_ring_is_forgotten() -> None:
    ring = HistoryRing(levels=(LevelSpec(1, 10),))
    ring.add(sample(0, gpu("GPU-1", power_watts=1.0)))
    for second in range(1, 12):
        ring.add(sample(second, gpu("GPU-2")))
    assert list(ring.history(10).gpus) == ["GPU-2"]


def test_memory_is_bounded_when_gpus_come_and_go() -> None:
    ring = HistoryRing(levels=(LevelSpec(1, 10), LevelSpec(10, 10)))
    for second in range(1000):
        ring.add(sample(second, gpu(f"GPU-{second}")))
    fine, coarse = ring._levels
    assert len(fine.names) <= 12 and len(coarse.names) <= 120


def test_a_clock_that_steps_back_replaces_what_came_after() -> None:
    ring = HistoryRing()
    for second in (0, 1, 2, 3, 1):
        ring.add(sample(second, gpu(power_watts=float(second))))
    points = ring.history(60).gpus["GPU-1"]
    assert [point.power_watts for point in points] == [0.0, 1.0]


def test_a_wrapped_ring_survives_a_clock_that_steps_back() -> None:
    ring = HistoryRing(levels=(LevelSpec(1, 5),))
    for second in (*range(8), 6, 7, 8):
        ring.add(sample(second, gpu(power_watts=float(second))))
    assert [point.power_watts for point in ring.history(5).gpus["GPU-1"]] == [4.0, 5.0, 6.0, 7.0, 8.0]
