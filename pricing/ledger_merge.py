"""Agent rows of ten seconds in, ledger rows of up to an hour out.

Invariant: merging loses nothing that is added up: lengths, shares, busy time, energy and the number of agent rows are
whole numbers whose sums do not depend on how the rows were cut into pages. A ledger row lies within one UTC hour.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from pricing.usage import Usage

HOUR_MS = 3_600_000
HOURS_PER_DAY = 24
Sums = dict[tuple[int, int, int, int], list[int | None]]
"""(hour or day, placement, kind, holder) -> share x ms, busy, share x measured ms, energy or None."""


class Ids(NamedTuple):
    """All that two agent rows must have in common to become one ledger row, as ids of the dictionary tables."""

    gpu: int
    placement: int
    kind: int
    reason: int
    holder: int
    share: int
    source: int


class LedgerRow:
    """One ledger row while a page is taken.

    `busy` is utilisation x length x share in millionths of milliseconds; `measured_ms` the length it is known for.
    """

    __slots__ = (
        "ids", "hour", "starts_ms", "first_sequence", "ends_ms", "busy", "measured_ms", "energy_mj", "rows",
        "last_sequence", "_before",
    )  # fmt: skip

    def __init__(self, ids: Ids, hour: int, starts_ms: int, first_sequence: int) -> None:
        self.ids = ids
        self.hour = hour
        self.starts_ms = self.ends_ms = starts_ms
        self.first_sequence = self.last_sequence = first_sequence
        self.busy = self.measured_ms = self.rows = 0
        self.energy_mj: int | None = None
        self._before = (starts_ms, 0, 0, None)

    @classmethod
    def stored(cls, record: Sequence[int]) -> LedgerRow:
        """A row that the ledger holds already, from `STORED_COLUMNS`."""
        row = cls(Ids(*record[:7]), record[7], record[8], record[9])
        row.ends_ms, row.busy, row.measured_ms, row.energy_mj, row.rows, row.last_sequence = record[10:]
        row._before = (row.ends_ms, row.busy, row.measured_ms, row.energy_mj)
        return row

    def record(self, node_id: int, meter_id: int) -> tuple[int | None, ...]:
        """In the order of the `usage` table."""
        ids = self.ids
        return (
            self.hour, node_id, meter_id, ids.gpu, self.starts_ms, self.first_sequence, self.ends_ms, ids.placement,
            ids.kind, ids.reason, ids.holder, ids.share, ids.source, self.busy, self.measured_ms, self.energy_mj,
            self.rows, self.last_sequence,
        )  # fmt: skip

    def growth(self) -> tuple[int, int, int, int | None]:
        """What this page added: share x ms, busy, share x measured ms, energy."""
        ends_ms, busy, measured_ms, energy_mj = self._before
        share = self.ids.share
        energy = None if self.energy_mj is None else self.energy_mj - (energy_mj or 0)
        return (self.ends_ms - ends_ms) * share, self.busy - busy, (self.measured_ms - measured_ms) * share, energy


STORED_COLUMNS = (
    "gpu_id, placement_id, kind, reason_id, holder_id, share, source, hour, starts_ms, first_sequence, "
    "ends_ms, busy, measured_ms, energy_mj, rows, last_sequence"
)


class Merger:
    """Takes agent rows in the order of their sequence; `touched` are the ledger rows that are new or grew."""

    def __init__(self, stored: Iterable[LedgerRow] = ()) -> None:
        self._open: dict[tuple[Ids, int], LedgerRow] = {}
        for row in sorted(stored, key=lambda row: row.last_sequence):
            self._open[row.ids, row.hour] = row
        self.touched: dict[int, LedgerRow] = {}

    def add(self, row: Usage, ids: Ids) -> None:
        """Adds one agent row."""
        starts_ms, ends_ms = row.starts_ms, row.ends_ms
        ratio = row.utilization_ratio
        busy = 0 if ratio is None else round(ratio * (ends_ms - starts_ms) * ids.share)
        if (ends_ms - 1) // HOUR_MS == starts_ms // HOUR_MS:
            measured = 0 if ratio is None else ends_ms - starts_ms
            self._put(ids, row.sequence, starts_ms, ends_ms, busy, measured, row.energy_millijoules, 1)
            return
        for count, (start, end, part, energy) in enumerate(_pieces(row, busy)):
            measured = 0 if ratio is None else end - start
            self._put(ids, row.sequence, start, end, part, measured, energy, 0 if count else 1)

    def _put(
        self, ids: Ids, sequence: int, starts_ms: int, ends_ms: int, busy: int, measured: int, energy: int | None, rows: int
    ) -> None:
        key = (ids, starts_ms // HOUR_MS)
        row = self._open.get(key)
        if row is None or row.ends_ms != starts_ms:
            row = self._open[key] = LedgerRow(ids, key[1], starts_ms, sequence)
        row.ends_ms = ends_ms
        row.busy += busy
        row.measured_ms += measured
        if energy is not None:
            row.energy_mj = (row.energy_mj or 0) + energy
        row.rows += rows
        row.last_sequence = sequence
        self.touched[id(row)] = row


def sums_of(rows: Iterable[LedgerRow]) -> tuple[Sums, Sums]:
    """What a page added, per hour and per day (of UTC)."""
    hours: Sums = {}
    days: Sums = {}
    for row in rows:
        ids, growth = row.ids, row.growth()
        for sums, at in ((hours, row.hour), (days, row.hour // HOURS_PER_DAY)):
            amounts = sums.setdefault((at, ids.placement, ids.kind, ids.holder), [0, 0, 0, None])
            for place in range(3):
                amounts[place] += growth[place]  # type: ignore[operator]
            if growth[3] is not None:
                amounts[3] = (amounts[3] or 0) + growth[3]
    return hours, days


def _pieces(row: Usage, busy: int) -> Iterator[tuple[int, int, int, int | None]]:
    """(start, end, busy, energy) of a row cut at full hours; the parts of each amount sum to the whole."""
    start = row.starts_ms
    while start < row.ends_ms:
        end = min((start // HOUR_MS + 1) * HOUR_MS, row.ends_ms)
        energy = row.energy_millijoules
        part = None if energy is None else portion(energy, row.starts_ms, row.ends_ms, start, end)
        yield start, end, portion(busy, row.starts_ms, row.ends_ms, start, end), part
        start = end


def portion(amount: int, starts_ms: int, ends_ms: int, start: int, end: int) -> int:
    """The part of `amount`, spread evenly over the row, that falls into [start, end); parts of a tiling sum to it."""
    length = ends_ms - starts_ms
    return amount * (end - starts_ms) // length - amount * (start - starts_ms) // length
