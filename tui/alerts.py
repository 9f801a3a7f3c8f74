"""All alerts of a fleet: those of the agents, priced, the cloud's notices, and a node that went silent (only a client sees it).

Invariant: an agent's alert is shown as it came, with the money added where the price is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from agent import wire
from tui import format as fmt
from tui.blast import length
from tui.fleet import Fleet, NodeView
from tui.fleet_jobs import countdown
from tui.records import money

_ORDER = {"critical": 0, "warning": 1}


def all_alerts(fleet: Fleet, now: float, at: datetime, others: Sequence[wire.Alert] = ()) -> list[wire.Alert]:
    """Critical ones first, then the oldest, and those that are paused at the end.

    `now` is monotonic, `at` the same moment in UTC; `others` are of no node.
    """
    found = [priced(view, alert) for view in fleet for alert in view.alerts.values()]
    found += [_held_back(view, silent, at) for view in fleet if (silent := silence(view, now, at))]
    found += [_held_back(view, noticed, at) for view in fleet if (noticed := notice_alert(view, now))]
    found += others
    return sorted(found, key=lambda alert: (alert.paused_until is not None, _ORDER[alert.severity], alert.since, alert.key))


def priced(view: NodeView, alert: wire.Alert) -> wire.Alert:
    """Adds what goes to waste per hour: the GPU's part of the price for an alert about a GPU."""
    price = view.usd_per_hour
    named = msgspec.structs.replace(alert, node=view.name)
    if alert.usd_per_hour is not None or price is None or alert.gpu is None or not view.uses:
        return named
    return msgspec.structs.replace(named, usd_per_hour=money(price / len(view.uses)))


def covering(view: NodeView, rule: str, gpu: str | None) -> tuple[wire.AlertPause, ...]:
    """The pauses of the node that an alert of this rule and GPU is under, as the node last told."""
    return tuple(one for one in view.info.pauses if one.covers(rule, gpu)) if view.info is not None else ()


def severity_text(alert: wire.Alert) -> str:
    """`critical`, `warning`, `paused`."""
    return alert.severity if alert.paused_until is None else "paused"


def message_text(alert: wire.Alert, at: datetime) -> str:
    """What to do; of a paused one first for how long it is, and why."""
    if alert.paused_until is None:
        return alert.message
    left = max(0.0, (alert.paused_until - at).total_seconds())
    return f"paused for {length(left)}{f' ({alert.paused_reason})' if alert.paused_reason else ''}: {alert.message}"


def _held_back(view: NodeView, alert: wire.Alert, at: datetime) -> wire.Alert:
    """An alert that only a client sees, paused as its node's own are."""
    until = [one for one in covering(view, alert.rule, alert.gpu) if one.until > at]
    if not until:
        return alert
    last = max(until, key=lambda one: one.until)
    return msgspec.structs.replace(alert, paused_until=last.until, paused_reason=last.reason)


def silence(view: NodeView, now: float, at: datetime) -> wire.Alert | None:
    """The alert of a node that has not been heard for too long."""
    if view.state(now) != "lost":
        return None
    age = view.age_seconds(now)
    since = at - timedelta(seconds=age) if age is not None else at
    return wire.Alert(
        key=f"node_silent:{view.name}",
        rule="node_silent",
        severity="critical",
        node=view.name,
        message=f"Nothing heard from {view.name}: {view.error or 'its stream is silent'}",
        reading="never heard" if age is None else f"silent for {fmt.age(age)}",
        threshold=f"{view.silent_seconds:g} s",
        since=since,
        fired_at=since,
        usd_per_hour=money(view.usd_per_hour),
    )


def notice_alert(view: NodeView, now: float) -> wire.Alert | None:
    """The cloud's notice that is in force, with the time that is left."""
    if view.notice is None:
        return None
    told, at = view.notice.notice, view.utc(now)
    left = view.notice.left_seconds(at)
    return wire.Alert(
        key=f"cloud_notice:{view.name}",
        rule="cloud_notice",
        severity="critical" if view.notice.hard else "warning",
        node=view.name,
        message=told.message,
        reading=told.kind if left is None else f"{told.kind} in {countdown(left)}",
        threshold=None,
        since=told.noticed_at,
        fired_at=told.noticed_at,
    )
