"""Whether and when an attempt is followed by another.

Invariant: what a person or a limit stopped is never started again; what the cloud or a higher job interrupted is, without
using up a retry. Pure: the jitter comes from the `rng` that is given.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from datetime import datetime, timedelta

from agent import wire

DEFAULT_RETRY_ON = ("exit", "signal", "lost", "node_reboot")
NEVER = frozenset({"cancelled", "time_limit", "budget", "idle_stop", "start_error", "unkillable"})
INTERRUPTED = frozenset({"preempted", "spot_reclaim"})
FIRST_PAUSE_SECONDS = 10.0
LONGEST_PAUSE_SECONDS = 600.0
MOST_RETRIES = 1000
_WORDS = re.compile(r"exit(:[1-9][0-9]{0,2})?|signal(:[1-9][0-9]?)?|oom|lost|node_reboot|preempted|spot_reclaim")


def next_try(
    spec: wire.JobSpec,
    cause: str,
    retries_used: int,
    now: datetime,
    rng: random.Random,
    *,
    started: bool = True,
    stop_cause: str | None = None,
) -> datetime | None:
    """When the job may start again, or None: it has ended for good.

    `started`: `Verdict.started`; an attempt whose shim never began is begun again at once. `stop_cause`: the row's
    intent: a job that ended by itself just before it would have been cancelled is not tried again.
    """
    if cause in NEVER or stop_cause in NEVER or cause == "exit:0":
        return None
    if not uses_retry(spec, cause, started=started):
        return now
    if retries_used >= spec.retries or not _wanted(cause, DEFAULT_RETRY_ON if spec.retry_on is None else spec.retry_on):
        return None
    return now + timedelta(seconds=pause_seconds(retries_used, rng))


def uses_retry(spec: wire.JobSpec, cause: str, *, started: bool = True) -> bool:
    """Whether the next attempt after this cause counts against `spec.retries`: for `store.end_attempt`."""
    return started and not (spec.interruptible and cause in INTERRUPTED)


def pause_seconds(retries_used: int, rng: random.Random) -> float:
    """Doubles with each retry up to ten minutes; half of it is chance, so that many jobs do not come back at once."""
    longest = min(FIRST_PAUSE_SECONDS * 2 ** min(retries_used, 30), LONGEST_PAUSE_SECONDS)
    return longest * (0.5 + rng.random() / 2)


def _wanted(cause: str, retry_on: Sequence[str]) -> bool:
    return cause in retry_on or cause.partition(":")[0] in retry_on


def refusal(retry_on: Sequence[str] | None, retries: int) -> str | None:
    """Why these cannot be used, in a sentence; for the submit."""
    if not 0 <= retries <= MOST_RETRIES:
        return f"retries go from 0 to {MOST_RETRIES}, not {retries}"
    for word in retry_on or ():
        if word in NEVER:
            return f"a job that ended as `{word}` is never tried again, so `retry_on` cannot name it"
        if not _WORDS.fullmatch(word):
            return f"`retry_on` knows exit, exit:N, signal, signal:N, oom, lost, node_reboot, preempted and spot_reclaim, not {word[:40]!r}"
    return None
