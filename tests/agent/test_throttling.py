"""Since when a GPU is throttled, and what of a sample a stream repeats."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from agent import wire
from agent.stream_form import StreamForm
from agent.throttling import Throttling

START = datetime(2026, 3, 1, 12, 0, tzinfo=timezone.utc)


def sample(second: float, *reasons: str, **fields: object) -> wire.Sample:
    gpu = wire.Gpu(index=0, uuid="GPU-1", state="ok", throttle_reasons=reasons)
    return wire.Sample(node="n", sequence=int(second), taken_at=START + timedelta(seconds=second), gpus=(gpu,), **fields)  # type: ignore[arg-type]


def test_a_reason_keeps_the_moment_at_which_it_was_first_seen() -> None:
    told = Throttling()
    assert told.told(sample(0, "sw_power_cap")).gpus[0].throttle_since == {"sw_power_cap": START}
    assert told.told(sample(9, "gpu_idle")).gpus[0].throttle_since == {}, "clocks that are low for want of work are no throttling"
    since = told.told(sample(20, "sw_power_cap", "hw_thermal_slowdown")).gpus[0].throttle_since
    assert since == dict.fromkeys(("sw_power_cap", "hw_thermal_slowdown"), START + timedelta(seconds=20))


def test_a_break_of_a_few_seconds_does_not_begin_it_anew() -> None:
    told = Throttling()
    for second in (0, 1, 2):
        told.told(sample(second, "sw_power_cap"))
    told.told(sample(3))
    assert told.told(sample(5, "sw_power_cap")).gpus[0].throttle_since == {"sw_power_cap": START}
    told.told(sample(11))
    assert told.told(sample(12, "sw_power_cap")).gpus[0].throttle_since == {"sw_power_cap": START + timedelta(seconds=12)}


def test_a_clock_that_steps_back_begins_it_anew_and_untouched_samples_stay_themselves() -> None:
    told = Throttling()
    told.told(sample(50, "hw_slowdown"))
    assert told.told(sample(10, "hw_slowdown")).gpus[0].throttle_since == {"hw_slowdown": START + timedelta(seconds=10)}
    fresh, quiet = Throttling(), sample(0)
    assert fresh.told(quiet) is quiet


def linked(second: int, at: int) -> wire.Sample:
    gpu = wire.Gpu(
        index=0, uuid="GPU-1", state="ok", utilization_ratio=0.5, nvlinks=4, nvlinks_down=(1,), pcie_receive_bytes_per_second=5.0,
        links_at=START + timedelta(seconds=at),
    )  # fmt: skip
    above = (wire.Ancestor(pid=1, command="torchrun"),)
    return wire.Sample(node="n", sequence=second, taken_at=START + timedelta(seconds=second), gpus=(gpu,), ancestors=above)


def test_a_stream_repeats_links_only_when_they_were_read_anew_and_ancestors_now_and_then() -> None:
    form = StreamForm()
    told = [form.of(linked(second, second // 10 * 10)) for second in range(1, 31)]
    assert [one.sequence for one in told if one.gpus[0].links_at is not None] == [1, 10, 20, 30]
    assert [one.sequence for one in told if one.ancestors] == [1, 10, 20, 30]
    assert told[0].gpus[0] == linked(1, 0).gpus[0]
    assert all(one.gpus[0].utilization_ratio == 0.5 for one in told)
    assert told[1].gpus[0].nvlinks is None and told[1].gpus[0].nvlinks_down == ()
