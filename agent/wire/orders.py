"""What a person orders of a whole node: to drain it, and to pause its alerts for a while.

Invariant: an order says who gave it, when, and why where that was told; a pause always has an end.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec

from agent.wire.base import Message

LONGEST_REASON = 200
LONGEST_PAUSE_SECONDS = 30 * 86_400
Reason = Annotated[str, msgspec.Meta(max_length=LONGEST_REASON)]
"""One line for people."""
Who = Annotated[str, msgspec.Meta(max_length=64)]
"""The login name of whoever asks, as their program says it: it is shown, and proves nothing."""
PauseSeconds = Annotated[float, msgspec.Meta(ge=1, le=LONGEST_PAUSE_SECONDS)]


class Drain(Message, kw_only=True):
    """A node that starts no job any more; those that run go on, and new ones wait. `NodeInfo.drain`."""

    since: datetime
    by: str
    """The name of the token, and who used it where that was said: `ada (token ops)`."""
    reason: str | None = None


class AlertPause(Message, kw_only=True):
    """Alerts that are not to call anybody until then: of the whole node, or of one rule, or of one GPU. `NodeInfo.pauses`."""

    id: str
    rule: str | None = None
    """None: all rules."""
    gpu: str | None = None
    """UUID; None: also those that are about no GPU."""
    since: datetime
    until: datetime
    by: str
    reason: str | None = None

    def covers(self, rule: str, gpu: str | None) -> bool:
        """Whether it is about an alert of this rule and GPU."""
        return self.rule in (None, rule) and self.gpu in (None, gpu)


class AlertPauses(Message, kw_only=True):
    """`GET /v1/alerts/pauses`: those in force, the oldest first."""

    node: str
    pauses: tuple[AlertPause, ...]


class DrainOrder(Message, kw_only=True, forbid_unknown_fields=True):
    """Body of `PUT /v1/drain`."""

    reason: Reason | None = None
    who: Who | None = None


class PauseOrder(Message, kw_only=True, forbid_unknown_fields=True):
    """Body of `POST /v1/alerts/pauses`. One for the same rule and GPU replaces the one before."""

    seconds: PauseSeconds
    """From now, by the node's clock."""
    rule: str | None = None
    gpu: str | None = None
    reason: Reason | None = None
    who: Who | None = None
