"""A fetch as a row of steps: progress after every page, a place to resume at, one lost step not losing the others.

Invariant: what is resumed is the same request; nothing that a stopped fetch had not yielded is left out. A step without
permission, network or region is told as skipped and the others go on; a missing or expired key stops all.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from pricing.prices import Price
from pricing.sources import (
    BadAnswer,
    NoPermission,
    OnProgress,
    Progress,
    RefusedCredentials,
    Skipped,
    SourceFault,
    StaleToken,
    UnknownRegion,
    Unreachable,
    Wanted,
)

Mark = Any
"""Where a step stands: a value of JSON, from which the step can go on."""
VERSION = 1
LOST = (NoPermission, RefusedCredentials, UnknownRegion, Unreachable, BadAnswer)
"""Faults that end a step and not the fetch."""


class Batch(NamedTuple):
    """What one page gave."""

    prices: list[Price]
    skipped: Sequence[Skipped] = ()
    mark: Mark = None
    """Where to go on after it; None: the step is done."""


class Step(NamedTuple):
    """One part of a fetch."""

    key: str
    words: str
    run: Callable[[Mark], Iterator[Batch]]
    """From a mark on; None: from the start."""


class Lost(NamedTuple):
    """A step that could not be read."""

    step: Step
    fault: SourceFault


def run_steps(steps: list[Step], wanted: Wanted, on_progress: OnProgress) -> Iterator[Price]:
    """All steps in order. SourceFault when none of them could be read, or when the key is missing or expired."""
    first, mark = _resumed(steps, wanted)
    count = _Counter(len(steps), _print(wanted), on_progress)
    lost: list[Lost] = []
    for position in range(first, len(steps)):
        step = steps[position]
        try:
            yield from _run(step, position, mark, steps, count)
        except LOST as fault:
            lost.append(Lost(step, fault))
            if len(lost) == len(steps) - first:
                raise lost[0].fault from None
            count.lost(step, position, steps, fault)
        mark = None


def _run(step: Step, position: int, mark: Mark, steps: list[Step], count: _Counter) -> Iterator[Price]:
    try:
        for batch in step.run(mark):
            yield from count.yielded(batch)
            count.told(step, position, steps, batch)
    except StaleToken:
        if mark is None:
            raise
        yield from _run(step, position, None, steps, count)


def _resumed(steps: list[Step], wanted: Wanted) -> tuple[int, Mark]:
    """The step to start with, and where in it. StaleToken when the text is of another request."""
    if wanted.resume is None:
        return 0, None
    try:
        found = json.loads(wanted.resume)
        version, request, key, mark = found["version"], found["request"], found["step"], found["mark"]
    except (ValueError, TypeError, KeyError):
        raise StaleToken("The place to resume at cannot be read: start the refresh anew.") from None
    places = [position for position, step in enumerate(steps) if step.key == key]
    if version != VERSION or request != _print(wanted) or not places:
        raise StaleToken("The place to resume at is one of another refresh: start this one anew.")
    return places[0], mark


def _print(wanted: Wanted) -> str:
    """What tells requests apart; not the dates, which the marks keep."""
    names = None if wanted.instance_types is None else sorted(wanted.instance_types)
    text = json.dumps([wanted.regions, names, wanted.purchases])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class _Counter:
    """Counts for progress."""

    def __init__(self, total: int, request: str, on_progress: OnProgress) -> None:
        self._total = total
        self._request = request
        self._on_progress = on_progress
        self._pages = 0
        self._rows = 0

    def yielded(self, batch: Batch) -> Iterator[Price]:
        self._pages += 1
        for price in batch.prices:
            self._rows += 1
            yield price

    def told(self, step: Step, position: int, steps: list[Step], batch: Batch) -> None:
        done = position + (batch.mark is None)
        self._tell(step, done, self._resume(steps, done, batch.mark), tuple(batch.skipped))

    def lost(self, step: Step, position: int, steps: list[Step], fault: SourceFault) -> None:
        skipped = Skipped(step.words, str(fault))
        self._tell(step, position + 1, self._resume(steps, position + 1, None), (skipped,))

    def _resume(self, steps: list[Step], position: int, mark: Mark) -> str | None:
        if position >= len(steps):
            return None
        found = {"version": VERSION, "request": self._request, "step": steps[position].key, "mark": mark}
        return json.dumps(found)

    def _tell(self, step: Step, done: int, resume: str | None, skipped: tuple[Skipped, ...]) -> None:
        self._on_progress(Progress(step.words, done, self._total, self._pages, self._rows, resume, skipped))
