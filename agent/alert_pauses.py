"""Alerts that are to call nobody for a while: of the whole node, of one rule, of one GPU.

Invariant: a paused alert is told as paused and never left out; a pause always ends by itself, also over a restart; it is on
the disk before anybody hears of it. A file of pauses that cannot be read pauses nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from agent import wire
from agent.alert_rules import RuleName
from agent.errors import JobRefused, JobUnknown, StateDirectoryError
from agent.kept_order import OrderFile

FILE = "alert_pauses.json"
MOST = 100
CLIENT_RULES = ("node_silent", "cloud_notice")
"""Alerts that only a client sees; it pauses them itself, by what the node says."""
RULES: tuple[str, ...] = (*RuleName.__args__, *CLIENT_RULES)


class AlertPausing:
    """`folder` None: kept in memory alone (a simulated node). Belongs to the event loop."""

    def __init__(self, folder: Path | None = None, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._file = OrderFile(folder, FILE, "list of pauses", tuple[wire.AlertPause, ...])
        self._clock = clock
        self.now: tuple[wire.AlertPause, ...] = self._read()
        self.expire()

    def shown(self, alert: wire.Alert) -> wire.Alert:
        """The alert with the pause that lasts longest; as it is where none covers it."""
        if not self.now or alert.ended_at is not None:
            return alert
        covering = [one for one in self.now if one.covers(alert.rule, alert.gpu)]
        if not covering:
            return alert
        last = max(covering, key=lambda one: one.until)
        return msgspec.structs.replace(alert, paused_until=last.until, paused_reason=last.reason)

    def pause(self, order: wire.PauseOrder, by: str, reason: str | None, gpus: tuple[str, ...]) -> wire.AlertPause:
        """`gpus`: UUIDs that there are. JobRefused: no such rule, or too many; JobUnknown: no such GPU."""
        if order.rule is not None and order.rule not in RULES:
            raise JobRefused(f"there is no rule {order.rule[:40]!r}; there are {', '.join(RULES)}")
        if order.gpu is not None and order.gpu not in gpus:
            raise JobUnknown(f"there is no GPU {order.gpu[:80]!r} on this node")
        since = self._clock()
        new = wire.AlertPause(
            id=secrets.token_hex(4), rule=order.rule, gpu=order.gpu, since=since, by=by, reason=reason,
            until=since + timedelta(seconds=order.seconds),
        )  # fmt: skip
        others = tuple(one for one in self.now if (one.rule, one.gpu) != (new.rule, new.gpu))
        if len(others) >= MOST:
            raise JobRefused(f"{MOST} pauses are in force already; end some, or pause the whole node")
        self._keep((*others, new))
        return new

    def end(self, id: str | None = None) -> tuple[wire.AlertPause, ...]:
        """Ends one, or all; those that it ended. JobUnknown: there is none of this id."""
        ended = tuple(one for one in self.now if id in (None, one.id))
        if id is not None and not ended:
            raise JobUnknown(f"there is no pause {id[:40]!r}; it may have ended by itself")
        if ended:
            self._keep(tuple(one for one in self.now if one not in ended))
        return ended

    def expire(self) -> bool:
        """Forgets those whose time is over; whether there were any. What cannot be written is tried with the next change."""
        if not self.now:
            return False
        at = self._clock()
        left = tuple(one for one in self.now if one.until > at)
        if len(left) == len(self.now):
            return False
        self.now = left
        try:
            self._keep(left)
        except StateDirectoryError:
            pass
        return True

    def _keep(self, pauses: tuple[wire.AlertPause, ...]) -> None:
        self._file.keep(pauses)
        self.now = pauses

    def _read(self) -> tuple[wire.AlertPause, ...]:
        try:
            found = self._file.read() or ()
        except StateDirectoryError:
            return ()
        return () if any(one.until.tzinfo is None for one in found) else found
