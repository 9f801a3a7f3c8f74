"""The record of one GPU (or of the host of a node without any): readings in, finished stretches out.

Invariant: the stretches that a track puts out tile its time: each begins where the one before ended, and at every
moment their shares sum to exactly one GPU.
"""

from __future__ import annotations

from typing import NamedTuple

from agent.meter_holders import HOST, WHOLE, Holder, Part, Tenure, down
from agent.meter_placement import PlacementRef
from agent.wire import EnergySource, Gpu, UsageKind

MAX_WATTS = 10_000.0
"""Ten times what one GPU draws today: a counter that grew faster than this was not counting the same thing."""


class Stretch(NamedTuple):
    """One usage row before it has a sequence. Times in UTC milliseconds, share in millionths, energy in millijoules."""

    gpu: str | None
    kind: UsageKind
    reason: str | None
    holder: Holder
    share: int
    placement: PlacementRef
    starts_ms: int
    ends_ms: int
    utilization: float | None
    measured_ms: int
    """How much of the length `utilization` is the mean of."""
    energy_mj: int | None
    energy_source: EnergySource | None
    taken_from: UsageKind | None = None
    vcpus: int = 0
    """Of kind `cpu` only (see `meter_cpu`): millionths, and MiB of memory; below 0 for those from whom it is taken."""
    memory: int = 0


class EnergyReader:
    """Energy from one reading to the next: the counter's growth, else power integrated over the time.

    A counter that went down was reset (driver reload), one that leapt is garbage: both begin a new epoch, and the
    interval falls back to power. Power is the mean of both ends, or the end that is known.
    """

    __slots__ = ("_at_ms", "_counter", "_watts", "primed")

    def __init__(self) -> None:
        self._at_ms = 0
        self._counter: float | None = None
        self._watts: float | None = None
        self.primed = False
        """Whether there is a reading to count from."""

    def grow(
        self, at_ms: int, counter: float | None, watts: float | None, integrate: bool
    ) -> tuple[float | None, EnergySource | None]:
        """Joules since the last call, and where they come from; (None, None) when neither source tells.

        `integrate` False allows the counter only: for time in which nobody saw what the GPU did.
        """
        before, watts_before, seconds = self._counter, self._watts, (at_ms - self._at_ms) / 1000
        self._at_ms, self._counter, self._watts = at_ms, counter, watts
        if not self.primed:
            self.primed = True
            return None, None
        if before is not None and counter is not None:
            growth = counter - before
            if 0.0 <= growth <= MAX_WATTS * (seconds + 1):
                return growth, "counter"
        if not integrate:
            return None, None
        known = [value for value in (watts_before, watts) if value is not None]
        return (sum(known) / len(known) * seconds, "integrated") if known else (None, None)


