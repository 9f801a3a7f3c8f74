"""What a drill has shown: how long from the notice to each step, and whether the work was saved before the node's end.

Invariant: `saved` is true only on evidence: the marker was written after the notice and before the end, or, where no
marker was named, the job ended by itself with exit code 0 in time.
"""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

SAVED = "saved in time"


class DrillReport(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds count from the notice; None: it did not happen."""

    cloud: str
    lead_seconds: float
    """From the notice to the end of the node."""
    command: tuple[str, ...]
    notice_at: datetime
    heard_seconds: float | None = None
    """The agent knew."""
    signalled_seconds: float | None = None
    """The job had its soft signal."""
    saved_seconds: float | None = None
    """The marker was written for the last time."""
    ended_seconds: float | None = None
    """The job's last process was gone."""
    left_seconds: float | None = None
    """Of the lead, when it was saved (without a marker: when it had ended)."""
    killed: bool = False
    """It had not ended when its grace was over."""
    cause: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    saved: bool
    verdict: str
    log_tail: tuple[str, ...] = ()


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen. `marker_at`: the marker's newest time; None: it is not there. `ended_at` None: it still ran."""

    cloud: str
    lead_seconds: float
    command: tuple[str, ...]
    notice_at: datetime
    marker: str | None = None
    marker_at: datetime | None = None
    heard_at: datetime | None = None
    signalled_at: datetime | None = None
    killed_at: datetime | None = None
    ended_at: datetime | None = None
    cause: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    log_tail: tuple[str, ...] = ()


def judge(facts: Facts) -> DrillReport:
    """The report of one drill."""
    saved_seconds = _since(facts, facts.marker_at)
    if saved_seconds is not None and saved_seconds < 0:
        saved_seconds = None
    ended_seconds = _since(facts, facts.ended_at)
    shown = saved_seconds if facts.marker is not None else ended_seconds
    why = _why_not(facts, saved_seconds, ended_seconds)
    return DrillReport(
        cloud=facts.cloud,
        lead_seconds=facts.lead_seconds,
        command=facts.command,
        notice_at=facts.notice_at,
        heard_seconds=_since(facts, facts.heard_at),
        signalled_seconds=_since(facts, facts.signalled_at),
        saved_seconds=saved_seconds,
        ended_seconds=ended_seconds,
        left_seconds=None if shown is None else round(facts.lead_seconds - shown, 3),
        killed=facts.killed_at is not None,
        cause=facts.cause,
        exit_code=facts.exit_code,
        signal=facts.signal,
        saved=why is None,
        verdict=SAVED if why is None else f"not saved: {why}",
        log_tail=facts.log_tail,
    )


def _why_not(facts: Facts, saved_seconds: float | None, ended_seconds: float | None) -> str | None:
    if facts.heard_at is None:
        return "the agent did not notice in time"
    if facts.signalled_at is None and ended_seconds is None:
        return "the job was not asked to stop"
    if facts.marker is not None:
        return _marker_fault(facts, saved_seconds)
    if ended_seconds is None:
        return "the job still ran when the node would have gone"
    if facts.killed_at is not None:
        return f"it did not end within its grace and was killed after {_at(facts, facts.killed_at):.1f} s; save and end on the soft signal"
    if ended_seconds > facts.lead_seconds:
        return f"it ended {ended_seconds - facts.lead_seconds:.1f} s after the node would have gone"
    if facts.signal is not None:
        return f"it ended by signal {facts.signal}, so nothing handled it; save on the soft signal, then exit with 0"
    if facts.exit_code != 0:
        return f"it ended with exit code {facts.exit_code}; name what it saves with --marker if that is how it ends"
    return None


def _marker_fault(facts: Facts, saved_seconds: float | None) -> str | None:
    if facts.marker_at is None:
        return f"{facts.marker} is not there"
    if saved_seconds is None:
        early = (facts.notice_at - facts.marker_at).total_seconds()
        return f"{facts.marker} was last written {early:.1f} s before the notice"
    if saved_seconds > facts.lead_seconds:
        return f"{facts.marker} was written {saved_seconds - facts.lead_seconds:.1f} s after the node would have gone"
    return None


def _at(facts: Facts, at: datetime) -> float:
    return (at - facts.notice_at).total_seconds()


def _since(facts: Facts, at: datetime | None) -> float | None:
    return None if at is None else round(_at(facts, at), 3)


def text(report: DrillReport) -> str:
    """The report for a person; a line a step."""
    steps = (
        (
            "notice",
            0.0,
            f"{report.cloud}, {report.notice_at.astimezone(UTC):%H:%M:%S} UTC; the node ends after {report.lead_seconds:g} s",
        ),
        ("agent knew", report.heard_seconds, ""),
        ("soft signal", report.signalled_seconds, ""),
        ("checkpoint", report.saved_seconds, ""),
        ("job ended", report.ended_seconds, _end(report)),
        ("time left", report.left_seconds, ""),
    )
    lines = [f"{name:12}{_seconds(value):>10}  {note}".rstrip() for name, value, note in steps]
    return "\n".join([*lines, report.verdict])


def _end(report: DrillReport) -> str:
    how = "killed" if report.killed else f"exit {report.exit_code}" if report.signal is None else f"signal {report.signal}"
    return "" if report.ended_seconds is None else f"{how}, {report.cause}" if report.cause else how


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f} s"
