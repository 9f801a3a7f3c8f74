"""Published traces of GPU clusters as usage rows: openb (Alibaba 2023, pods that hold fractions of a GPU) and Philly
(Microsoft 2017, jobs of whole GPUs), as an agent on each node would have written them.

Invariant: what is held sums to the trace's GPU time to the millisecond, per job; each GPU's rows tile its time from its first
use to its last, with shares of exactly one at every moment (what nobody held is idle).

The traces do not tell which GPU a job ran on: pods go to the first node with room, jobs to the lowest free GPUs of their
cluster. The data: github.com/alibaba/clusterdata (openb_pod_list, openb_node_list) and github.com/msr-fiddle/philly-traces
(as timestamp, duration, num_gpus, gpu_time, cluster).
"""

from __future__ import annotations

import csv
import gzip
import heapq
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import NamedTuple

from pricing.calendar import milliseconds
from pricing.errors import TraceError
from pricing.usage import WHOLE_SHARE, Placed, Usage

OPENB_START = datetime(2023, 1, 1, tzinfo=UTC)
"""openb counts seconds from a moment that it does not tell."""


class Job(NamedTuple):
    """What held GPUs. `share`: millionths of each of its GPUs. `cluster`: where, if the trace tells."""

    name: str
    starts_ms: int
    ends_ms: int
    gpus: int
    share: int
    cluster: str | None = None
    user: str | None = None

    @property
    def share_ms(self) -> int:
        """Milliseconds x millionths of a GPU."""
        return (self.ends_ms - self.starts_ms) * self.gpus * self.share


class Machine(NamedTuple):
    name: str
    gpus: int
    model: str | None = None


class NodeUsage(NamedTuple):
    """One node's record, as `Ledger.take` wants it."""

    node: str
    placed: Placed
    rows: list[Usage]


class _Hold(NamedTuple):
    job: Job
    gpu: int