class Track:
    """One GPU's open stretch and where it stands. Finished stretches are appended to `rows`."""

    __slots__ = (
        "gpu", "model", "energy", "tenure", "seen", "placement", "starts_ms", "until_ms",
        "_rows", "_row_ms", "_edge_ms", "_busy", "_own", "_measured_ms", "_joules", "_source", "_rest_mj",
    )  # fmt: skip

    def __init__(
        self, gpu: str | None, starts_ms: int, row_ms: int, rows: list[Stretch], placement: PlacementRef, model: str | None = None
    ) -> None:
        self.gpu = gpu
        self.model = model
        self.energy = EnergyReader()
        self.tenure: Tenure = HOST
        self.seen: Gpu | None = None
        """The newest reading that told who holds it: what a claim between two samples is divided by."""
        self.placement = placement
        self.starts_ms = self.until_ms = starts_ms
        self._rows = rows
        self._row_ms = row_ms
        self._edge_ms = 0
        self._joules: float | None = None
        self._source: EnergySource | None = None
        self._rest_mj = 0.0
        self._begin(starts_ms)

    def read_energy(self, gpu: Gpu | None, at_ms: int, integrate: bool) -> tuple[float | None, EnergySource | None]:
        """As `EnergyReader.grow`, from what the driver says at `at_ms`; None: nothing."""
        if gpu is None:
            return self.energy.grow(at_ms, None, None, integrate)
        return self.energy.grow(at_ms, gpu.energy_joules_total, gpu.power_watts, integrate)

    def extend(
        self, until_ms: int, utilization: float | None = None, joules: float | None = None, source: EnergySource | None = None,
        uses: tuple[float, ...] | None = None,
    ) -> None:  # fmt: skip
        """The time up to `until_ms` belongs to the tenure in force; cut at whole multiples of the row length.

        `utilization` and `joules` are of the whole time from the last call to `until_ms`; `uses` is the utilisation of each
        of the tenure's parts, where they differ.
        """
        whole = until_ms - self.until_ms
        while until_ms > self._edge_ms:
            piece = self._edge_ms - self.until_ms
            self._add(piece, utilization, None if joules is None else joules * piece / whole, source, uses)
            self.until_ms = self._edge_ms
            self._finish()
        piece = until_ms - self.until_ms
        part = joules if joules is None or piece == whole else joules * piece / whole
        self._add(piece, utilization, part, source, uses)
        self.until_ms = until_ms
        if until_ms == self._edge_ms:
            self._finish()

    def down(self, until_ms: int, reason: str, joules: float | None = None, source: EnergySource | None = None) -> None:
        """Nothing measured up to `until_ms`: one row of any length, for there is nothing in it to tell apart."""
        self._finish()
        if until_ms <= self.until_ms:
            return
        if joules is not None:
            self._add(0, None, joules, source)
        kept, self.tenure = self.tenure, down(reason)
        self.until_ms = until_ms
        self._finish()
        self.tenure = kept

    def enter(self, tenure: Tenure, placement: PlacementRef) -> None:
        """From `until_ms` on the GPU is this; a change of either closes the open stretch."""
        if placement is self.placement and tenure == self.tenure:
            return
        self._finish()
        self.tenure = tenure
        self.placement = placement

    def finish(self) -> None:
        """Closes the open stretch, if it has any length."""
        self._finish()

    def _add(
        self, length_ms: int, utilization: float | None, joules: float | None, source: EnergySource | None,
        uses: tuple[float, ...] | None = None,
    ) -> None:  # fmt: skip
        if utilization is not None:
            if uses is not None or self._own is not None:
                self._add_own(length_ms, utilization, uses)
            self._busy += utilization * length_ms
            self._measured_ms += length_ms
        if joules is not None:
            self._joules = joules if self._joules is None else self._joules + joules
            self._source = source if self._source in (None, source) else "integrated"

    def _add_own(self, length_ms: int, utilization: float, uses: tuple[float, ...] | None) -> None:
        """Busy time part by part, from the first reading on that tells them apart."""
        count = len(self.tenure.parts)
        before = self._own or (self._busy,) * count
        self._own = tuple(busy + use * length_ms for busy, use in zip(before, uses or (utilization,) * count, strict=True))

    def _means(self, count: int) -> list[float | None]:
        """Utilisation of each part: what its holder did with it, at most all of it."""
        if not self._measured_ms:
            return [None] * count
        return [min(1.0, busy / self._measured_ms) for busy in self._own or (self._busy,) * count]

    def _finish(self) -> None:
        if self.until_ms == self.starts_ms:
            return
        parts, reason = self.tenure
        for part, energy, mean in zip(parts, self._take_energy(parts), self._means(len(parts)), strict=True):
            kind, holder, share = part
            self._rows.append(
                Stretch(
                    self.gpu, kind, reason, holder, share, self.placement,
                    self.starts_ms, self.until_ms, mean, self._measured_ms, energy, self._source,
                )  # fmt: skip
            )
        self._joules, self._source = None, None
        self._begin(self.until_ms)

    def _begin(self, at_ms: int) -> None:
        self.starts_ms = at_ms
        self._edge_ms = (at_ms // self._row_ms + 1) * self._row_ms
        self._busy = 0.0
        self._own: tuple[float, ...] | None = None
        self._measured_ms = 0

    def _take_energy(self, parts: tuple[Part, ...]) -> list[int | None]:
        """Whole millijoules per part; what rounding leaves over goes into the next row, so a sum never drifts."""
        if self._joules is None:
            return [None] * len(parts)
        exact = self._joules * 1000 + self._rest_mj
        whole = round(exact)
        self._rest_mj = exact - whole
        portions = [whole * part.share // WHOLE for part in parts]
        for place in range(whole - sum(portions)):
            portions[place] += 1
        return list(portions)


def merge(rows: list[Stretch]) -> list[Stretch]:
    """The same usage in fewer, longer rows: neighbours that differ only in time become one."""
    merged: list[Stretch] = []
    newest: dict[tuple[object, ...], int] = {}
    for row in rows:
        key = (*row[:5], id(row.placement), *row[-4:])
        place = newest.get(key)
        if place is not None and merged[place].ends_ms == row.starts_ms:
            merged[place] = _join(merged[place], row)
        else:
            newest[key] = len(merged)
            merged.append(row)
    return merged


def _join(one: Stretch, two: Stretch) -> Stretch:
    measured = one.measured_ms + two.measured_ms
    busy = (one.utilization or 0.0) * one.measured_ms + (two.utilization or 0.0) * two.measured_ms
    energy = None if one.energy_mj is None else one.energy_mj + (two.energy_mj or 0)
    return one._replace(
        ends_ms=two.ends_ms, utilization=busy / measured if measured else None, measured_ms=measured, energy_mj=energy
    )
