"""Ids of jobs, and the names of their attempts' units.

Invariant: only a text that `wire.JOB_ID` matches wholly becomes part of a path or a cgroup; the ids of one `IdSource`
sort in the order in which they were made and none is made twice, also when the clock goes back.

An id is 12 characters of Crockford's base 32 in lower case: 7 of time (eighths of a second since 1970, enough until
2106) and 5 of chance.
"""

from __future__ import annotations

import random
import re
import secrets
import time
from collections.abc import Callable

from agent import wire
from agent.errors import JobUnknown

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
TICKS_PER_SECOND = 8
_TIME_CHARACTERS = 7
_CHANCE_CHARACTERS = 5
_CHANCES = 32**_CHANCE_CHARACTERS

_ID = re.compile(wire.JOB_ID, re.ASCII)
_UNIT = re.compile(rf"job-({wire.JOB_ID})-([1-9][0-9]{{0,8}})", re.ASCII)
_SHOWN = 40


class IdSource:
    """Makes ids. `clock` in seconds since 1970."""

    def __init__(self, clock: Callable[[], float] = time.time, rng: random.Random | None = None) -> None:
        self._clock = clock
        self._rng = rng if rng is not None else secrets.SystemRandom()
        self._last = -1

    def new(self) -> str:
        made = int(self._clock() * TICKS_PER_SECOND) * _CHANCES + self._rng.randrange(_CHANCES)
        # Within one tick the next id follows the last one: chance alone would break the order, and now and then repeat.
        self._last = made if made // _CHANCES > self._last // _CHANCES else self._last + 1
        return encode(self._last)


def encode(number: int) -> str:
    """The number in 12 characters; its highest bits are lost above 60."""
    return "".join(ALPHABET[number >> shift & 31] for shift in range(5 * (_TIME_CHARACTERS + _CHANCE_CHARACTERS - 1), -1, -5))


def is_job_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def checked(text: str) -> str:
    """The text, if it is a job id. JobUnknown says in a sentence that it is none, whatever it is."""
    if is_job_id(text):
        return text
    shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
    raise JobUnknown(f"{shown!r} is not the id of a job; ids have 12 letters and digits, as `rackrate jobs` prints them")


def unknown(id: str) -> JobUnknown:
    """The error for an id of the right form that nobody has."""
    return JobUnknown(f"there is no job {id} on this node; `rackrate jobs` lists those it has")


def unit_name(id: str, attempt: int) -> str:
    """Name of an attempt's cgroup and scope."""
    return f"job-{checked(id)}-{attempt}"


def parse_unit(name: str) -> tuple[str, int] | None:
    """(job, attempt) of a unit name, None for any other text."""
    found = _UNIT.fullmatch(name)
    return None if found is None else (found.group(1), int(found.group(found.re.groups)))
