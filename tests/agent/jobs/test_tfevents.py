"""TensorBoard's event files, written by its own writer, and by nobody's."""

from __future__ import annotations

import io
import math
import os
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.jobs.curve_files import EventFiles
from agent.jobs.series import Series, thinned
from agent.jobs.tfevents import masked_crc, parse_event, read_events

FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)


def record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked_crc(length)) + data + struct.pack("<I", masked_crc(data))


def scalar(name: str, value: float, step: int, wall_time: float = 0.0) -> bytes:
    inner = b"\x0a" + bytes([len(name.encode())]) + name.encode() + b"\x15" + struct.pack("<f", value)
    summary = b"\x0a" + bytes([len(inner)]) + inner
    return b"\x09" + struct.pack("<d", wall_time) + b"\x10" + varint(step) + b"\x2a" + bytes([len(summary)]) + summary


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def test_the_checksum_is_the_one_that_is_published() -> None:
    crc = (masked_crc(b"123456789") - 0xA282EAD8) & 0xFFFFFFFF
    assert (crc >> 17 | crc << 15) & 0xFFFFFFFF == 0xE3069283


def test_what_tensorboards_own_writer_wrote_is_read_value_for_value(tmp_path: Path) -> None:
    tensorboard = pytest.importorskip("tensorboard.summary.writer.event_file_writer")
    from tensorboard.compat.proto.event_pb2 import Event, SessionLog
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.compat.proto.tensor_pb2 import TensorProto

    values = [(step, math.sin(step) * 10**step, 1000.5 + step) for step in range(12)]
    writer = tensorboard.EventFileWriter(str(tmp_path))
    for step, value, at in values:
        plain = Summary.Value(tag="train/loss", simple_value=value)
        tensor = Summary.Value(tag="tensor", tensor=TensorProto(dtype=1, float_val=[value]))
        content = Summary.Value(tag="content", tensor=TensorProto(dtype=1, tensor_content=struct.pack("<f", value)))
        double = Summary.Value(tag="double", tensor=TensorProto(dtype=2, double_val=[value]))
        vector = Summary.Value(tag="vector", tensor=TensorProto(dtype=1, float_val=[1.0, 2.0]))
        writer.add_event(Event(wall_time=at, step=step, summary=Summary(value=[plain, tensor, content, double, vector])))
    picture = Summary.Value(tag="picture", image=Summary.Image(encoded_image_string=b"x" * 200_000))
    writer.add_event(Event(step=50, summary=Summary(value=[picture])))
    writer.add_event(Event(step=5, session_log=SessionLog(status=SessionLog.START)))
    writer.close()
    (path,) = tmp_path.iterdir()
    with path.open("rb") as file:
        read = read_events(file, 0, 10**9)
    assert read.damage is None and read.offset == path.stat().st_size
    told = [event for event in read.events if not event.restarts]
    for event, (step, value, at) in zip(told, values, strict=True):
        single = struct.unpack("<f", struct.pack("<f", value))[0]
        assert (event.step, event.wall_time) == (step, at)
        assert dict(event.scalars) == {"train/loss": single, "tensor": single, "content": single, "double": value}
    assert [event.step for event in read.events if event.restarts] == [5]


@given(st.lists(st.tuples(FINITE, st.integers(0, 2**50)), max_size=20), st.integers(0, 400))
def test_a_file_that_is_cut_anywhere_gives_all_whole_records_and_goes_on_when_it_grows(
    values: list[tuple[float, int]], cut: int
) -> None:
    parts = [record(scalar("loss", value, step)) for value, step in values]
    data = b"".join(parts)
    cut = min(cut, len(data))
    first = read_events(io.BytesIO(data[:cut]), 0, 10**9)
    assert first.damage is None
    rest = read_events(io.BytesIO(data), first.offset, 10**9)
    found = [(event.scalars[0].value, event.step) for event in (*first.events, *rest.events)]
    assert found == values and rest.offset == len(data)


