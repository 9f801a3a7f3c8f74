"""Who took the node back, and when: the cloud's notices as part of the usage record.

Invariant: a notice that this node is ended is on the disk as soon as it was heard, for minutes later there is no node that
could tell; it stands for an interruption until it is known that it was none: the cloud withdrew it, or the node went on
running for `SURVIVED_MS` past the announced time. A node that its user stops has no record here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, Protocol

from agent import wire
from agent.errors import StateDirectoryError

ENDING = ("terminate", "stop", "hibernate")
SURVIVED_MS = 600_000
"""A node that is measured without a break for so long past its announced end was not taken back."""
SAME_MS = 600_000
"""Announcements of one kind closer than this are one: another time, or heard again by an agent that was restarted."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Taken(NamedTuple):
    """One announcement. Times in UTC milliseconds; `boot` tells this run of the machine from others."""

    number: int
    cloud: str
    kind: str
    noticed_ms: int
    at_ms: int
    booted_ms: int | None
    boot: str | None
    withdrawn: bool = False


class Store(Protocol):
    """The part of `MeterStore` that keeps them."""

    def keep_interruptions(self, changed: Iterable[Taken]) -> None: ...


class Interruptions:
    """All announcements of one record."""

    def __init__(self, known: list[Taken]) -> None:
        self._all = {one.number: one for one in known}
        self._changed: dict[int, Taken] = {}
        self._pending = {one.number for one in known if not one.withdrawn}

    def keep(self, store: Store) -> str | None:
        """Writes what changed; a sentence where it cannot be written now and is tried again."""
        if self._changed:
            try:
                store.keep_interruptions(list(self._changed.values()))
            except StateDirectoryError as error:
                return f"an interruption cannot be written now and waits in memory: {error}"
            self._changed.clear()
        return None

    def take(self, notice: wire.Notice, booted_at: datetime | None, boot: str | None) -> None:
        """A notice that was heard; others than the end of this node are not kept."""
        if notice.kind not in ENDING:
            return
        noticed_ms = _ms(notice.noticed_at)
        at_ms = noticed_ms if notice.at is None else _ms(notice.at)
        known = self._known(notice, at_ms)
        if known is None and notice.ended_at is not None:
            return
        number = known.number if known is not None else max(self._all, default=0) + 1
        first_ms = noticed_ms if known is None else min(known.noticed_ms, noticed_ms)
        booted_ms = (known and known.booted_ms) if booted_at is None else _ms(booted_at)
        boot = boot or (known and known.boot)
        ended = notice.ended_at is not None
        at_ms = known.at_ms if ended and known is not None else at_ms
        self._put(Taken(number, notice.cloud, notice.kind, first_ms, at_ms, booted_ms, boot, ended))

    def _known(self, notice: wire.Notice, at_ms: int) -> Taken | None:
        """The same announcement as it was heard before."""
        alike = [
            one for one in self._all.values()
            if one.number in self._pending and one.cloud == notice.cloud and one.kind == notice.kind
        ]  # fmt: skip
        near = [one for one in alike if notice.ended_at is not None or abs(one.at_ms - at_ms) <= SAME_MS]
        return max(near, default=None)

    def measured(self, at_ms: int, boot: str | None, booted_at: datetime | None) -> None:
        """The node runs, and was measured since the last call: what was announced for long ago did not happen."""
        for number in self._pending:
            if self._all[number].boot is None and booted_at is not None:  # heard before the first reading
                self._put(self._all[number]._replace(boot=boot, booted_ms=_ms(booted_at)))
        for number in [number for number in self._pending if self._all[number].at_ms + SURVIVED_MS <= at_ms]:
            one = self._all[number]
            if one.boot == boot:
                self._put(one._replace(withdrawn=True))
            self._pending.discard(number)

    def suspended(self) -> None:
        """Nothing measured for a while: a machine that was hibernated wakes as if nothing had happened."""
        self._pending = {number for number in self._pending if self._all[number].kind != "hibernate"}

    def _put(self, one: Taken) -> None:
        self._all[one.number] = self._changed[one.number] = one
        (self._pending.discard if one.withdrawn else self._pending.add)(one.number)

    def told(self) -> Iterator[wire.Interruption]:
        """All that is on the disk."""
        for one in self._all.values():
            if one.number not in self._changed:
                yield wire.Interruption(
                    number=one.number, cloud=one.cloud, kind=one.kind, noticed_at=_utc(one.noticed_ms), at=_utc(one.at_ms),  # type: ignore[arg-type]
                    booted_at=None if one.booted_ms is None else _utc(one.booted_ms), withdrawn=one.withdrawn,
                )  # fmt: skip


def _ms(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(milliseconds=1)


def _utc(ms: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=ms)