def openb_pods(path: Path, start: datetime = OPENB_START) -> Iterator[Job]:
    """The pods that held GPUs; what never ran (or for no time) is left out. TraceError names file, row and column."""
    base = milliseconds(start)
    for row in _Table(path, ("name", "num_gpu", "gpu_milli", "qos", "deletion_time", "scheduled_time")):
        gpus, milli = row.whole("num_gpu"), row.whole("gpu_milli")
        if not gpus or not row.text("scheduled_time"):
            continue
        if not 0 < milli <= 1000:
            raise row.wrong("gpu_milli", "between 1 and 1000 thousandths of a GPU")
        starts, ends = row.milliseconds("scheduled_time"), row.milliseconds("deletion_time")
        if ends > starts:
            yield Job(row.text("name"), base + starts, base + ends, gpus, milli * (WHOLE_SHARE // 1000), None, row.text("qos"))


def openb_nodes(path: Path) -> list[Machine]:
    """The nodes in the order of the file. TraceError."""
    return [
        Machine(row.text("sn"), row.whole("gpu"), row.text("model") or None) for row in _Table(path, ("sn", "gpu", "model"))
    ]


def philly_jobs(path: Path) -> Iterator[Job]:
    """The jobs; their times have no zone and are taken as UTC. TraceError."""
    for row in _Table(path, ("timestamp", "duration", "num_gpus", "cluster")):
        starts, length = row.time("timestamp"), row.milliseconds("duration")
        if length > 0:
            yield Job(f"job-{row.line:06}", starts, starts + length, row.whole("num_gpus"), WHOLE_SHARE, row.text("cluster"))


class _Table:
    """A CSV file, also a compressed one, whose rows know where they stand."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self._path = path
        self._columns = columns

    def __iter__(self) -> Iterator[_TableRow]:
        opened = gzip.open if self._path.suffix == ".gz" else open
        try:
            with opened(self._path, "rt", encoding="utf-8", newline="") as file:
                reader = csv.DictReader(file)
                if missing := [name for name in self._columns if name not in (reader.fieldnames or ())]:
                    raise TraceError(f"{self._path}: there is no column '{missing[0]}'; it needs {', '.join(self._columns)}.")
                for values in reader:
                    yield _TableRow(self._path, reader.line_num, values)
        except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as error:
            raise TraceError(f"{self._path}: the trace cannot be read ({error}).") from error


class _TableRow(NamedTuple):
    path: Path
    line: int
    values: dict[str, str | None]

    def text(self, column: str) -> str:
        return (self.values[column] or "").strip()

    def whole(self, column: str) -> int:
        text = self.text(column)
        if not (text.isascii() and text.isdigit() and len(text) < 10):
            raise self.wrong(column, "a whole number")
        return int(text)

    def milliseconds(self, column: str) -> int:
        """Seconds in the file."""
        try:
            ms = Decimal(self.text(column)) * 1000
            if ms.is_finite() and 0 <= ms < 2**53 and ms == int(ms):
                return int(ms)
        except InvalidOperation:
            pass
        raise self.wrong(column, "a number of seconds")

    def time(self, column: str) -> int:
        try:
            return milliseconds(datetime.fromisoformat(self.text(column)).replace(tzinfo=UTC))
        except ValueError:
            raise self.wrong(column, "a time like 2017-10-09 07:01:55") from None

    def wrong(self, column: str, what: str) -> TraceError:
        return TraceError(f"{self.path}, line {self.line}, column {column}: '{self.text(column)[:40]}' is not {what}.")


def on_machines(jobs: Iterable[Job], machines: Sequence[Machine]) -> Iterator[NodeUsage]:
    """Each job on the first machine with room when it starts. TraceError where none has."""
    free = [[WHOLE_SHARE] * machine.gpus for machine in machines]
    holds: defaultdict[int, list[_Hold]] = defaultdict(list)
    running: list[tuple[int, int, int, list[int], int]] = []
    for count, job in enumerate(sorted(jobs, key=lambda job: (job.starts_ms, job.name))):
        while running and running[0][0] <= job.starts_ms:
            _, _, place, gpus, share = heapq.heappop(running)
            for gpu in gpus:
                free[place][gpu] += share
        place, gpus = _room(job, free)
        for gpu in gpus:
            free[place][gpu] -= job.share
            holds[place].append(_Hold(job, gpu))
        heapq.heappush(running, (job.ends_ms, count, place, gpus, job.share))
    for place, held in sorted(holds.items()):
        yield _node(machines[place], held)


def _room(job: Job, free: Sequence[Sequence[int]]) -> tuple[int, list[int]]:
    for place, of_machine in enumerate(free):
        found = [gpu for gpu, share in enumerate(of_machine) if share >= job.share]
        if len(found) >= job.gpus:
            fullest = sorted(found, key=lambda gpu: of_machine[gpu])  # fractions go where others are already
            return place, fullest[: job.gpus]
    raise TraceError(f"{job.name} needs {job.gpus} GPUs, and no node of the trace has them free when it starts.")


def on_clusters(jobs: Iterable[Job], *, idle: bool = True) -> Iterator[NodeUsage]:
    """Each cluster as one node with as many GPUs as were ever held at once; a job gets the lowest that are free.

    `idle` False leaves out the time that nobody held: three quarters of the rows, and their tiling.
    """
    clusters: defaultdict[str, list[Job]] = defaultdict(list)
    for job in jobs:
        clusters[job.cluster or ""].append(job)
    for name, of_cluster in sorted(clusters.items()):
        count, holds = 0, []
        free: list[int] = []
        running: list[tuple[int, int]] = []
        for job in sorted(of_cluster, key=lambda job: (job.starts_ms, job.name)):
            while running and running[0][0] <= job.starts_ms:
                heapq.heappush(free, heapq.heappop(running)[1])
            for _ in range(job.gpus):
                if free:
                    gpu = heapq.heappop(free)
                else:
                    gpu, count = count, count + 1
                holds.append(_Hold(job, gpu))
                heapq.heappush(running, (job.ends_ms, gpu))
        yield _node(Machine(name, count), holds, idle)


def _node(machine: Machine, holds: Sequence[_Hold], idle: bool = True) -> NodeUsage:
    by_gpu: defaultdict[int, list[Job]] = defaultdict(list)
    for hold in holds:
        by_gpu[hold.gpu].append(hold.job)
    rows = [row for gpu, jobs in sorted(by_gpu.items()) for row in _tiled(f"{machine.name}-{gpu}", jobs)]
    rows = rows if idle else [row for row in rows if row.kind != "idle"]
    rows.sort(key=lambda row: (row.starts_ms, row.gpu))
    placed = Placed(1, machine.name, "on_premises", gpu_count=machine.gpus, gpu_model=machine.model)
    return NodeUsage(machine.name, placed, [row._replace(sequence=number) for number, row in enumerate(rows, 1)])


def _tiled(gpu: str, jobs: Sequence[Job]) -> Iterator[Usage]:
    """The rows of one GPU: cut wherever a job comes or goes, and what is left over is idle."""
    begins: defaultdict[int, list[Job]] = defaultdict(list)
    for job in jobs:
        begins[job.starts_ms].append(job)
    edges = sorted({edge for job in jobs for edge in (job.starts_ms, job.ends_ms)})
    now: list[Job] = []
    for start, end in zip(edges, edges[1:], strict=False):
        now = [job for job in now if job.ends_ms > start] + begins[start]
        for job in now:
            yield _row(start, end, gpu, "held", job.share, job)
        left = WHOLE_SHARE - sum(job.share for job in now)
        if left:
            yield _row(start, end, gpu, "idle", left, None)


def _row(starts_ms: int, ends_ms: int, gpu: str, kind: str, share: int, job: Job | None) -> Usage:
    user, project, name = (None, None, None) if job is None else (job.user or None, job.cluster, job.name)
    return Usage(0, starts_ms, ends_ms, gpu, kind, None, share, user, project, name, None, None, None, 1)
