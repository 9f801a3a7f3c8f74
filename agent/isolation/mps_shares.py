"""Who may have which part of one GPU: shares, memory, number of clients, one user at a time.

Invariant: a part that `fit` returns keeps the sum of all shares at or below 1 (in millionths); it changes nothing itself.
"""

from __future__ import annotations

from decimal import Decimal

import msgspec

from agent.errors import MpsFault
from agent.isolation import mps_settings
from agent.isolation.mps_access import user_name
from agent.isolation.mps_record import Record, Sharer


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one GPU takes: its memory (None: not known) and the most clients of MPS on it."""

    uuid: str
    memory_total_bytes: int | None
    clients: int


def fit(record: Record, limits: Limits, job: str, share: Decimal, memory_bytes: int | None, uid: int) -> Sharer:
    """The part of a job beside the others (without what it may already have). Raises MpsFault."""
    others = [part for name, part in record.jobs.items() if name != job]
    part = Sharer(
        share=mps_settings.share_millionths(share),
        memory_bytes=None if memory_bytes is None else mps_settings.memory_bytes(memory_bytes, limits.memory_total_bytes),
        uid=uid,
    )
    free = mps_settings.MILLION - sum(other.share for other in others)
    if part.share > free:
        raise MpsFault(f"{share_text(free)} of {limits.uuid} is left, and the job asks for {share_text(part.share)}")
    if len(others) >= limits.clients:
        raise MpsFault(f"{limits.uuid} is shared by {len(others)} jobs, and MPS takes at most {limits.clients} clients on it")
    strangers = sorted({other.uid for other in others} - {uid})
    if strangers:
        raise one_user(limits.uuid, f"jobs of {user_name(strangers[0])}", uid)
    _check_defaults(record, limits.uuid, part)
    return part


def _check_defaults(record: Record, uuid: str, part: Sharer) -> None:
    """A client can only lower what the daemon lets it have."""
    if record.percentage is not None and part.share * 100 > record.percentage * mps_settings.MILLION:
        most = mps_settings.percentage_text(record.percentage)
        raise MpsFault(
            f"the default of {uuid} lets each client use {most} % of it, less than the job asks for: raise the default first"
        )
    if part.memory_bytes and record.pinned_memory_bytes is not None and part.memory_bytes > record.pinned_memory_bytes:
        most = mps_settings.memory_text(record.pinned_memory_bytes)
        raise MpsFault(
            f"the default of {uuid} lets each client pin {most} of memory, less than the job asks for: raise the default first"
        )


def one_user(uuid: str, who: str, uid: int) -> MpsFault:
    """The fault of a GPU on which somebody else is."""
    return MpsFault(f"{uuid} is used by {who}, and MPS serves one user at a time: {user_name(uid)} would wait until that ends")


def share_text(millionths: int) -> str:
    """`0.5`."""
    return mps_settings.percentage_text(share_of(millionths))


def share_of(millionths: int) -> Decimal:
    """Millionths -> a share of 1."""
    return (Decimal(millionths) / mps_settings.MILLION).normalize() + 0
