"""Alerts: conditions that hold, or held within the last hour."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from agent.wire.base import Message


Severity = Literal["warning", "critical"]


class Alert(Message, kw_only=True):
    """One condition that holds or held. `key` (rule + subject) is stable, so a client keeps one row for it."""

    key: str
    rule: str
    """`gpu_idle_held`, `gpu_lost`, `gpu_hot`, `gpu_throttled`, `gpu_xid`, `disk_full`, `node_silent`."""
    severity: Severity
    node: str
    gpu: str | None = None
    """The GPU's uuid where the alert is about one."""
    message: str
    """A sentence a person can act on."""
    reading: str | None = None
    """The reading that fired it, with its unit: `91 °C`, `12 %`."""
    threshold: str | None = None
    since: datetime
    """When the condition began to hold."""
    fired_at: datetime
    ended_at: datetime | None = None
    """None while it is active."""
    holders: tuple[str, ...] = ()
    usd_per_hour: str | None = None
    """What goes to waste per hour while it lasts; the client fills it in from its prices."""
    paused_until: datetime | None = None
    """It holds, and somebody said that it is to call nobody before this time; None: it is not paused."""
    paused_reason: str | None = None


class AlertList(Message, kw_only=True):
    """`GET /v1/alerts`: active ones first, then those that ended within the last hour."""

    node: str
    alerts: tuple[Alert, ...]
