"""What a training says in its log: lines that are one JSON object with a whole number `step`.

Invariant: a line is a job's and may be anything: what is too long, too deep, cut or no object is no line of ours, and no number
in it can harm the reader.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

LONGEST_LINE = 64 * 1024
LONGEST_NAME = 128
LONGEST_TEXT = 200
MOST_FACTS = 64
LARGEST_STEP = 2**53 - 1
TIMES = ("time", "timestamp", "wall_time", "ts")
"""Names under which programs say when: seconds since 1970."""
_EARLIEST, _LATEST = 1e9, 1e11


class Told(NamedTuple):
    """One line. `event`: `start`, `end` or another word; then `facts` is what it says, and it has no values."""

    step: int
    seconds: float | None
    values: dict[str, float]
    event: str | None = None
    facts: Mapping[str, str] = MappingProxyType({})


def parse_line(line: bytes) -> Told | None:
    """None: it is no such line."""
    if not line.startswith(b"{") or b'"step"' not in line or len(line) > LONGEST_LINE:
        return None
    found = _object(line)
    if found is None:
        return None
    step = _whole(found.pop("step", None))
    if step is None:
        return None
    event = found.pop("event", None)
    if isinstance(event, str):
        return Told(step, None, {}, clean_text(event), _facts(found))
    seconds = None
    for name in TIMES:
        value = found.get(name)
        if isinstance(value, (int, float)) and _EARLIEST <= value <= _LATEST:
            seconds = float(found.pop(name))
            break
    values = {clean_text(name): number for name, value in found.items() if (number := _number(value)) is not None}
    return Told(step, seconds, values) if values else None


def _object(line: bytes) -> dict[str, Any] | None:
    """Python's reader takes what JSON has not, such as NaN."""
    try:
        found = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            return None
    return found if isinstance(found, dict) else None


def _whole(value: object) -> int | None:
    if isinstance(value, float) and value.is_integer() and abs(value) <= LARGEST_STEP:
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST_STEP else None


def _number(value: object) -> float | None:
    """NaN for what stands for no number; None for what is none (texts, lists)."""
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.nan


def _facts(found: dict[str, Any]) -> dict[str, str]:
    facts = {}
    for name, value in list(found.items())[:MOST_FACTS]:
        if isinstance(value, bool):
            facts[clean_text(name)] = "yes" if value else "no"
        elif isinstance(value, (str, int, float)):
            facts[clean_text(name)] = clean_text(_text(value), LONGEST_TEXT)
    return facts


def _text(value: str | float) -> str:
    try:
        return str(value)
    except ValueError:  # a whole number of thousands of digits
        return "a huge number"


def clean_text(text: str, longest: int = LONGEST_NAME) -> str:
    """Such that it can be sent as JSON."""
    cut = text[:longest]
    return cut if cut.isascii() else cut.encode("utf-8", "replace").decode()
