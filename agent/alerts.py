"""Alerts: conditions of a node that a person should act on, from the first reading that shows them to their end.

Invariant: a reading that is not known never fires an alert, and never ends one at once.

How a condition lives: a reading at or past the threshold begins it (`since`). It fires when such readings have held,
without one that is clear of it, for the rule's time; time in which the reading was not known, or in which there was no
sample for over MAX_GAP_SECONDS, does not count. It ends with the first reading that is clear of the threshold by the
hysteresis (`gpu_throttled`: after `throttle_clear_seconds` without). Unknown readings keep it as it is for
`unknown_seconds`; then it ends, for nobody knows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation

import msgspec

from agent import wire
from agent.alert_rules import (
    Finding,
    Level,
    Thresholds,
    gpu_findings,
    host_findings,
    missing,
    sensor_failing,
    users_of,
    xid_seen,
)
from agent.meter_driver import GPU_SENSORS, reading_age_ms

__all__ = ["AlertEngine", "Thresholds"]

MAX_GAP_SECONDS = 120.0
OLD_READING_MS = 5_000
"""GPU readings older than this (the driver hangs) count as not known."""
REFRESH_SECONDS = 60.0
"""How often an active alert's texts are brought up to date."""
RECENT = timedelta(hours=1)


class _Condition:
    """One key's way from the first reading past its threshold to its end. Times in seconds, or UTC."""

    __slots__ = ("alert", "clear_seconds", "held_seconds", "holders", "last_at", "level", "refreshed_at", "since", "unknown_seconds")

    def __init__(self, since: datetime, holders: tuple[str, ...], at: datetime) -> None:
        self.since = since
        self.holders = holders
        self.last_at = at
        self.level = Level.ABOVE
        self.held_seconds = 0.0
        self.clear_seconds = 0.0
        self.unknown_seconds = 0.0
        self.alert: wire.Alert | None = None
        self.refreshed_at = at


