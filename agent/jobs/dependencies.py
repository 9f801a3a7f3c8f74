"""Jobs that wait for other jobs: `ID` (must have ended well), `any:ID` (must have ended), `notok:ID` (must have failed).

Invariant: a job can only name jobs that exist when it is submitted, so no circle can come to be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, cast

import msgspec

from agent.errors import JobRefused
from agent.jobs.ids import is_job_id

Outcome = Literal["well", "badly", "gone"]
"""How a job ended: `exit:0`, anything else, or nothing is known of it any more."""
Kind = Literal["well", "any", "notok"]
MOST_NEEDS = 100
_MEETS: dict[Kind, tuple[Outcome, ...]] = {"well": ("well",), "any": ("well", "badly", "gone"), "notok": ("badly",)}


class Need(msgspec.Struct, frozen=True):
    kind: Kind
    id: str


class Answer(msgspec.Struct, frozen=True):
    """`never`: it can no longer be met, so the job is to be ended as `cancelled` with `reason` as its evidence."""

    standing: Literal["met", "waits", "never"]
    reason: str | None = None


MET = Answer("met")


def parse(after: Sequence[str]) -> tuple[Need, ...]:
    """`JobSpec.after` -> needs, each once. JobRefused: not of one of the three forms, no job id, or too many."""
    if len(after) > MOST_NEEDS:
        raise JobRefused(f"a job can wait for at most {MOST_NEEDS} others, not for {len(after)}")
    return tuple(dict.fromkeys(_need(text) for text in after))


def _need(text: str) -> Need:
    kind, colon, id = text.rpartition(":")
    if (colon and kind not in ("any", "notok")) or not is_job_id(id):
        raise JobRefused(f"`after` takes the id of a job, any:ID or notok:ID, not {text[:60]!r}")
    return Need(cast(Kind, kind) if colon else "well", id)


def check(after: Sequence[str], known: Callable[[str], bool], own: str | None = None) -> tuple[Need, ...]:
    """As `parse`, and every job must be `known` and another than `own`. JobRefused names the one that is not."""
    needs = parse(after)
    for need in needs:
        if need.id == own:
            raise JobRefused(f"job {own} cannot wait for itself")
        if not known(need.id):
            raise JobRefused(f"there is no job {need.id} on this node to wait for; `rackrate jobs` lists those it has")
    return needs


def outcome(cause: str | None) -> Outcome:
    """Of a job that has ended with this cause."""
    return "well" if cause == "exit:0" else "badly"


def look(needs: Sequence[Need], outcomes: Mapping[str, Outcome]) -> Answer:
    """Where a waiting job stands: `outcomes` has the jobs that ended."""
    waits: Need | None = None
    for need in needs:
        ended = outcomes.get(need.id)
        if ended is None:
            waits = waits or need
        elif ended not in _MEETS[need.kind]:
            return Answer("never", _never(need, ended))
    return MET if waits is None else Answer("waits", _waits(waits))


def _waits(need: Need) -> str:
    return {
        "well": f"waits for job {need.id} to end well",
        "any": f"waits for job {need.id} to end",
        "notok": f"waits for job {need.id}, and starts only if that fails",
    }[need.kind]


def _never(need: Need, ended: Outcome) -> str:
    if ended == "gone":
        return f"nothing is known any more of its dependency {need.id}, so it will never start"
    if need.kind == "notok":
        return f"its dependency {need.id} ended well and should have failed, so it will never start"
    return f"its dependency {need.id} failed, so it will never start"
