"""The scalars of TensorBoard's event files: TFRecords with the few protobuf fields of a scalar, read as they grow.

Invariant: the bytes are a job's and may be anything: a length is believed only with its checksum, nothing is read beyond what
the caller allows, and what is damaged ends the file there with all values before it kept. No TensorFlow is needed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

LONGEST_RECORD = 64 * 1024
"""Longer ones hold pictures and graphs; they are stepped over unread."""
LONGEST_NAME = 128
MOST_VALUES = 1000
"""Of one event."""
START = 1
"""SessionLog: a writer went on from a step."""
_LENGTH, _CRC = struct.Struct("<Q"), struct.Struct("<I")
_HEAD, _TAIL = 12, 4
_FLOAT, _DOUBLE, _INT32, _INT64 = 1, 2, 3, 9


def _table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ 0x82F63B78 if byte & 1 else byte >> 1
        table.append(byte)
    return tuple(table)


_CASTAGNOLI = _table()


def masked_crc(data: bytes) -> int:
    """CRC-32C as TFRecords carry it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CASTAGNOLI[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


class Scalar(NamedTuple):
    name: str
    value: float


class Event(NamedTuple):
    """`restarts`: a writer went on from `step`; what was written at and after it before counts no more."""

    step: int
    wall_time: float
    scalars: tuple[Scalar, ...] = ()
    restarts: bool = False


class Records(NamedTuple):
    """What one reading brought."""

    events: list[Event]
    offset: int
    """Where to go on: behind the last whole record."""
    damage: str | None = None
    """Why the file cannot be read on from here; None: it can, or it ends here for now."""


def read_events(file: BinaryIO, offset: int, most_bytes: int) -> Records:
    """The events from `offset` on, at most about `most_bytes` of records; a record that is not whole yet waits."""
    events: list[Event] = []
    taken = 0
    while taken < most_bytes:
        file.seek(offset)
        head = file.read(_HEAD)
        if len(head) < _HEAD:
            break
        (length,) = _LENGTH.unpack_from(head)
        if masked_crc(head[:8]) != _CRC.unpack_from(head, 8)[0] or length >= 1 << 40:
            return Records(events, offset, f"the length of the record at byte {offset} has a wrong checksum")
        end = offset + _HEAD + length + _TAIL
        if length > LONGEST_RECORD:
            file.seek(end - 1)
            if not file.read(1):
                break
        else:
            body = file.read(length + _TAIL)
            if len(body) < length + _TAIL:
                break
            if masked_crc(body[:length]) != _CRC.unpack_from(body, length)[0]:
                return Records(events, offset, f"the record at byte {offset} has a wrong checksum")
            if (event := parse_event(body[:length])) is not None:
                events.append(event)
        taken += _HEAD + min(length, LONGEST_RECORD) + _TAIL
        offset = end
    return Records(events, offset)


def parse_event(data: bytes) -> Event | None:
    """None: it holds no scalar and no restart, or is no event at all."""
    step, wall_time, scalars, restarts = 0, 0.0, [], False
    try:
        for number, value in _fields(data):
            if number == 1 and isinstance(value, bytes):
                (wall_time,) = struct.unpack("<d", value)
            elif number == 2 and isinstance(value, int):
                step = value - (1 << 64) if value >> 63 else value
            elif number == 5 and isinstance(value, bytes):
                scalars = list(_summary(value))
            elif number == 7 and isinstance(value, bytes):
                restarts = any(field == (1, START) for field in _fields(value))
    except (struct.error, ValueError):
        return None
    return Event(step, wall_time, tuple(scalars), restarts) if scalars or restarts else None


def _summary(data: bytes) -> Iterator[Scalar]:
    found = 0
    for number, value in _fields(data):
        if number == 1 and isinstance(value, bytes) and found < MOST_VALUES:
            found += 1
            if (scalar := _value(value)) is not None:
                yield scalar


def _value(data: bytes) -> Scalar | None:
    name, number_found = "", None
    for number, value in _fields(data):
        if not isinstance(value, bytes):
            continue
        if number == 1 and len(value) <= 4 * LONGEST_NAME:
            name = value.decode("utf-8", "replace")[:LONGEST_NAME]
        elif number == 2 and len(value) == 4:
            (number_found,) = struct.unpack("<f", value)
        elif number == 8:
            number_found = _tensor(value)
    return Scalar(name, number_found) if name and number_found is not None else None


def _tensor(data: bytes) -> float | None:
    """Of a tensor of exactly one number."""
    kind, found = 0, []
    for number, value in _fields(data):
        if number == 1 and isinstance(value, int):
            kind = value
        elif number == 4 and isinstance(value, bytes) and len(value) in (4, 8):
            code = {_FLOAT: "<f", _DOUBLE: "<d", _INT32: "<i", _INT64: "<q"}.get(kind, "")
            if code and struct.calcsize(code) == len(value):
                found.append(float(struct.unpack(code, value)[0]))
        elif number == 5 and isinstance(value, bytes) and len(value) % 4 == 0 and len(value) <= 8:
            found += struct.unpack(f"<{len(value) // 4}f", value)
        elif number == 6 and isinstance(value, bytes) and len(value) % 8 == 0 and len(value) <= 16:
            found += struct.unpack(f"<{len(value) // 8}d", value)
    return found[0] if len(found) == 1 else None


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(number, value) of a message: whole numbers as such, everything else as its bytes. ValueError: it is none."""
    at, end = 0, len(data)
    while at < end:
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        if kind == 2:
            size, at = _varint(data, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError("a kind of field that is not in use")
        if at + size > end:
            raise ValueError("a field that is longer than its message")
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        if at >= len(data):
            raise ValueError("a number that is cut")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
    raise ValueError("a number without an end")
