"""How a recording writes samples and jobs: as what changed since the one before, in whole numbers of a stated size.

Invariant: `patch(old, difference(old, new)) == new`, and `unpack(pack(doc))` is the message again, with readings to the
precision of `PARTS` and `LOGARITHMIC` (finer than a screen shows); money, names and times of jobs are kept as they were.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import compress
from operator import ne
from typing import Any, TypeVar

import msgspec
from msgspec.structs import astuple

T = TypeVar("T", bound=msgspec.Struct)
Doc = Any
"""Dictionaries, lists and plain values, as msgspec makes them of a message; names that are known are numbers."""

PARTS: dict[str, float] = {
    "utilization_ratio": 1000, "memory_utilization_ratio": 1000, "encoder_utilization_ratio": 100,
    "decoder_utilization_ratio": 100, "fan_ratio": 100, "cpu_utilization_ratio": 1000,
    "power_watts": 1, "power_limit_watts": 1, "temperature_celsius": 1, "energy_joules_total": 0.01,
    "load_1m": 100, "load_5m": 100, "load_15m": 100, "duration_seconds": 1000,
    "cpu_seconds": 10, "throttled_seconds": 10, "gpu_seconds": 10, "energy_joules": 1, "time_limit_seconds": 1000,
    "grace_seconds": 1000, "cpu_ratio": 100,
}  # fmt: skip
"""Readings with a fraction: how many parts of one are told apart."""
UNITS: dict[str, int] = {
    "clock_sm_hertz": 1_000_000, "clock_memory_hertz": 1_000_000, "memory_used_bytes": 1 << 20,
    "memory_available_bytes": 1 << 20, "swap_used_bytes": 1 << 20, "used_bytes": 1 << 20, "available_bytes": 1 << 20,
    "host_memory_bytes": 1 << 20, "clock_sm_max_hertz": 1_000_000, "clock_memory_max_hertz": 1_000_000,
}  # fmt: skip
"""Readings that are kept in whole units of so many; of less than half a unit, and of what does not fit evenly, the exact number."""
LOGARITHMIC = frozenset({
    "network_receive_bytes_per_second", "network_transmit_bytes_per_second", "disk_read_bytes_per_second",
    "disk_write_bytes_per_second", "pcie_receive_bytes_per_second", "pcie_transmit_bytes_per_second",
    "nvlink_receive_bytes_per_second", "nvlink_transmit_bytes_per_second",
})  # fmt: skip
"""Rates, to one per cent."""
STEPS = 64.0
"""Of a rate that grows e-fold."""
WORDS: tuple[str, ...] = (
    "version", "node", "sequence", "taken_at", "host", "gpus", "gpu_reason", "sensors", "index", "uuid", "model", "state",
    "reason", "utilization_ratio", "memory_utilization_ratio", "memory_used_bytes", "memory_total_bytes",
    "memory_reserved_bytes", "power_watts", "power_limit_watts", "energy_joules_total", "temperature_celsius", "fan_ratio",
    "clock_sm_hertz", "clock_memory_hertz", "performance_state", "pcie_generation", "pcie_width", "throttle_reasons",
    "encoder_utilization_ratio", "decoder_utilization_ratio", "ecc_corrected_total", "ecc_uncorrected_total", "xid_counts",
    "xid_last", "xid_last_at", "mig_enabled", "mig_instances", "processes", "unsupported", "allocations", "pid", "user",
    "command", "kind", "job", "project", "started_at", "visible", "mig_instance", "cpu_utilization_ratio", "cpu_count",
    "load_1m", "load_5m", "load_15m", "memory_available_bytes", "swap_total_bytes", "swap_used_bytes",
    "network_receive_bytes_per_second", "network_transmit_bytes_per_second", "disk_read_bytes_per_second",
    "disk_write_bytes_per_second", "filesystems", "mount", "total_bytes", "used_bytes", "available_bytes", "boot_at", "name",
    "ok", "duration_seconds", "error", "usage", "cost", "usd_per_hour", "cpu_seconds", "memory_peak_bytes",
    "memory_limit_bytes", "throttled_seconds", "io_read_bytes", "io_write_bytes", "gpu_seconds", "energy_joules",
    "pids_peak", "log_bytes", "log_dropped_lines", "id", "share", "attempt", "submitted_at", "ancestors", "parent_pid",
    "cpu_ratio", "host_memory_bytes", "pcie_receive_bytes_per_second", "pcie_transmit_bytes_per_second", "nvlinks",
    "nvlinks_down", "nvlink_receive_bytes_per_second", "nvlink_transmit_bytes_per_second", "links_at", "throttle_since",
    "clock_sm_max_hertz", "clock_memory_max_hertz", "persistence_enabled", "display_active", "compute_mode",
)  # fmt: skip
"""Part of the format: new ones are appended, none is ever taken away or moved."""

WHOLE = "\0"
"""Of a change: a dictionary takes the place of a list."""
_NEVER = object()
_NUMBER = {word: number for number, word in enumerate(WORDS)}
_TAKEN_AT = _NUMBER["taken_at"]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_parts_of = {_NUMBER[word]: parts for word, parts in PARTS.items() if word in _NUMBER}
_parts_of_words = {word: parts for word, parts in PARTS.items() if word not in _NUMBER}
_units_of = {_NUMBER[word]: unit for word, unit in UNITS.items()}
_logarithmic = frozenset(_NUMBER[word] for word in LOGARITHMIC)


def pack(message: msgspec.Struct) -> Doc:
    """A message as a document."""
    return _packed(msgspec.to_builtins(message, builtin_types=(datetime,)))


def _packed(raw: dict[str, Any]) -> Doc:
    made: dict[int | str, Any] = {}
    for word, value in raw.items():
        key = _NUMBER.get(word, word)
        made[key] = _value(key, value)
    return made


def _value(key: int | str, value: Any) -> Any:
    kind = type(value)
    if kind is float:
        return _whole(key, value)
    if kind is int:
        unit = _units_of.get(key)  # type: ignore[call-overload]
        return value if unit is None else round(value / unit) if value >= unit else {"": value} if value else 0
    if kind is dict:
        return _packed(value)
    if kind is list or kind is tuple:
        return [_packed(one) if type(one) is dict else one for one in value]
    if kind is datetime:
        return (value - _EPOCH) // _MILLISECOND if key == _TAKEN_AT else value.isoformat()
    return value


def _whole(key: int | str, value: float) -> int | float:
    parts = _parts_of.get(key) or _parts_of_words.get(key)  # type: ignore[call-overload]
    if parts is not None:
        return round(value * parts)
    if key in _logarithmic:
        return 1 + round(math.log(value) * STEPS) if value >= 1 else 0
    return value


def unpack(doc: Doc, kind: type[T]) -> T:
    """The message again. msgspec.ValidationError: it is none of that kind."""
    return msgspec.convert(_unpacked(doc), kind)


def _unpacked(doc: Doc) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in doc.items():
        kind = type(value)
        if kind is int:
            value = _reading(key, value)
        elif kind is dict:
            value = value[""] if "" in value else _unpacked(value)
        elif kind is list:
            value = [_unpacked(one) if type(one) is dict else one for one in value]
        made[WORDS[key] if type(key) is int else key] = value
    return made


def _reading(key: int | str, value: int) -> int | float | datetime:
    parts = _parts_of.get(key) or _parts_of_words.get(key)  # type: ignore[call-overload]
    if parts is not None:
        return value / parts if parts >= 1 else float(round(value / parts))
    if key in _units_of:
        return value * _units_of[key]  # type: ignore[index]
    if key in _logarithmic:
        return float(round(math.exp((value - 1) / STEPS))) if value else 0.0
    return _EPOCH + value * _MILLISECOND if key == _TAKEN_AT else value


def difference(old: Doc, new: Doc) -> Doc:
    """What turns `old` into `new`: of numbers the growth, of a dictionary what changed (None: it went), else the value."""
    change: dict[int | str, Any] = {}
    for key, value in new.items():
        before = old.get(key)
        if before == value and type(before) is type(value):
            continue
        change[key] = _changed(before, value)
    for key in old.keys() - new.keys():
        change[key] = None
    return change


def growth(old: msgspec.Struct, new: msgspec.Struct) -> Doc:
    """`difference(pack(old), pack(new))`, in a fifth of the time: only what differs is packed."""
    change: dict[int | str, Any] = {}
    fields, befores, values = _fields(type(new)), astuple(old), astuple(new)
    for place in compress(range(len(fields)), map(ne, befores, values)):
        (key, default, parts), before, value = fields[place], befores[place], values[place]
        if parts is not None and type(value) is float and type(before) is float:
            if grown := round(value * parts) - round(before * parts):
                change[key] = grown
        elif value == default:
            change[key] = None
        elif before == default:
            change[key] = _one(key, value)
        elif isinstance(value, msgspec.Struct):
            if found := growth(before, value):
                change[key] = found
        elif type(value) is tuple and len(value) == len(before) and all(isinstance(one, msgspec.Struct) for one in value):
            pairs = enumerate(zip(before, value, strict=True))
            if grew := {place: found for place, (a, b) in pairs if a != b and (found := growth(a, b))}:
                change[key] = grew
        elif (a := _one(key, before)) != (b := _one(key, value)):
            change[key] = _changed(a, b)
    return change


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[tuple[int | str, Any, float | None], ...]:
    """Of each field its key, the value with which it is left out, and into how many parts one is cut."""
    return tuple(
        (_NUMBER.get(field.name, field.name), _default(field), PARTS.get(field.name)) for field in msgspec.structs.fields(kind)
    )


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default is not msgspec.NODEFAULT:
        return field.default
    factory = field.default_factory
    return factory() if factory in (dict, list) else _NEVER


def _one(key: int | str, value: Any) -> Any:
    return _value(key, value if type(value) in (int, float) else msgspec.to_builtins(value, builtin_types=(datetime,)))


def _changed(before: Any, value: Any) -> Any:
    kind = type(value)
    if kind is not type(before):
        return {WHOLE: value} if kind is dict and type(before) is list else value
    if kind is int:
        return value - before
    if kind is dict:
        return difference(before, value)
    if kind is list and len(before) == len(value) and value and all(type(one) is dict for one in (*before, *value)):
        return {place: difference(a, b) for place, (a, b) in enumerate(zip(before, value, strict=True)) if a != b}
    return value


def patch(old: Doc, change: Doc) -> Doc:
    """The newer document; `old` stays as it is."""
    made = dict(old)
    for key, value in change.items():
        if value is None:
            made.pop(key, None)
        else:
            made[key] = _patched(made.get(key), value)
    return made


def copied(doc: Doc) -> Doc:
    """One that `alter` may change."""
    kind = type(doc)
    if kind is dict:
        return {key: copied(value) if type(value) in (dict, list) else value for key, value in doc.items()}
    return [copied(one) if type(one) in (dict, list) else one for one in doc]


def alter(doc: Doc, change: Doc) -> None:
    """`patch` in place, in a third of the time."""
    for key, value in change.items():
        if value is None:
            doc.pop(key, None)
            continue
        before, kind = doc.get(key), type(value)
        if kind is int and type(before) is int:
            doc[key] = before + value
        elif kind is dict and type(before) is dict:
            alter(before, value)
        elif kind is dict and type(before) is list and WHOLE not in value:
            for place, part in value.items():
                alter(before[place], part)
        elif kind in (dict, list):
            doc[key] = copied(_patched(before, value))
        else:
            doc[key] = value


def _patched(before: Any, value: Any) -> Any:
    kind = type(value)
    if kind is int:
        return before + value if type(before) is int else value
    if kind is dict:
        if type(before) is dict:
            return patch(before, value)
        if type(before) is list and WHOLE in value:
            return value[WHOLE]
        if type(before) is list:
            whole = list(before)
            for place, change in value.items():
                whole[place] = patch(whole[place], change)
            return whole
    return value
