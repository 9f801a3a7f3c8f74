"""The last minutes of one node's GPU utilisations, for the plots.

Invariant: a byte a point, whatever the fleet: 1,000 nodes x 8 GPUs x 180 s are 1.4 MB. A second that is not known is None.
"""

from __future__ import annotations

from collections.abc import Sequence

from agent import wire

POINTS = 180
"""Seconds that are kept."""
_UNKNOWN = 255
_TRIM_EVERY = 64
"""Rows that may be kept beyond POINTS before the oldest are cut off at once."""


class Past:
    """Rows of one byte a GPU, a row a second, in the order of `uuids`."""

    __slots__ = ("_rows", "_uuids")

    def __init__(self) -> None:
        self._uuids: tuple[str, ...] = ()
        self._rows = bytearray()

    def add(self, gpus: Sequence[wire.Gpu]) -> None:
        """Appends the newest utilisations (ratios), in whole per cent: more the driver does not tell."""
        uuids = tuple([gpu.uuid for gpu in gpus])
        if uuids != self._uuids:
            self._rearrange(uuids)
        rows = self._rows
        rows += bytes([_UNKNOWN if (u := gpu.utilization_ratio) is None else min(200, int(u * 100 + 0.5)) for gpu in gpus])
        if len(rows) > (POINTS + _TRIM_EVERY) * len(uuids):
            del rows[: len(rows) - POINTS * len(uuids)]

    def values(self, uuid: str, count: int = POINTS) -> list[float | None]:
        """The newest `count` ratios of a GPU, oldest first; empty for one that was never heard of."""
        return [None if point == _UNKNOWN else point / 100 for point in self._column(uuid)[-count:]]

    def known(self, uuid: str, count: int = POINTS) -> int:
        """How many of the newest `count` seconds are known."""
        column = self._column(uuid)[-count:]
        return len(column) - column.count(_UNKNOWN)

    def seed(self, history: wire.History) -> bool:
        """Takes what the agent remembers, of each GPU of which it knows more than was heard here. True if it took any."""
        columns = {uuid: self._column(uuid)[-POINTS:] for uuid in self._uuids}
        better = False
        for uuid, points in history.gpus.items():
            remembered = _by_second(points)
            if uuid in columns and len(remembered) - remembered.count(_UNKNOWN) > self.known(uuid):
                columns[uuid] = remembered
                better = True
        if better:
            self._fill(columns)
        return better

    def _column(self, uuid: str) -> bytearray:
        try:
            return self._rows[self._uuids.index(uuid) :: len(self._uuids)]
        except ValueError:
            return bytearray()

    def _rearrange(self, uuids: tuple[str, ...]) -> None:
        """Other GPUs than before (a MIG change, a GPU replaced): those that stay keep their past."""
        columns = {uuid: self._column(uuid)[-POINTS:] for uuid in uuids}
        self._uuids = uuids
        self._fill(columns)

    def _fill(self, columns: dict[str, bytearray]) -> None:
        longest = max(map(len, columns.values()), default=0)
        self._rows = bytearray(longest * len(self._uuids))
        for place, uuid in enumerate(self._uuids):
            column = columns[uuid]
            self._rows[place :: len(self._uuids)] = bytes([_UNKNOWN]) * (longest - len(column)) + column


def _by_second(points: Sequence[wire.HistoryPoint]) -> bytearray:
    """Bytes one second apart up to the newest point."""
    slots = bytearray([_UNKNOWN]) * POINTS
    for point in points:
        before = round((points[-1].taken_at - point.taken_at).total_seconds())
        if 0 <= before < POINTS and point.utilization_ratio is not None:
            slots[-1 - before] = min(200, int(point.utilization_ratio * 100 + 0.5))
    return slots
