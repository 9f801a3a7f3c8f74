"""What jobs claim of a GPU: the agent gave it to them, so it is theirs, whatever the driver sees of them.

Invariant: a claimed share is its job's from the moment it is claimed, used or not. Only what is left over can belong to
processes of others, or be idle; a GPU that is lost is nobody's, claimed or not.

Of a claimed GPU these are no holders of the rest: the claimants' own processes, the MPS server that serves them, and
programs that only draw. The driver not telling its processes makes the rest `held` by nobody known.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import PurePosixPath
from typing import NamedTuple

from agent.meter_holders import (
    HOST,
    HUNG_DRIVER,
    MISSING,
    NO_DRIVER,
    WHOLE,
    Holder,
    Part,
    Tenure,
    holders_of,
    shares_of,
    tenure_of,
)
from agent.wire import Gpu, Process

MPS_SERVER = "nvidia-cuda-mps-server"


class Claim(NamedTuple):
    """A job's share of one GPU, in millionths: 1,000,000 is all of it."""

    user: str | None
    project: str | None
    job: str
    share: int


def checked(claims: Mapping[str, tuple[Claim, ...]], projects: Mapping[str, str]) -> dict[str, tuple[Claim, ...]]:
    """The claims with each user's project where none is named. ValueError: a share out of range, or above 1 in sum."""
    for uuid, own in claims.items():
        if any(not 0 < one.share <= WHOLE for one in own) or sum(one.share for one in own) > WHOLE:
            raise ValueError(f"claims of {uuid} must be 1 to {WHOLE} millionths each and {WHOLE} in all: {own}")
        if len({one.job for one in own}) < len(own):
            raise ValueError(f"a job claims {uuid} twice: {own}")
    return {uuid: tuple(_with_project(one, projects) for one in own) for uuid, own in claims.items() if own}


def _with_project(claim: Claim, projects: Mapping[str, str]) -> Claim:
    if claim.project is not None or claim.user is None:
        return claim
    return claim._replace(project=projects.get(claim.user))


def tenure_now(
    uuid: str | None,
    gpus: Mapping[str, Gpu],
    claims: Mapping[str, tuple[Claim, ...]],
    projects: Mapping[str, str],
    hung: bool,
) -> Tenure:
    """What a GPU (None: the host) is by the newest readings; `hung`: they are too old to be believed."""
    if uuid is None:
        return HOST
    if hung:
        return HUNG_DRIVER
    gpu = gpus.get(uuid)
    if gpu is None:
        return MISSING if gpus else NO_DRIVER
    own = claims.get(uuid)
    return claimed_tenure(gpu, own, projects) if own else tenure_of(gpu, projects)


def claimed_tenure(gpu: Gpu, claims: tuple[Claim, ...], projects: Mapping[str, str]) -> Tenure:
    """What one GPU is while `claims` (checked ones) are in force."""
    bare = tenure_of(gpu, projects)
    if not claims or not bare.measured:
        return bare
    if gpu.processes is None:
        return _divided(claims, (Holder(),))
    jobs = {claim.job for claim in claims}
    others = tuple(one for one in gpu.processes if one.job not in jobs and not _serves(one))
    return _divided(claims, holders_of(others, projects) if others else ())


def _serves(process: Process) -> bool:
    if process.kind == "graphics":
        return True
    program = (process.command or "").partition(" ")[0]
    return PurePosixPath(program).name == MPS_SERVER


@lru_cache(maxsize=1024)
def _divided(claims: tuple[Claim, ...], others: tuple[Holder, ...]) -> Tenure:
    parts = [Part("held", Holder(one.user, one.project, one.job), one.share) for one in claims]
    rest = WHOLE - sum(one.share for one in claims)
    if others:
        shares = shares_of(rest, len(others))
        parts += [Part("held", holder, share) for holder, share in zip(others, shares, strict=True) if share]
    elif rest:
        parts.append(Part("idle", share=rest))
    return Tenure(tuple(parts))
