"""What the queue keeps of a job and of each of its attempts, and how a field becomes a column.

Invariant: a row never holds a secret's value; `spec.secrets` has the names with empty values.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec

from agent import wire


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """A job, a task of an array (`array` set), or an array's own row (`is_array`), which never runs itself."""

    id: str
    spec: wire.JobSpec
    """As asked for, without secret values. Tasks of one array share one object."""
    state: wire.JobState = "queued"
    array: str | None = None
    """Id of the array that this is a task of."""
    array_index: int | None = None
    user: str | None = None
    """Who it runs as, decided at submit."""
    actor: str | None = None
    """Name of the token that submitted it."""
    submitted_at: datetime
    begun_at: datetime | None = None
    """When the newest attempt was decided on: state `starting`."""
    started_at: datetime | None = None
    """Its first instruction; None until then."""
    ended_at: datetime | None = None
    not_before: datetime | None = None
    attempt: int = 0
    """Number of the newest attempt; 0 before the first."""
    retries: int = 0
    """Retries used up."""
    cause: str | None = None
    """Of the end, or of the last attempt while it waits for the next."""
    evidence: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    stop_cause: str | None = None
    """The persisted intent to stop: written before any signal, cleared when the attempt has ended."""
    stop_evidence: str | None = None
    stop_at: datetime | None = None
    stop_grace_seconds: float | None = None
    """None: the spec's."""
    gpus: tuple[str, ...] = ()
    """UUIDs while it holds (or has reserved) them, and the last attempt's afterwards."""
    cpu_ids: tuple[int, ...] = ()
    numa_nodes: tuple[int, ...] = ()
    held_until: datetime | None = None
    """Queued with `gpus` set: a reservation of a gang's part, which nobody else may use until then."""
    endpoint: str | None = None
    """Rendezvous of a gang's part, once it may start."""
    boot_id: str | None = None
    """Boot of the machine in which the newest attempt was begun."""
    enforcement: wire.Enforcement | None = None
    limits: dict[str, str] = {}
    not_enforced: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    placement: str | None = None
    """Why these GPUs and CPUs, in a sentence."""
    usage: wire.JobUsage | None = None
    """Over all attempts."""
    usd_per_hour: Decimal | None = None
    cost: Decimal | None = None
    left_behind: tuple[str, ...] = ()
    log_bytes: int | None = None
    log_dropped_lines: int | None = None
    notes: dict[str, str] = {}
    """For the manager alone; the queue does not look into it."""

    @property
    def is_array(self) -> bool:
        return self.array is None and bool(self.spec.array)

    @property
    def holds(self) -> bool:
        """Whether its GPUs, CPUs and memory are in use or reserved now."""
        return self.state in ("starting", "running", "stopping") or (self.state == "queued" and self.held_until is not None)


class AttemptRow(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a job."""

    job: str
    number: int
    """From 1."""
    gpus: tuple[str, ...] = ()
    cpu_ids: tuple[int, ...] = ()
    numa_nodes: tuple[int, ...] = ()
    boot_id: str | None = None
    begun_at: datetime
    """When it was decided: state `starting`."""
    started_at: datetime | None = None
    """Its first instruction."""
    ended_at: datetime | None = None
    cause: str | None = None
    evidence: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    usage: wire.JobUsage | None = None
    cost: Decimal | None = None

    def to_wire(self) -> wire.Attempt:
        return wire.Attempt(
            number=self.number,
            gpus=self.gpus,
            started_at=self.started_at,
            ended_at=self.ended_at,
            cause=self.cause,
            evidence=self.evidence,
            exit_code=self.exit_code,
            signal=self.signal,
            cost=self.cost,
        )


def without_secrets(spec: wire.JobSpec) -> wire.JobSpec:
    """The spec with the names of its secrets and none of their values."""
    if not any(spec.secrets.values()):
        return spec
    return msgspec.structs.replace(spec, secrets=dict.fromkeys(spec.secrets, ""))


NO_STOP: dict[str, None] = dict.fromkeys(("stop_cause", "stop_evidence", "stop_at", "stop_grace_seconds"))


def intent(row: JobRow, cause: str, at: datetime, evidence: str | None, grace: float | None) -> dict[str, Any]:
    """What the intent changes of a row; nothing where the one that stands is as strong."""
    fields: dict[str, Any] = {}
    if row.stop_cause is None or (cause == "cancelled" and row.stop_cause != "cancelled"):
        fields = {"stop_cause": cause, "stop_evidence": evidence}
    if row.stop_at is None or _ends_earlier(row, row.stop_at, at, grace):
        fields |= {"stop_at": at, "stop_grace_seconds": grace}
    if row.state in ("starting", "running"):
        fields["state"] = "stopping"
    return fields


def _ends_earlier(row: JobRow, since: datetime, at: datetime, grace: float | None) -> bool:
    """Whether a grace from `at` on ends before the one that runs."""
    own = row.spec.grace_seconds if row.stop_grace_seconds is None else row.stop_grace_seconds
    return grace is not None and (at - since).total_seconds() + grace < own
