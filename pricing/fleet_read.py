"""Reads `FleetUse` from the ledger, in sums that SQLite makes, so that 1,000 nodes take seconds.

Invariant: the window is of whole UTC hours; its days are stretches of 24 hours from its first hour.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from pricing.demand import HOURS_PER_DAY, DemandKey
from pricing.demand_ledger import key_of, purchase_of
from pricing.fleet_use import FleetUse, GpuUse, HolderName, HolderUse, JobUse, NodeUse
from pricing.ledger import Ledger
from pricing.ledger_dictionary import read_placements
from pricing.ledger_merge import HOUR_MS
from pricing.ledger_totals import extent
from pricing.report import SHARE_MS_PER_HOUR
from pricing.usage import KINDS, Placed

HELD, IDLE, HOST = (KINDS.index(kind) for kind in ("held", "idle", "host"))
DARK = tuple(KINDS.index(kind) for kind in ("lost", "down"))
OWNER_TAGS = ("owner", "team")


def read_fleet(ledger: Ledger, start_ms: int, end_ms: int, window_days: int = 7) -> FleetUse | None:
    """Nodes in the last `window_days` of [start_ms, end_ms), jobs in all of it; None where the ledger holds nothing."""
    with ledger.reading() as connection:
        held = extent(connection)
        if held is None:
            return None
        last = min(end_ms, held[1]) // HOUR_MS
        earliest = max(-(-start_ms // HOUR_MS), held[0] // HOUR_MS)
        first = max(earliest, last - window_days * HOURS_PER_DAY)
        return None if first >= last else _Reader(connection, first, last).fleet(earliest)


@dataclass
class _Sum:
    """GPU-hours (or node-hours of a host)."""

    hours: float = 0.0
    measured: float = 0.0
    busy: float = 0.0

    def add(self, share_ms: int, measured: int, busy: int) -> None:
        self.hours += share_ms / SHARE_MS_PER_HOUR
        self.measured += measured / SHARE_MS_PER_HOUR
        self.busy += busy / SHARE_MS_PER_HOUR

    @property
    def ratio(self) -> float | None:
        return self.busy / self.measured if self.measured else None


@dataclass
class _Node:
    placement_id: int = 0
    kinds: dict[int, _Sum] = field(default_factory=lambda: defaultdict(_Sum))
    days: dict[int, _Sum] = field(default_factory=lambda: defaultdict(_Sum))
    holders: dict[int, dict[int, _Sum]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(_Sum)))
    gpus: dict[int, dict[int, _Sum]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(_Sum)))
    gpu_held: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    peak: int | None = None
    node_hours: float = 0.0


class _Reader:
    def __init__(self, connection: sqlite3.Connection, first: int, last: int) -> None:
        self._connection = connection
        self._first, self._last = first, last
        self._placements = read_placements(connection)
        self._holders = {
            id: HolderName(*names) for id, *names in connection.execute("SELECT id, user, project, job FROM holders")
        }
        self._nodes: dict[str, _Node] = defaultdict(_Node)
        self._held: dict[tuple[DemandKey, str], list[int]] = defaultdict(lambda: [0] * (last - first))

    def fleet(self, earliest: int) -> FleetUse:
        self._read_sums()
        notes = self._read_gpus()
        owners = {
            placed.node: placed.tags[tag]
            for placed in self._placements.values()
            for tag in reversed(OWNER_TAGS)
            if tag in placed.tags
        }
        nodes = tuple(self._node(name, node) for name, node in sorted(self._nodes.items()))
        return FleetUse(self._first, self._last, nodes, tuple(self._jobs(earliest)), owners, self._held, notes)

    def _read_sums(self) -> None:
        rows = self._connection.execute(
            "SELECT (at - ?) / 24, placement_id, kind, holder_id, SUM(share_ms), SUM(measured_share_ms), SUM(busy), MAX(at)"
            " FROM hours WHERE at >= ? AND at < ? GROUP BY 1, 2, 3, 4",
            (self._first, self._first, self._last),
        )
        newest: dict[str, int] = {}
        for day, placement_id, kind, holder_id, share_ms, measured, busy, at in rows:
            placed = self._placements[placement_id]
            node = self._nodes[placed.node]
            if at >= newest.get(placed.node, -1):
                newest[placed.node], node.placement_id = at, placement_id
            parts = 1 if kind == HOST else max(1, placed.gpu_count)
            node.node_hours += share_ms / (SHARE_MS_PER_HOUR * parts)
            for found in (node.kinds[kind], node.days[day]):
                found.add(share_ms, measured, busy)
            if kind == HELD or (kind == HOST and any(self._holders[holder_id])):
                node.holders[holder_id][day].add(share_ms, measured, busy)

    def _read_gpus(self) -> tuple[str, ...]:
        """Per GPU and day, and the most GPUs of a node that were held in one hour; from the rows, where they are there."""
        rolled = self._connection.execute(
            "SELECT 1 FROM rolled_hours WHERE hour >= ? AND hour < ? LIMIT 1", (self._first, self._last)
        ).fetchone()
        if rolled:
            return ("Of some hours the ledger keeps only sums (`rackrate ledger retain`): single GPUs are not judged.",)
        span = (self._first, self._last)
        rows = self._connection.execute(
            "SELECT (hour - ?) / 24, placement_id, gpu_id, SUM((ends_ms - starts_ms) * share), SUM(measured_ms * share),"
            f" SUM(busy), SUM(CASE kind WHEN {HELD} THEN (ends_ms - starts_ms) * share ELSE 0 END)"
            " FROM usage WHERE hour >= ? AND hour < ? AND gpu_id > 0 GROUP BY 1, 2, 3",
            (self._first, *span),
        )
        for day, placement_id, gpu_id, share_ms, measured, busy, held in rows:
            node = self._nodes[self._placements[placement_id].node]
            node.gpus[gpu_id][day].add(share_ms, measured, busy)
            node.gpu_held[gpu_id] += held / SHARE_MS_PER_HOUR
        self._read_peaks(span)
        return ()

    def _read_peaks(self, span: tuple[int, int]) -> None:
        for node in self._nodes.values():
            node.peak = 0 if node.gpus else None
        rows = self._connection.execute(
            f"SELECT hour, placement_id, COUNT(DISTINCT gpu_id) FROM usage WHERE hour >= ? AND hour < ? AND kind = {HELD}"
            " GROUP BY hour, node_id, meter_id, placement_id",
            span,
        )
        places: dict[int, tuple[_Node, list[int] | None]] = {}
        for hour, placement_id, held in rows:
            if placement_id not in places:
                placed = self._placements[placement_id]
                key = key_of(placed)
                pool = None if key is None else self._held[key, purchase_of(placed)]
                places[placement_id] = self._nodes[placed.node], pool
            node, pool = places[placement_id]
            node.peak = max(node.peak or 0, held)
            if pool is not None:
                pool[hour - self._first] += held

    def _node(self, name: str, node: _Node) -> NodeUse:
        placed = self._placements[node.placement_id]
        days = list(node.days.values())
        ratios = [day.ratio for day in days if day.ratio is not None]
        last_day = (self._last - 1 - self._first) // HOURS_PER_DAY
        return NodeUse(
            node=name, key=key_of(placed), cloud=placed.cloud, zone=placed.zone, purchase=purchase_of(placed),
            usd_per_hour=placed.usd_per_hour, on_premises=placed.on_premises, gpu_count=placed.gpu_count,
            gpu_model=placed.gpu_model, node_hours=node.node_hours,
            held_hours=node.kinds[HELD].hours, idle_hours=node.kinds[IDLE].hours,
            dark_hours=sum(node.kinds[kind].hours for kind in DARK),
            measured_hours=sum(kind.measured for kind in node.kinds.values()),
            busy_hours=sum(kind.busy for kind in node.kinds.values()),
            days=len(days), most_busy_day=max(ratios, default=None),
            least_measured_day=min((day.measured / day.hours for day in days if day.hours), default=0.0),
            running=last_day in node.days, peak_held=node.peak,
            gpus=tuple(self._gpus(node)), holders=tuple(self._holder_uses(name, node)),
        )  # fmt: skip

    def _gpus(self, node: _Node) -> list[GpuUse]:
        names: Mapping[int, str] = self._gpu_names
        found = []
        for gpu_id, days in sorted(node.gpus.items()):
            ratios = [day.ratio for day in days.values()]
            most = None if any(ratio is None for ratio in ratios) else max(ratio for ratio in ratios if ratio is not None)
            sums = [sum(getattr(day, name) for day in days.values()) for name in ("hours", "measured", "busy")]
            found.append(GpuUse(names[gpu_id], sums[0], node.gpu_held[gpu_id], sums[1], sums[2], most))
        return found

    @property
    def _gpu_names(self) -> dict[int, str]:
        if not hasattr(self, "_names"):
            self._names: dict[int, str] = dict(self._connection.execute("SELECT id, uuid FROM gpus"))
        return self._names

    def _holder_uses(self, name: str, node: _Node) -> list[HolderUse]:
        found = []
        for holder_id, days in sorted(node.holders.items()):
            hours, measured, busy = (sum(getattr(day, part) for day in days.values()) for part in ("hours", "measured", "busy"))
            most = max((day.ratio for day in days.values() if day.ratio is not None), default=None)
            found.append(HolderUse(name, self._holders[holder_id], hours, measured, busy, len(days), most))
        return found

    def _jobs(self, earliest: int) -> list[JobUse]:
        """By whole UTC days: sums per day are enough."""
        rows = self._connection.execute(
            "SELECT placement_id, holder_id, kind, MIN(at), MAX(at), SUM(share_ms), SUM(measured_share_ms), SUM(busy) FROM days"
            f" WHERE at >= ? AND at < ? AND kind IN ({HELD}, {HOST}) GROUP BY 1, 2, 3",
            (earliest // HOURS_PER_DAY, -(-self._last // HOURS_PER_DAY)),
        )
        jobs: dict[tuple[object, ...], _Job] = {}
        for placement_id, holder_id, kind, first, last, *amounts in rows:
            placed, name = self._placements[placement_id], self._holders[holder_id]
            if not any(name):
                continue
            key = (name, key_of(placed), purchase_of(placed))
            job = jobs.setdefault(key, _Job(placed, name))
            job.add(placed, kind, first, last, amounts)
        return sorted(
            (job.use() for job in jobs.values()), key=lambda use: (-use.gpu_hours, *(part or "" for part in use.name))
        )


class _Job:
    def __init__(self, placed: Placed, name: HolderName) -> None:
        self._placed, self._name = placed, name
        self._sum, self._node_hours = _Sum(), 0.0
        self._nodes: set[str] = set()
        self._days: list[int] = []

    def add(self, placed: Placed, kind: int, first: int, last: int, amounts: list[int]) -> None:
        self._sum.add(*amounts)
        self._node_hours += amounts[0] / (SHARE_MS_PER_HOUR * (1 if kind == HOST else max(1, placed.gpu_count)))
        self._nodes.add(placed.node)
        self._days += [first, last]

    def use(self) -> JobUse:
        found, placed = self._sum, self._placed
        return JobUse(
            self._name, key_of(placed), purchase_of(placed), tuple(sorted(self._nodes)), min(self._days), max(self._days),
            found.hours, self._node_hours, found.measured, found.busy,
        )  # fmt: skip