@given(st.binary(max_size=200))
def test_any_bytes_are_no_harm(data: bytes) -> None:
    read_events(io.BytesIO(data), 0, 10**6)
    parse_event(data)
    read = read_events(io.BytesIO(record(data) + record(scalar("a", 1.0, 3))), 0, 10**6)
    assert read.damage is None and read.events[-1].step == 3


@pytest.mark.parametrize("place", [3, 9, 15, -2])
def test_a_wrong_checksum_ends_the_file_there_and_keeps_what_was_before(place: int) -> None:
    good, bad = record(scalar("a", 1.0, 3)), bytearray(record(scalar("a", 2.0, 4)))
    bad[place] ^= 0xFF
    read = read_events(io.BytesIO(good + bytes(bad) + good), 0, 10**6)
    assert [event.step for event in read.events] == [3] and read.offset == len(good)
    assert read.damage is not None and f"byte {len(good)}" in read.damage


def test_links_fifos_and_folders_elsewhere_are_not_read_and_a_resume_purges(tmp_path: Path) -> None:
    own, other = tmp_path / "job", tmp_path / "other"
    own.mkdir()
    other.mkdir()
    name = "events.out.tfevents.1.host.1.0"
    (other / name).write_bytes(record(scalar("secret", 1.0, 1)))
    os.symlink(other / name, own / f"{name}.link")
    os.symlink(other, own / "linked")
    os.mkfifo(own / f"{name}.fifo")
    (own / "tensorboard").mkdir()
    restart = b"\x10" + varint(3) + b"\x3a\x02\x08\x01"
    (own / "tensorboard" / name).write_bytes(b"".join(record(scalar("loss", step, step, 5.0)) for step in range(1, 6)))
    (own / "tensorboard" / name.replace(".1.h", ".2.h")).write_bytes(record(restart) + record(scalar("loss", 9.0, 3, 6.0)))
    (own / "val").mkdir()
    (own / "val" / name).write_bytes(record(scalar("loss", 7.0, 2)) + b"\x00" * 40)
    files = EventFiles(own, 32)
    assert files.read(10**6)
    assert {key: [(one.step, one.value) for one in series.points] for key, series in files.series.items()} == {
        "loss": [(1, 1.0), (2, 2.0), (3, 9.0)], "val/loss": [(2, 7.0)],
    }  # fmt: skip
    assert len(files.problems) == 1 and "checksum" in next(iter(files.problems.values()))
    assert EventFiles(tmp_path / "missing", 32).read(10) and EventFiles(own, 1).read(10**6)
    files = EventFiles(own, 32)
    parts = 0
    while not files.read(40):
        parts += 1
    assert parts > 3 and files.series["loss"].points[-1].step == 3, "however small the part, it is read to its end"
    locked = EventFiles(own / "tensorboard" / name, 32)
    assert locked.read(10) and "cannot be read" in locked.problems["folder"]


@given(st.lists(st.one_of(FINITE, st.just(math.nan)), min_size=1, max_size=400), st.integers(1, 20), st.integers(1, 50))
def test_thinning_keeps_first_last_lowest_highest_and_all_counts(values: list[float], buckets: int, stride: int) -> None:
    series = Series()
    for place, value in enumerate(values):
        series.add(place * stride, value, None)
    kept = thinned(series.points, buckets)
    assert len(kept) <= 4 * buckets or len(kept) == len(values)
    assert (kept[0].step, kept[-1].step) == (0, (len(values) - 1) * stride)
    known = [value for value in values if not math.isnan(value)]
    shown = [point.value for point in kept if not math.isnan(point.value)]
    if known:
        assert (min(shown), max(shown)) == (min(known), max(known))
    assert sum(point.count for point in kept) == len(values) and sum(point.numbers for point in kept) == len(known)
    assert math.isclose(sum(point.total for point in kept), math.fsum(known), rel_tol=1e-9, abs_tol=1e-6 * max([1.0, *map(abs, known)]))
    assert [point.step for point in kept] == sorted({point.step for point in kept})