class AlertEngine:
    """The alerts of one node. Not thread-safe: the agent's loop owns it.

    `usd_per_hour`: the node's configured price (a decimal string); a GPU's alert costs its part of it.
    """

    def __init__(self, node: str, thresholds: Thresholds, usd_per_hour: str | None = None) -> None:
        self._node = node
        self._limits = thresholds
        self._price = _price(usd_per_hour)
        self._conditions: dict[str, _Condition] = {}
        self._ended: deque[wire.Alert] = deque(maxlen=1000)
        self._seen: dict[str, wire.Gpu] = {}
        self._users: dict[str, tuple[str, ...]] = {}
        self._xids: dict[tuple[str, int], tuple[int, datetime]] = {}
        self._now: datetime | None = None

    def evaluate(self, sample: wire.Sample, now: datetime | None = None) -> list[wire.Alert]:
        """What fired, changed or ended with this sample. `now` (UTC) defaults to the sample's time."""
        at = self._now = sample.taken_at if now is None else now
        findings = {one.key: one for one in self._findings(sample, at) if one.rule not in self._limits.disabled}
        changes = [self._unseen(key, at) for key in [*self._conditions] if key not in findings]
        changes += [self._judge(finding, at) for finding in findings.values()]
        return [alert for alert in changes if alert is not None]

    def active(self) -> tuple[wire.Alert, ...]:
        """Those that hold now, the oldest first."""
        alerts = [condition.alert for condition in self._conditions.values() if condition.alert is not None]
        return tuple(sorted(alerts, key=lambda alert: alert.fired_at))

    def recent(self) -> tuple[wire.Alert, ...]:
        """Those that ended within the last hour before the newest sample, the newest first."""
        if self._now is None:
            return ()
        return tuple(one for one in reversed(self._ended) if one.ended_at is not None and self._now - one.ended_at < RECENT)

    def _findings(self, sample: wire.Sample, at: datetime) -> Iterator[Finding]:
        if reading_age_ms(sample) <= OLD_READING_MS:
            yield from self._gpu_findings(sample, at)
        if sample.host is not None:
            yield from host_findings(sample.host, self._limits)
        for report in sample.sensors:
            if self._seen or report.name not in GPU_SENSORS:
                yield sensor_failing(report, self._limits)

    def _gpu_findings(self, sample: wire.Sample, at: datetime) -> Iterator[Finding]:
        here = set()
        for gpu in sample.gpus:
            here.add(gpu.uuid)
            self._seen[gpu.uuid] = gpu
            if gpu.processes is not None:
                self._users[gpu.uuid] = users_of(gpu)
            users = self._users.get(gpu.uuid, ())
            yield from gpu_findings(gpu, self._limits, users)
            yield from self._xid_findings(gpu, users, at)
        for uuid in self._seen.keys() - here:
            gone, users = self._seen[uuid], self._users.get(uuid, ())
            yield missing(gone, self._limits, users, sample.gpu_reason)
            yield from self._xid_findings(gone, users, at)

    def _xid_findings(self, gpu: wire.Gpu, users: tuple[str, ...], at: datetime) -> Iterator[Finding]:
        """One per code that this GPU has reported; a count that went up renews it."""
        for text, count in gpu.xid_counts.items():
            known = (gpu.uuid, int(text)) if text.isdecimal() else None
            before = self._xids.get(known, (0, at))[0] if known is not None else count
            if known is not None and count != before:
                self._xids[known] = (count, at if count > before else self._xids[known][1])
        hold = timedelta(seconds=self._limits.xid_hold_seconds)
        for (uuid, code), (count, seen_at) in self._xids.items():
            if uuid == gpu.uuid:
                yield xid_seen(gpu, code, count, self._limits, users, at - seen_at <= hold)

    def _judge(self, finding: Finding, at: datetime) -> wire.Alert | None:
        condition = self._conditions.get(finding.key)
        if condition is None:
            if finding.level is not Level.ABOVE:
                return None
            condition = self._conditions[finding.key] = _begin(finding, at)
        gap = max(0.0, (at - condition.last_at).total_seconds())
        level_before, condition.level, condition.last_at = condition.level, finding.level, at
        if finding.level is Level.UNKNOWN:
            return self._unknown(finding.key, condition, gap, at)
        condition.unknown_seconds = 0.0
        if finding.level is Level.BELOW or _others(condition, finding):
            return self._clear(finding, condition, gap, at)
        if finding.level is Level.BETWEEN:
            return self._between(finding, condition, at)
        return self._above(finding, condition, gap if level_before is Level.ABOVE else 0.0, gap, at)

    def _above(self, finding: Finding, condition: _Condition, held: float, gap: float, at: datetime) -> wire.Alert | None:
        condition.clear_seconds = 0.0
        if condition.alert is not None:
            return self._refresh(finding, condition, at)
        if gap > MAX_GAP_SECONDS:
            condition.since, condition.held_seconds = at, 0.0
        else:
            condition.held_seconds += held
        condition.holders = finding.holders or condition.holders
        if condition.held_seconds < finding.for_seconds:
            return None
        condition.alert = self._alert(finding, condition, at)
        condition.refreshed_at = at
        return condition.alert

    def _between(self, finding: Finding, condition: _Condition, at: datetime) -> wire.Alert | None:
        """Keeps an alert; ends a wait, which asks for readings past the threshold without a break."""
        condition.clear_seconds = 0.0
        if condition.alert is not None:
            return self._refresh(finding, condition, at)
        del self._conditions[finding.key]
        return None

    def _clear(self, finding: Finding, condition: _Condition, gap: float, at: datetime) -> wire.Alert | None:
        condition.clear_seconds += gap
        if condition.alert is not None and finding.level is Level.BELOW and condition.clear_seconds < finding.clear_seconds:
            return None
        ended = self._end(finding.key, condition, at)
        if finding.level is Level.ABOVE:
            self._conditions[finding.key] = _begin(finding, at)
        return ended

    def _unseen(self, key: str, at: datetime) -> wire.Alert | None:
        """The subject is not in the sample: as if its reading were not known."""
        condition = self._conditions[key]
        gap = max(0.0, (at - condition.last_at).total_seconds())
        condition.level, condition.last_at = Level.UNKNOWN, at
        return self._unknown(key, condition, gap, at)

    def _unknown(self, key: str, condition: _Condition, gap: float, at: datetime) -> wire.Alert | None:
        condition.unknown_seconds += gap
        if condition.unknown_seconds <= self._limits.unknown_seconds:
            return None
        return self._end(key, condition, at)

    def _end(self, key: str, condition: _Condition, at: datetime) -> wire.Alert | None:
        del self._conditions[key]
        if condition.alert is None:
            return None
        ended = msgspec.structs.replace(condition.alert, ended_at=at)
        self._ended.append(ended)
        return ended

    def _refresh(self, finding: Finding, condition: _Condition, at: datetime) -> wire.Alert | None:
        """Tells of a change of severity or holders at once, of newer readings now and then."""
        old = condition.alert
        assert old is not None
        same = finding.severity == old.severity and (not finding.holders or finding.holders == old.holders)
        if same and (at - condition.refreshed_at).total_seconds() < REFRESH_SECONDS:
            return None
        condition.holders = finding.holders or condition.holders
        new = msgspec.structs.replace(self._alert(finding, condition, at), fired_at=old.fired_at)
        condition.refreshed_at = at
        if new == old:
            return None
        condition.alert = new
        return new

    def _alert(self, finding: Finding, condition: _Condition, at: datetime) -> wire.Alert:
        texts = finding.describe(max(0.0, (at - condition.since).total_seconds()))
        return wire.Alert(
            key=finding.key,
            rule=finding.rule,
            severity=finding.severity,
            node=self._node,
            gpu=finding.gpu,
            message=texts.message,
            reading=texts.reading,
            threshold=texts.threshold,
            since=condition.since,
            fired_at=at,
            holders=condition.holders,
            usd_per_hour=self._part_of_price() if finding.gpu is not None else None,
        )

    def _part_of_price(self) -> str | None:
        if self._price is None or not self._seen:
            return None
        part = (self._price / len(self._seen)).quantize(Decimal("0.0001"))
        return f"{part.normalize():f}"


def _begin(finding: Finding, at: datetime) -> _Condition:
    return _Condition(finding.since or at, finding.holders, at)


def _others(condition: _Condition, finding: Finding) -> bool:
    """Whether nobody of those whose case it was is left."""
    return finding.follows_holders and bool(condition.holders and finding.holders) and not {*condition.holders} & {*finding.holders}


def _price(usd_per_hour: str | None) -> Decimal | None:
    try:
        price = Decimal(usd_per_hour) if usd_per_hour is not None else None
    except InvalidOperation:
        return None
    return price if price is not None and price.is_finite() and price > 0 else None
