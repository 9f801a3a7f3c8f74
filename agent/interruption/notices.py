"""What the cloud has announced and not taken back: findings of polls in, notices to tell out.

Invariant: an announcement is told once, again only if its time becomes another, and once more when it is withdrawn.
The time that is left runs by a clock that nobody sets; `at` is told in this node's own clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from agent.wire import Notice, NoticeKind

SAME_SECONDS = 1.0
SKEW_SECONDS = 5.0
"""Clocks closer than this count as the same: a `Date` header is whole seconds, and an answer takes time."""
ENDING = ("terminate", "stop", "hibernate")
_RANK: dict[NoticeKind, int] = {"hibernate": 0, "terminate": 0, "stop": 0, "maintenance": 1, "rebalance": 2}


class Finding(NamedTuple):
    """One announcement as one answer tells it."""

    id: str
    """The cloud's own, or a fixed word where there can be but one."""
    kind: NoticeKind
    message: str
    at: datetime | None = None
    """As the cloud says, by its clock."""
    said_at: datetime | None = None
    """The cloud's clock when it answered."""
    lead_seconds: float | None = None
    """Where it says no time but promises so much."""


class Source(NamedTuple):
    """One question of a cloud. `poll` gives all that is announced now, or raises Unanswered."""

    name: str
    poll: Callable[[], tuple[Finding, ...]]
    period_seconds: float
    longest_wait_seconds: float
    """Between two tries while it fails: less than the notice that the cloud promises."""


class _Kept(NamedTuple):
    notice: Notice
    said: datetime | None
    deadline: float | None


class NoticeBook:
    """The announcements in force. `cloud` as in the identity. Not thread-safe."""

    def __init__(self, cloud: str) -> None:
        self._cloud = cloud
        self._kept: dict[tuple[str, str], _Kept] = {}

    def update(self, source: str, findings: Sequence[Finding], now: datetime, clock: float) -> list[Notice]:
        """The notices to tell after `source` has answered. `clock`: seconds of a clock that never steps."""
        told = []
        for finding in findings:
            known = self._kept.get((source, finding.id))
            if known is None or _moved(known, finding):
                kept = self._kept[source, finding.id] = self._taken(finding, known, now, clock)
                told.append(kept.notice)
        here = {(source, finding.id) for finding in findings}
        for key in [key for key in self._kept if key[0] == source and key not in here]:
            told.append(msgspec.structs.replace(self._kept.pop(key).notice, ended_at=now))
        return told

    def in_force(self) -> list[Notice]:
        """The most urgent one first."""
        return [kept.notice for kept in sorted(self._kept.values(), key=_urgency)]

    def seconds_left(self, id: str | None, clock: float) -> float | None:
        """Until it happens, at least 0; None: no time was said, or it is not in force."""
        deadlines = [kept.deadline for kept in self._kept.values() if kept.notice.id == id and kept.deadline is not None]
        return max(0.0, min(deadlines) - clock) if deadlines else None

    def _taken(self, finding: Finding, known: _Kept | None, now: datetime, clock: float) -> _Kept:
        lead = _lead(finding, now)
        notice = Notice(
            cloud=self._cloud,
            kind=finding.kind,
            at=None if lead is None else now + timedelta(seconds=lead),
            noticed_at=now if known is None else known.notice.noticed_at,
            id=finding.id,
            message=finding.message,
        )
        return _Kept(notice, finding.at, None if lead is None else clock + max(0.0, lead))


def _lead(finding: Finding, now: datetime) -> float | None:
    if finding.at is None:
        return finding.lead_seconds
    said = finding.said_at
    skewed = said is not None and abs((said - now).total_seconds()) > SKEW_SECONDS
    return (finding.at - (said if skewed and said is not None else now)).total_seconds()


def _moved(known: _Kept, finding: Finding) -> bool:
    if finding.at is None or finding.kind != known.notice.kind:
        return finding.kind != known.notice.kind
    return known.said is None or abs((finding.at - known.said).total_seconds()) > SAME_SECONDS


def _urgency(kept: _Kept) -> tuple[int, float]:
    return _RANK[kept.notice.kind], float("inf") if kept.deadline is None else kept.deadline
