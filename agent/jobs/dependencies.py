"""Jobs that wait for other jobs: `ID` (must have ended well), `any:ID` (must have ended), `notok:ID` (must have failed).

Invariant: a job can only name jobs that exist when it is submitted, so no circle can come to be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec

Outcome = Literal["well", "badly", "gone"]
"""How a job ended: `exit:0`, anything else, or nothing is known of it any more."""


class Need(msgspec.Struct, frozen=True):
    kind: Literal["well", "any", "notok"]
    id: str


class Answer(msgspec.Struct, frozen=True):
    """`never`: it can no longer be met, so the job is to be ended as `cancelled` with `reason` as its evidence."""

    standing: Literal["met", "waits", "never"]
    reason: str | None = None


def parse(after: Sequence[str]) -> tuple[Need, ...]:
    """`JobSpec.after` -> needs. JobRefused: not of one of the three forms, or no job id."""
    raise NotImplementedError


def check(after: Sequence[str], known: Callable[[str], bool], own: str | None = None) -> tuple[Need, ...]:
    """As `parse`, and every job must be `known`. JobRefused names the one that is not."""
    raise NotImplementedError


def outcome(cause: str | None) -> Outcome:
    """Of a job that has ended with this cause."""
    return "well" if cause == "exit:0" else "badly"


def look(needs: Sequence[Need], outcomes: Mapping[str, Outcome]) -> Answer:
    """Where a waiting job stands: `outcomes` has the jobs that ended."""
    raise NotImplementedError
