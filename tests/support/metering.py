"""Building blocks of the meter's tests: a clock that is moved by hand, samples, and the check that rows tile the time.

Invariant: `check_cover` knows nothing of how the meter works; it only reads rows and placements as a client gets them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

from agent import wire
from agent.meter import Meter
from agent.meter_clock import MeterClock

T0_MS = 1_750_000_000_000
INFO = wire.NodeInfo(node="n1", gpus=(), cloud="aws", region="us-east-1", instance_type="g4dn.12xlarge", purchase="spot")
ANN = wire.Process(pid=11, user="ann", project="vision")
BOB = wire.Process(pid=12, user="bob", job="j-7")
EVE = wire.Process(pid=13, user="eve")


class HandClock:
    """A wall clock and a boot clock in milliseconds; `pass_ms` moves both, `set_wall` one."""

    def __init__(self, wall_ms: int = T0_MS) -> None:
        self.wall_ms = wall_ms
        self.boot_ms = 5_000

    def pass_ms(self, ms: int) -> None:
        self.wall_ms += ms
        self.boot_ms += ms

    def step_wall(self, ms: int) -> None:
        self.wall_ms += ms

    def clock(self) -> MeterClock:
        """What a new process reads."""
        return MeterClock(lambda: self.wall_ms, lambda: self.boot_ms)


def gpu(index: int = 0, *processes: wire.Process, **fields: object) -> wire.Gpu:
    """An `ok` T4; `processes=None` for a driver that does not tell."""
    given: dict[str, object] = {
        "uuid": f"GPU-{index}", "model": "Tesla T4", "state": "ok", "processes": processes, "utilization_ratio": 0.5,
        "power_watts": 70.0,
    }  # fmt: skip
    return wire.Gpu(index=index, **(given | fields))  # type: ignore[arg-type]


def lost(index: int = 0) -> wire.Gpu:
    return wire.Gpu(index=index, uuid=f"GPU-{index}", model="Tesla T4", state="lost", reason="fallen off the bus")


def sample(*gpus: wire.Gpu, at_ms: int = T0_MS, reason: str | None = None, ok: bool | None = True, age_ms: int = 0) -> wire.Sample:
    """`ok` None: no GPU sensor has reported yet. `age_ms`: how old its reading is."""
    at = utc(at_ms)
    taken_at = at - timedelta(milliseconds=age_ms)
    reports = () if ok is None else (wire.SensorReport(name="nvml", ok=ok, taken_at=taken_at),)
    return wire.Sample(node="n1", sequence=1, taken_at=at, gpus=gpus, gpu_reason=reason, sensors=reports)


def utc(ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)


def ms(at: datetime) -> int:
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


class Node:
    """A meter on a hand-moved clock. `see` waits, then observes."""

    def __init__(self, path: str | Path = ":memory:", hands: HandClock | None = None, **options: object) -> None:
        self.hands = hands or HandClock()
        self.info = INFO
        self.meter = Meter.open(path, "n1", clock=self.hands.clock(), **options)  # type: ignore[arg-type]

    def see(self, wait_ms: int, *gpus: wire.Gpu, **of_sample: object) -> None:
        self.hands.pass_ms(wait_ms)
        self.meter.observe(sample(*gpus, at_ms=self.hands.wall_ms, **of_sample), self.info)  # type: ignore[arg-type]

    def rows(self) -> list[wire.UsageRow]:
        """All rows so far, the open ones ended now."""
        self.meter._end(None)
        return all_rows(self.meter)[0]

    def spans(self, gpu: str | None = "GPU-0") -> list[tuple[int, int, str, str | None]]:
        """(start, end, kind, reason or user) of one GPU's rows."""
        found = [row for row in self.rows() if row.gpu == gpu]
        return [(ms(row.starts_at) - T0_MS, ms(row.ends_at) - T0_MS, row.kind, row.reason or row.user) for row in found]


def all_rows(meter: Meter, page_size: int = 700) -> tuple[list[wire.UsageRow], dict[int, wire.Placement]]:
    """Every row, read page by page, as a client does."""
    rows: list[wire.UsageRow] = []
    placements: dict[int, wire.Placement] = {}
    while True:
        page = meter.usage(rows[-1].sequence if rows else 0, page_size)
        rows += page.rows
        placements |= {one.id: one for one in page.placements}
        if not rows or rows[-1].sequence == page.last_sequence:
            return rows, placements


def check_sequences(rows: Sequence[wire.UsageRow]) -> None:
    assert [row.sequence for row in rows] == list(range(1, len(rows) + 1))


def check_row(row: wire.UsageRow) -> None:
    assert row.starts_at < row.ends_at
    length = Decimal(ms(row.ends_at) - ms(row.starts_at)) / 1000
    assert row.gpu_seconds == (row.share * length if row.gpu else 0)
    assert 0 < row.share <= 1 and row.share == round(row.share, 6)
    assert row.energy_joules is None or row.energy_joules >= 0
    assert (row.energy_joules is None) == (row.energy_source is None)
    assert row.kind == "held" or (row.user, row.project, row.job) == (None, None, None)
    assert (row.reason is not None) == (row.kind in ("lost", "down"))


def check_gpu_tiles(rows: Sequence[wire.UsageRow], gpu: str | None) -> None:
    """From its first row's start to its last row's end: no gap, no overlap, shares that sum to exactly 1."""
    shares: dict[tuple[datetime, datetime], Decimal] = defaultdict(Decimal)
    for row in rows:
        if row.gpu == gpu:
            shares[row.starts_at, row.ends_at] += row.share
    spans = sorted(shares)
    assert all(share == 1 for share in shares.values())
    assert all(one[1] == two[0] for one, two in zip(spans, spans[1:], strict=False)), (gpu, spans)


def check_cover(rows: Sequence[wire.UsageRow], placements: dict[int, wire.Placement]) -> None:
    """At every moment: as many GPUs have rows as the placement in force says share the node's price, or else the host has.

    Up to the moment where the first GPU's record ends: after a kill they end apart. Rows of processors stand beside these.
    """
    rows = [row for row in rows if row.kind != "cpu"]
    if not rows:
        return
    events: list[tuple[datetime, int, wire.UsageRow]] = []
    for row in rows:
        check_row(row)
        events += [(row.starts_at, 1, row), (row.ends_at, -1, row)]
    events.sort(key=lambda event: (event[0], event[1]))
    shares: dict[str | None, Decimal] = defaultdict(Decimal)
    open_rows: dict[int, wire.UsageRow] = {}
    live = [row for row in rows if row.placement == max(rows, key=lambda row: row.ends_at).placement]
    end = min(max(row.ends_at for row in live if row.gpu == gpu) for gpu in {row.gpu for row in live})
    for place, (at, change, row) in enumerate(events):
        shares[row.gpu] += change * row.share
        if change > 0:
            open_rows[row.sequence] = row
        else:
            del open_rows[row.sequence]
        if place + 1 < len(events) and events[place + 1][0] > at and at < end:
            _check_moment(at, shares, open_rows, placements)


def _check_moment(
    at: datetime, shares: dict[str | None, Decimal], rows: dict[int, wire.UsageRow], placements: dict[int, wire.Placement]
) -> None:
    held = {gpu for gpu, share in shares.items() if share}
    counts = {placements[row.placement].gpu_count for row in rows.values()}
    assert all(shares[gpu] == 1 for gpu in held), (at, dict(shares))
    assert len(counts) == 1, (at, counts)
    count = counts.pop()
    assert held == {None} if count == 0 else None not in held and len(held) == count, (at, held, count)
