"""EC2: spot interruption, rebalance recommendation and scheduled events, from the instance metadata service (IMDSv2).

Invariant: one token serves all questions until it is nearly old or refused; 404 means that nothing is announced.
Two minutes of notice; for `hibernate` none. The recommendation may come before the interruption, with it, or never.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from agent.interruption.notices import Finding, Source
from agent.interruption.service import Answer, Service, Unanswered, decoded, parse_time
from agent.wire import NoticeKind

TOKEN_SECONDS = 21_600
POLL_SECONDS = 5.0
EVENTS_POLL_SECONDS = 30.0
LONGEST_WAIT_SECONDS = 15.0
_ACTIONS: dict[str, NoticeKind] = {"terminate": "terminate", "stop": "stop", "hibernate": "hibernate"}
_VERBS = {"terminate": "terminated", "stop": "stopped", "hibernate": "hibernated"}
_CODES = {
    "instance-stop": "stopped",
    "instance-retirement": "retired (its hardware is failing): it is stopped or terminated",
    "instance-reboot": "rebooted",
    "system-reboot": "rebooted together with its host",
    "system-maintenance": "without network or power for a while",
}


class Ec2:
    """`clock` in seconds, monotonic."""

    def __init__(self, service: Service, clock: Callable[[], float] = time.monotonic) -> None:
        self._service = service
        self._clock = clock
        self._token: str | None = None
        self._renew_at = 0.0

    def sources(self) -> tuple[Source, ...]:
        return (
            Source("spot/instance-action", self.interruption, POLL_SECONDS, LONGEST_WAIT_SECONDS),
            Source("events/recommendations/rebalance", self.rebalance, POLL_SECONDS, LONGEST_WAIT_SECONDS),
            Source("events/maintenance/scheduled", self.maintenance, EVENTS_POLL_SECONDS, 2 * EVENTS_POLL_SECONDS),
        )

    def interruption(self) -> tuple[Finding, ...]:
        answer = self._read("spot/instance-action")
        return () if answer is None else interruption(answer)

    def rebalance(self) -> tuple[Finding, ...]:
        answer = self._read("events/recommendations/rebalance")
        return () if answer is None else rebalance(answer)

    def maintenance(self) -> tuple[Finding, ...]:
        answer = self._read("events/maintenance/scheduled")
        return () if answer is None else maintenance(answer)

    def _read(self, path: str) -> Answer | None:
        """The answer; None: 404. A token that is refused is replaced once."""
        for token in (self._current_token(), None):
            answer = self._service.ask(f"/latest/meta-data/{path}", {"X-aws-ec2-metadata-token": token or self._new_token()})
            if answer.status != 401:
                break
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise Unanswered(f"{self._service.base} answers {path} with {answer.status}")
        return answer

    def _current_token(self) -> str:
        if self._token is None or self._clock() >= self._renew_at:
            return self._new_token()
        return self._token

    def _new_token(self) -> str:
        self._token = None
        asked = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_SECONDS)}
        try:
            answer = self._service.ask("/latest/api/token", asked, method="PUT")
        except Unanswered as fault:
            raise Unanswered(f"{fault}; in a container the instance needs a metadata hop limit of 2") from None
        token = answer.text
        if answer.status != 200 or not 0 < len(token) <= 512 or any(not "!" <= character <= "~" for character in token):
            raise Unanswered(f"{self._service.base} gives no token (it answers {answer.status})")
        self._token = token
        self._renew_at = self._clock() + 0.9 * TOKEN_SECONDS
        return token


def interruption(answer: Answer) -> tuple[Finding, ...]:
    """`{"action": "terminate", "time": "2026-11-30T12:02:00Z"}`."""
    document = decoded(answer.text, dict, "spot/instance-action")
    kind = _ACTIONS.get(str(document.get("action")))
    if kind is None:
        raise Unanswered(f"spot/instance-action has an unknown action {str(document.get('action'))[:40]!r}")
    at = None if kind == "hibernate" else parse_time(document.get("time"))
    when = f"at {at:%Y-%m-%d %H:%M:%S} UTC" if at is not None else "at once"
    message = f"EC2 takes this spot node back: it is {_VERBS[kind]} {when}"
    return (Finding(f"spot-{kind}", kind, message, at, answer.date, lead_seconds=0.0 if kind == "hibernate" else None),)


def rebalance(answer: Answer) -> tuple[Finding, ...]:
    """`{"noticeTime": "2026-11-30T12:00:00Z"}`."""
    decoded(answer.text, dict, "events/recommendations/rebalance")
    message = "EC2 expects to take this spot node back soon; checkpoint now, and start replacements elsewhere"
    return (Finding("rebalance", "rebalance", message),)


def maintenance(answer: Answer) -> tuple[Finding, ...]:
    """A list of `{"Code", "EventId", "NotBefore", "Description", "State"}`; those that are `active`."""
    found = []
    for event in decoded(answer.text or "[]", list, "events/maintenance/scheduled"):
        if not isinstance(event, dict) or event.get("State") != "active":
            continue
        code = str(event.get("Code"))
        at = parse_time(event.get("NotBefore"))
        when = f"not before {at:%Y-%m-%d %H:%M} UTC" if at is not None else "at a time that is not said"
        message = f"EC2 has scheduled maintenance: this node will be {_CODES.get(code, code[:40])}, {when}"
        found.append(Finding(str(event.get("EventId", code))[:100], "maintenance", message, at, answer.date))
    return tuple(found)
