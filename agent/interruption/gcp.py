"""GCP: preemption and host maintenance, from the metadata server.

Invariant: the first question is answered at once, each further one when the value changes or after POLL_SECONDS; only
an answer with `Metadata-Flavor: Google` counts. A preempted node ends 30 s after the value turns TRUE.
"""

from __future__ import annotations

from agent.interruption.notices import Finding, Source
from agent.interruption.service import Answer, Service, Unanswered

POLL_SECONDS = 10.0
PAUSE_SECONDS = 0.5
"""Between two questions that wait: what changes meanwhile is answered at once."""
MAINTENANCE_POLL_SECONDS = 10.0
LONGEST_WAIT_SECONDS = 5.0
PREEMPTION_SECONDS = 30.0
MAINTENANCE_SECONDS = 60.0
GPU_MAINTENANCE_SECONDS = 3600.0
"""From the word to the stop for maintenance of the host; machine types with GPUs of their own are told an hour before."""
_GPU_FAMILIES = ("a2-", "a3-", "a4-", "a4x-", "g2-", "g4-")
_FLAVOUR = {"Metadata-Flavor": "Google"}
_STOPS = "TERMINATE_ON_HOST_MAINTENANCE"
_GOES_ON = ("NONE", "MIGRATE_ON_HOST_MAINTENANCE")
"""A node that is moved pauses for a moment, and its jobs run on: that is no notice."""


class Gcp:
    def __init__(self, service: Service, *, poll_seconds: float = POLL_SECONDS) -> None:
        self._service = service
        self._poll = poll_seconds
        self._etag: str | None = None

    def sources(self) -> tuple[Source, ...]:
        return (
            Source("preempted", self.preempted, PAUSE_SECONDS, LONGEST_WAIT_SECONDS),
            Source("maintenance-event", self.maintenance, MAINTENANCE_POLL_SECONDS, 2 * MAINTENANCE_POLL_SECONDS),
        )

    def preempted(self) -> tuple[Finding, ...]:
        """Waits for a change after the first time."""
        etag, self._etag = self._etag, None
        if etag is None:
            answer = self._read("preempted", "")
        else:
            asked = f"?wait_for_change=true&timeout_sec={max(1, round(self._poll))}&last_etag={etag}"
            answer = self._read("preempted", asked, longer_seconds=self._poll)
        found = preempted(answer)
        self._etag = _etag(answer)
        return found

    def maintenance(self) -> tuple[Finding, ...]:
        answer = self._read("maintenance-event", "")
        return maintenance(answer, self._read("machine-type", "").text if answer.text == _STOPS else "")

    def _read(self, key: str, query: str, *, longer_seconds: float = 0.0) -> Answer:
        path = f"/computeMetadata/v1/instance/{key}{query}"
        answer = self._service.ask(path, _FLAVOUR, longer_seconds=longer_seconds)
        if answer.status != 200 or answer.headers.get("Metadata-Flavor") != "Google":
            raise Unanswered(f"{self._service.base} answers instance/{key} with {answer.status}, not as GCP does")
        return answer


def preempted(answer: Answer) -> tuple[Finding, ...]:
    """`TRUE` or `FALSE`."""
    if answer.text not in ("TRUE", "FALSE"):
        raise Unanswered("instance/preempted is answered with neither TRUE nor FALSE")
    if answer.text == "FALSE":
        return ()
    message = f"GCP preempts this node: it ends within {PREEMPTION_SECONDS:.0f} s"
    return (Finding("preempted", "terminate", message, lead_seconds=PREEMPTION_SECONDS),)


def maintenance(answer: Answer, machine_type: str) -> tuple[Finding, ...]:
    """`NONE`, `MIGRATE_ON_HOST_MAINTENANCE` or `TERMINATE_ON_HOST_MAINTENANCE`; `machine_type` may be a path."""
    if answer.text in _GOES_ON:
        return ()
    if answer.text != _STOPS:
        raise Unanswered("instance/maintenance-event is answered with an unknown word")
    has_gpus = machine_type.rpartition("/")[2].startswith(_GPU_FAMILIES)
    lead = GPU_MAINTENANCE_SECONDS if has_gpus else MAINTENANCE_SECONDS
    message = f"GCP stops this node for maintenance of its host in about {lead / 60:.0f} min"
    return (Finding("maintenance-event", "maintenance", message, lead_seconds=lead),)


def _etag(answer: Answer) -> str | None:
    tag = answer.headers.get("ETag", "")
    return tag if 0 < len(tag) <= 200 and tag.isascii() and tag.isalnum() else None
