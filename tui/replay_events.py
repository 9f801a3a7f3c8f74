"""What happened on a node of a recording, as it is given to a fleet.

Invariant: a fleet is told through what live streams use: `apply`, `failed`, `seed_jobs`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from agent import wire
from tui.fleet import Fleet, NodeView


class Happened(NamedTuple):
    """An event of a node, to be applied; `sample` of a sample that only was heard again is None."""

    at_ms: int
    node: str
    event: wire.Event | str | datetime | None
    """A text: the connection broke with it; a time: a sample of then, of which nothing matters but that it was heard."""
    gone: str = ""
    """The id of a job that is no more."""


def apply(fleet: Fleet, happened: Happened, now: float) -> set[str]:
    """Gives one event to the fleet; returns the names of the nodes that changed."""
    name, event = happened.node, happened.event
    if isinstance(event, str):
        return fleet.failed(name, event)
    if isinstance(event, datetime):
        return _heard(fleet[name], event, now)
    if event is not None:
        return fleet.apply(name, event, now)
    view = fleet[name]
    left = tuple(one.job for one in view.jobs if one.job.id != happened.gone and one.job.state != "ended")
    fleet.seed_jobs(name, wire.JobList(node=name, jobs=left, problem=view.jobs.problem), now)
    return {name}


def _heard(view: NodeView, taken_at: datetime, now: float) -> set[str]:
    """Its newest sample is as old as this one; the rest of it stays as it was."""
    if view.sample is None:
        return set()
    view.sample = msgspec.structs.replace(view.sample, taken_at=taken_at)
    view.heard_at, view.connected, view.error = now, True, None
    return {view.name}


def shift(fleet: Fleet, seconds: float) -> None:
    """Everything was heard so much later: time stood still meanwhile."""
    for view in fleet:
        if view.heard_at is not None:
            view.heard_at += seconds
        for job in view.jobs:
            if job.job.state == "ended":
                break
            job.heard_at += seconds


_DECODERS: dict[str, Any] = {
    "info": lambda body: wire.NodeEvent(node=msgspec.json.decode(body, type=wire.NodeInfo)),
    "alert": lambda body: wire.AlertEvent(alert=msgspec.json.decode(body, type=wire.Alert)),
    "job": lambda body: wire.JobEvent(job=msgspec.json.decode(body, type=wire.Job)),
    "notice": lambda body: wire.NoticeEvent(notice=msgspec.json.decode(body, type=wire.Notice)),
    "error": lambda body: msgspec.json.decode(body, type=str),
}


def decoded(kind: str, body: bytes) -> wire.Event | str | None:
    """What was kept of a change, as it is given to a fleet."""
    made = _DECODERS.get(kind)
    return None if made is None else made(body)


def over(node: str, kind: str, key: str, at: datetime) -> wire.Event:
    """The end of an alert or of a notice."""
    if kind == "alert":
        rule = key.partition(":")[0]
        return wire.AlertEvent(alert=wire.Alert(
            key=key, rule=rule, severity="warning", node=node, message="", since=at, fired_at=at, ended_at=at,
        ))  # fmt: skip
    return wire.NoticeEvent(notice=wire.Notice(cloud="", kind="terminate", noticed_at=at, message="", ended_at=at))
