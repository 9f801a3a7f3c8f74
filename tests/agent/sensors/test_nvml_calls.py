"""Single answers of NVML in the units of the wire."""

from __future__ import annotations

from typing import Any

import pynvml
import pytest

from agent.sensors import nvml_calls as calls


class Sample:
    """One nvmlProcessUtilizationSample_t."""

    def __init__(self, pid: int, time_stamp: int, sm: int) -> None:
        self.pid, self.timeStamp, self.smUtil = pid, time_stamp, sm


def test_a_percentage_above_a_hundred_is_unknown() -> None:
    assert [calls.percent(value) for value in (0, 97, 100, 101, 0xFFFFFFFF)] == [0.0, 0.97, 1.0, None, None]


@pytest.mark.parametrize(
    ("used", "total", "reserved", "expected"),
    [
        (1, 10, 2, (1, 10, 2)),
        (0xFFFFFFFFFFFFFFFF, 10, 2, (None, 10, 2)),
        (1, 0xFFFFFFFFFFFFFFFF, 2, (None, None, None)),
        (0, 0, 0, (None, None, None)),
        (1, 10, 0xFFFFFFFFFFFFFFFF, (1, 10, None)),
    ],
)
def test_memory_sentinels_are_unknown(used: int, total: int, reserved: int, expected: tuple[Any, ...]) -> None:
    assert calls.memory_bytes(used, total, reserved) == expected


def test_throttle_bits_have_names_and_new_bits_keep_their_number() -> None:
    assert calls.throttle_names(0) == ()
    assert calls.throttle_names(0x44) == ("sw_power_cap", "hw_thermal_slowdown")
    assert calls.throttle_names(0x801) == ("gpu_idle", "unknown_0x800")
    assert calls.throttle_names(0xFFFFFFFFFFFFFFFF) is None


def test_the_newest_function_that_exists_is_asked_and_remembered() -> None:
    asked: list[str] = []

    def new(handle: Any) -> calls.Answer:
        asked.append("new")
        raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)

    def old(handle: Any) -> calls.Answer:
        asked.append("old")
        return (handle,)

    read = calls.first_of(new, old)
    assert [read(1), read(2)] == [(1,), (2,)] and asked == ["new", "old", "old"]


def test_a_refusal_is_not_a_missing_function() -> None:
    def new(handle: Any) -> calls.Answer:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NO_PERMISSION)

    with pytest.raises(pynvml.NVMLError):
        calls.first_of(new, lambda handle: (1,))(0)


def test_the_last_time_stamp_is_kept_and_old_or_absurd_samples_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    now, asked_after = 1000.0, []
    answers = [
        [Sample(1, 999_500_000, 40), Sample(1, 999_900_000, 60), Sample(2, 998_000_000, 10), Sample(3, 999_600_000, 70_000)],
        [],
        [Sample(1, 999_900_000, 99)],
    ]

    def answer(handle: Any, after: int) -> list[Sample]:
        asked_after.append(after)
        return answers.pop(0)

    monkeypatch.setattr(pynvml, "nvmlDeviceGetProcessUtilization", answer)
    load = calls.ProcessLoad(wall_clock=lambda: now)
    assert [load.read(0), load.read(0), load.read(0)] == [{1: 0.6}, {}, {}]
    assert asked_after == [999_000_000, 999_900_000, 999_900_000]


@pytest.mark.parametrize("step", [-3600.0, 3600.0])
def test_a_clock_that_was_set_does_not_silence_a_gpu(monkeypatch: pytest.MonkeyPatch, step: float) -> None:
    now = 10_000.0
    monkeypatch.setattr(
        pynvml, "nvmlDeviceGetProcessUtilization", lambda handle, after: [Sample(1, int(now * 1e6) - 1000, 50)]
    )
    load = calls.ProcessLoad(wall_clock=lambda: now)
    load.read(0)
    now += step
    assert load.read(0) == {1: 0.5}
