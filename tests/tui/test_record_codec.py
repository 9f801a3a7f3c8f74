"""What a recording keeps of a message, and that changes add up to what they were made from."""

from __future__ import annotations

import typing
from decimal import Decimal
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from agent import wire
from tests.support.fleets import HOST, gpu, idle_gpu, lost_gpu, sample
from tests.support.jobs import job
from tui.record_codec import LOGARITHMIC, PARTS, UNITS, WORDS, alter, copied, difference, growth, pack, patch, unpack

_plain = st.one_of(st.integers(-(2**40), 2**40), st.booleans(), st.text(max_size=3), st.floats(allow_nan=False, allow_infinity=False))
_keys = st.sampled_from([0, 1, 2, "tag", "node"])
_docs = st.recursive(
    st.dictionaries(_keys, _plain, max_size=4),
    lambda inner: st.dictionaries(_keys, st.one_of(_plain, inner, st.lists(st.one_of(inner, _plain), max_size=3)), max_size=4),
    max_leaves=12,
)


@given(_docs, _docs)
def test_the_change_from_one_document_to_another_brings_the_other(old: Any, new: Any) -> None:
    change = msgspec.msgpack.decode(msgspec.msgpack.encode(difference(old, new)), strict=False)
    assert patch(old, change) == new
    changed = copied(old)
    alter(changed, change)
    assert changed == new
    assert difference(new, new) == {}


def test_a_sample_comes_back_with_its_readings_as_fine_as_a_screen_shows_them() -> None:
    gpus = (gpu(0), idle_gpu(1), lost_gpu(2), gpu(3, users=None, util=None, power_watts=312.4, energy_joules_total=123_456.7))
    before = sample("n", gpus)
    after = unpack(pack(before), wire.Sample)
    assert after.taken_at == before.taken_at and after.sequence == before.sequence
    for one, other in zip(before.gpus, after.gpus, strict=True):
        assert (one.uuid, one.state, one.reason, one.utilization_ratio, one.memory_used_bytes, one.temperature_celsius) == (
            other.uuid, other.state, other.reason, other.utilization_ratio, other.memory_used_bytes, other.temperature_celsius,
        )  # fmt: skip
        assert (one.processes, one.throttle_reasons, one.xid_counts) == (other.processes, other.throttle_reasons, other.xid_counts)
    assert after.gpus[3].power_watts == 312 and after.gpus[3].energy_joules_total == 123_500
    assert after.host is not None
    rate = after.host.network_receive_bytes_per_second
    assert rate is not None and abs(rate - 3.1e8) < 3.1e8 * 0.01 and after.host.filesystems == HOST.filesystems


def test_what_changed_in_a_message_is_found_without_packing_it() -> None:
    samples = [
        sample("n", (gpu(0), idle_gpu(1), gpu(2))),
        sample("n", (gpu(0, util=0.881, power_watts=311.7), idle_gpu(1), gpu(2, users=("ada", "bob"))), 2),
        sample("n", (gpu(0, util=None, fan_ratio=0.3), lost_gpu(1), gpu(2, users=None)), 3, host=None),
        sample("n", (gpu(0, memory_used_bytes=3), lost_gpu(1)), 4, gpu_reason="why"),
        sample("n", (gpu(0, memory_used_bytes=5, allocations=(wire.GpuAllocation(job="j", share="0.5"),)), idle_gpu(1)), 5),
    ]
    jobs = [job(1), job(1, usage=wire.JobUsage(cpu_seconds=3.14)), job(1, usage=wire.JobUsage(gpu_seconds=2.0), limits={"a": "b"})]
    for messages in (samples, jobs):
        for old in messages:
            for new in messages:
                assert patch(pack(old), growth(old, new)) == pack(new)


def test_small_and_odd_sizes_are_kept_exactly_and_nothing_becomes_a_zero_that_was_none() -> None:
    before = sample("n", (gpu(0, memory_used_bytes=700, fan_ratio=None), gpu(1, memory_used_bytes=0)))
    after = unpack(pack(before), wire.Sample)
    assert [one.memory_used_bytes for one in after.gpus] == [700, 0] and after.gpus[0].fan_ratio is None


def test_a_job_keeps_its_money_its_times_and_its_names() -> None:
    before = job(3, usd_per_hour=Decimal("1.234567"), cost=Decimal("0.000001"))
    assert unpack(pack(before), wire.Job) == before


def test_every_reading_with_a_fraction_has_a_stated_precision() -> None:
    for kind in (wire.Sample, wire.Host, wire.Gpu, wire.Process, wire.SensorReport, wire.Job, wire.JobUsage):
        for name, hint in typing.get_type_hints(kind).items():
            if float in (hint, *typing.get_args(hint)):
                assert name in PARTS or name in LOGARITHMIC, f"{kind.__name__}.{name}"


def test_no_word_of_the_format_stands_twice() -> None:
    assert len(set(WORDS)) == len(WORDS)
    assert {*PARTS, *UNITS, *LOGARITHMIC} - set(WORDS) <= {"time_limit_seconds", "grace_seconds"}
