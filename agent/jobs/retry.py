"""Whether and when an attempt is followed by another.

Invariant: what a person or a limit stopped is never started again; what the cloud or a higher job interrupted is, without
using up a retry. Pure: the jitter comes from the `rng` that is given.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import datetime

from agent import wire

DEFAULT_RETRY_ON = ("exit", "signal", "lost", "node_reboot")


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
    raise NotImplementedError


def uses_retry(spec: wire.JobSpec, cause: str, *, started: bool = True) -> bool:
    """Whether the next attempt after this cause counts against `spec.retries`: for `store.end_attempt`."""
    raise NotImplementedError


def refusal(retry_on: Sequence[str] | None, retries: int) -> str | None:
    """Why these cannot be used, in a sentence; for the submit."""
    raise NotImplementedError
