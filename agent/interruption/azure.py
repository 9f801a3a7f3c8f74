"""Azure: scheduled events that end this machine (Preempt, Terminate, Reboot, Redeploy), from the metadata service.

Invariant: only an event that names this machine counts; the others are those of its availability or scale set. An
unchanged document (DocumentIncarnation) is not read twice. Nothing is approved unless `approve` is called.
A preemption is told at least 30 s before; the service's very first answer may take two minutes.
"""

from __future__ import annotations

import socket
from collections.abc import Collection
from typing import Any

import msgspec

from agent.interruption.notices import Finding, Source
from agent.interruption.service import Service, Unanswered, decoded, parse_time
from agent.wire import NoticeKind

POLL_SECONDS = 2.0
LONGEST_WAIT_SECONDS = 5.0
_EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"
_NAME = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
_HEADERS = {"Metadata": "true"}
_KINDS: dict[str, NoticeKind] = {
    "Preempt": "terminate",
    "Terminate": "terminate",
    "Reboot": "maintenance",
    "Redeploy": "maintenance",
}
_MESSAGES = {
    "Preempt": "Azure takes this spot node back",
    "Terminate": "Azure deletes this node",
    "Reboot": "Azure reboots this node",
    "Redeploy": "Azure moves this node to another host; its temporary disk is lost",
}


class Azure:
    """`hostname`: who this machine is until the service tells its name."""

    def __init__(self, service: Service, hostname: str | None = None) -> None:
        self._service = service
        self._hostname = hostname or socket.gethostname()
        self._name: str | None = None
        self._incarnation: object = None
        self._found: tuple[Finding, ...] = ()
        self._approved: set[str] = set()

    def sources(self) -> tuple[Source, ...]:
        return (Source("scheduledevents", self.events, POLL_SECONDS, LONGEST_WAIT_SECONDS),)

    def events(self) -> tuple[Finding, ...]:
        answer = self._service.ask(_EVENTS, _HEADERS)
        if answer.status != 200:
            raise Unanswered(f"{self._service.base} answers scheduledevents with {answer.status}")
        document = decoded(answer.text, dict, "scheduledevents")
        if not isinstance(document.get("Events"), list):
            raise Unanswered("scheduledevents is answered without a list of events")
        known, incarnation = self._name, document.get("DocumentIncarnation")
        if document["Events"] and self._name is None:
            self._name = self._ask_name()
        if incarnation is None or incarnation != self._incarnation or self._name != known:
            found = events(document, self._name or self._hostname)
            self._found = tuple(finding._replace(said_at=answer.date) for finding in found)
            self._incarnation = incarnation
        return self._found

    def approve(self, ids: Collection[str]) -> None:
        """Lets these events happen now instead of at their time, each once. Raises Unanswered."""
        fresh = [id for id in ids if id not in self._approved]
        if not fresh:
            return
        body = msgspec.json.encode({"StartRequests": [{"EventId": id} for id in fresh]})
        headers = {**_HEADERS, "Content-Type": "application/json"}
        answer = self._service.ask(_EVENTS, headers, method="POST", body=body)
        if answer.status != 200:
            raise Unanswered(f"{self._service.base} answers the approval of {', '.join(fresh)} with {answer.status}")
        self._approved.update(fresh)

    def _ask_name(self) -> str | None:
        try:
            answer = self._service.ask(_NAME, _HEADERS)
        except Unanswered:
            return None
        name = answer.text
        return name if answer.status == 200 and 0 < len(name) <= 128 and name.isprintable() and "<" not in name else None


def events(document: dict[str, Any], name: str) -> tuple[Finding, ...]:
    """Those of the document's events that end the machine called `name`."""
    return tuple(_finding(event) for event in document["Events"] if _ours(event, name.casefold()))


def _ours(event: object, name: str) -> bool:
    if not isinstance(event, dict) or event.get("EventType") not in _KINDS or not isinstance(event.get("EventId"), str):
        return False
    resources = event.get("Resources")
    return isinstance(resources, list) and any(isinstance(one, str) and one.casefold() == name for one in resources)


def _finding(event: dict[str, Any]) -> Finding:
    """`NotBefore` is empty once the event has started."""
    at = parse_time(event.get("NotBefore"))
    when = f"not before {at:%Y-%m-%d %H:%M:%S} UTC" if at is not None else "at once"
    why = "" if event.get("EventSource") != "User" else ", as a user asked"
    kind = str(event["EventType"])
    return Finding(event["EventId"][:100], _KINDS[kind], f"{_MESSAGES[kind]}{why}: {when}", at)
