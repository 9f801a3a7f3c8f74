"""The meter: turns samples into usage rows that say who held which GPU, when, and how busy it was.

Invariant: from the agent's first moment on, the rows of each GPU tile the time, with shares that sum to exactly 1;
a node always has either GPU rows or `host` rows, so its whole price can be laid on them. Rows never change.

What the time between two samples is called:
- It belongs to the holders seen at its beginning; busy ratio and energy are those read at its end. Of a GPU that several
  share, energy is divided by their shares and the busy ratio as they used it (`meter_holders`, `meter_use`).
- Longer than `stall_seconds` (suspended, starved): `down`, reason `stalled`. The wall clock was set forward: `clock_step`.
- Between the newest row of the last run and this start: `agent_stopped`; from then until the driver's first answer
  (at most START_WAIT_MS): `starting`.
- A GPU that is lost, or missing while others answer, or whose driver is gone or silent for longer than
  `stall_seconds`, is `lost` with the reason. A missing one stays so until the agent restarts, or until the node's
  instance type becomes another: then it is no longer part of the node (its record ends; should it come back, a new
  one begins at first sight). While a restarted agent finds no driver, the GPUs that it knew are `lost`.
- A GPU that jobs claim (`claim`) is theirs by what they claimed; only the rest is what the driver shows (`meter_claims`).
- A node that never had a GPU: `host`, one row at a time without a GPU.
- What jobs without a GPU hold of the processors and the memory stands in rows beside these (`meter_cpu`).
Up to one row length that was not written yet is lost when the agent is killed; it becomes `agent_stopped`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import msgspec

from agent import wire
from agent.errors import StateDirectoryError
from agent.meter_claims import Claim, checked, claimed_tenure, tenure_now
from agent.meter_clock import MeterClock, Tick
from agent.meter_cpu import CpuClaim, CpuTrack
from agent.meter_driver import inventory_known, reading_age_ms
from agent.meter_holders import UNREADABLE
from agent.meter_interruptions import Interruptions
from agent.meter_roster import Roster
from agent.meter_store import MeterStore, Retention
from agent.meter_track import Stretch
from agent.meter_use import use_of_parts
from agent.meter_waiting import Waiting

START_WAIT_MS = 10_000
"""How long a start waits for the driver's first answer before it calls a node one without GPUs."""
SETTLE_MS = 3_000
"""Nothing is written before this: time for the cloud's metadata to say what the node is, so that its rows are priced."""
OLD_READING_MS = 5_000
"""Readings older than this are shown by the sampler, but nothing is measured by them."""
LARGEST_PAGE = 10_000
_DAY_MS = 86_400_000


class Meter:
    """The usage record of one node. Every method may be called from any thread.

    A write that fails is no error of `observe`: `problem` says it in a sentence, and the rows wait in memory.
    """

    def __init__(
        self, store: MeterStore, node: str, row_ms: int, stall_ms: int, retention_ms: int | None,
        projects: Mapping[str, str], clock: MeterClock, durable: bool,
    ) -> None:  # fmt: skip
        self._store = store
        self._node = node
        self._row_ms = row_ms
        self._stall_ms = stall_ms
        self._retention = Retention(retention_ms)
        self._projects = projects
        self._clock = clock
        self._durable = durable
        self._lock = threading.RLock()
        self._restored = store.kept()
        self._interruptions = Interruptions(store.interruptions())
        self._booted_at: datetime | None = None
        self._first_ms: int | None = None
        self._claims: Mapping[str, tuple[Claim, ...]] = {}
        self._at_ms = self._observed_ms = max((one.until_ms for one in self._restored), default=0)
        self._started = self._closed = self._given_time = False
        self._standing: Tick | None = None
        self._waiting = Waiting()
        self._rows: list[Stretch] = self._waiting.rows
        self._roster = Roster(node, row_ms, self._rows, store.placement())
        self._cpu_claims: tuple[CpuClaim, ...] = ()
        self._cpu = CpuTrack(row_ms, self._rows)
        self._problem: str | None = None

    @classmethod
    def open(
        cls,
        path: str | Path,
        node: str,
        *,
        row_seconds: float = 10.0,
        durable: bool = True,
        retention_days: float | None = 90,
        projects: Mapping[str, str] | None = None,
        stall_seconds: float | None = None,
        clock: MeterClock | None = None,
    ) -> Meter:
        """Opens or makes the record at `path` (`:memory:` for one that lives as long as the process).

        `row_seconds`: the longest row, except `down` ones. `durable` False: a power cut may take the newest rows.
        `retention_days` None keeps everything. `projects`: user -> project, where the process names none.
        `stall_seconds`: the longest time between two samples that still counts as measured (default 30 s, or twice
        the row length where that is more). StateTooNew, StateFull, StateLocked, StateDirectoryError.
        """
        stall = max(30.0, 2 * row_seconds) if stall_seconds is None else stall_seconds
        retention_ms = None if retention_days is None else round(retention_days * _DAY_MS)
        store = MeterStore.open(path, durable=durable)
        try:
            return cls(
                store, node, max(1, round(row_seconds * 1000)), round(stall * 1000), retention_ms,
                dict(projects or {}), clock or MeterClock(), durable,
            )  # fmt: skip
        except BaseException:
            store.close()
            raise

    @property
    def meter(self) -> str:
        """Random name of this record."""
        return self._store.meter

    @property
    def problem(self) -> str | None:
        """A sentence: why rows cannot be written now; None while all is well."""
        return self._problem

    @property
    def waiting_rows(self) -> int:
        """Finished rows that are not written yet."""
        return len(self._rows)

    def observe(self, sample: wire.Sample, info: wire.NodeInfo, *, at_ms: int | None = None) -> None:
        """Takes what was read at `at_ms` (UTC milliseconds; default: now, by the meter's own clock). The disk cannot make it fail.

        An `at_ms` before the last one counts as the last one. After `close` this does nothing.
        """
        with self._lock:
            tick = None if self._closed else self._tick(at_ms)
            if tick is None:
                return
            if self._started:
                self._advance(sample, tick)
            else:
                self._start(sample, info, tick.at_ms)
            self._at_ms = self._observed_ms = tick.at_ms
            if sample.host is not None and sample.host.boot_at is not None:
                self._booted_at = sample.host.boot_at
            if self._started:
                self._enter(sample, info)
                self._interruptions.measured(tick.at_ms, info.boot_id, self._booted_at)
                self._write_if_due()

    def claim(
        self, claims: Mapping[str, tuple[Claim, ...]], cpu: tuple[CpuClaim, ...] = (), *, at_ms: int | None = None
    ) -> None:
        """From now on (or `at_ms`) these jobs hold these shares of these GPUs (by UUID), until the next call; those of `cpu`
        hold processors and memory alone.

        The rest of a GPU is what its processes say, or idle; see `meter_claims`. Before the first row the claims stand
        from the record's beginning; after `close` this does nothing. ValueError: not a share, or more than one GPU.
        The energy read at the end of the second that this cuts counts to its later part.
        """
        with self._lock:
            given = checked(claims, self._projects)
            if self._closed or (given == self._claims and cpu == self._cpu_claims):
                return
            self._claims, self._cpu_claims = given, cpu
            tick = self._tick(at_ms) if self._started else None
            if tick is None:
                return
            self._reach(tick)
            for uuid, track in self._roster.tracks.items():
                if uuid is not None and track.seen is not None and track.tenure.measured:
                    track.enter(claimed_tenure(track.seen, given.get(uuid, ()), self._projects), track.placement)
            self._enter_cpu()

    @contextmanager
    def moment(self) -> Iterator[int]:
        """Milliseconds since boot, at which claims of this thread are made until the end of it; other threads wait that long.

        So what is written elsewhere of a job's time, such as its cost, is what its rows say.
        """
        with self._lock:
            tick = self._tick(None) if self._started and not self._closed else None
            if tick is not None:
                self._reach(tick)
                self._standing = Tick(tick.at_ms)
            try:
                yield self._clock.boot_of(None if tick is None else tick.at_ms)
            finally:
                self._standing = None

    def notice(self, notice: wire.Notice) -> None:
        """The cloud told something: that it ends this node is written down at once. See `meter_interruptions`."""
        with self._lock:
            if not self._closed:
                info = self._roster.info
                self._interruptions.take(notice, self._booted_at, None if info is None else info.boot_id)
                self._keep_interruptions()

    def _keep_interruptions(self) -> None:
        problem = self._interruptions.keep(self._store)
        if problem is not None:
            self._report(problem)

    def usage(self, after: int = 0, limit: int = 1000) -> wire.UsagePage:
        """The written rows with a sequence above `after`, at most `limit` (1 to 10,000). StateDirectoryError: unreadable."""
        with self._lock:
            if self._problem is None and self._batching():
                self.flush()
            page = self._store.page(self._node, max(0, after), min(max(1, limit), LARGEST_PAGE))
            told = tuple(self._interruptions.told())
            return msgspec.structs.replace(page, interruptions=told) if told else page

    def flush(self) -> None:
        """Writes the finished rows, in one transaction. What cannot be written stays, and `problem` says why."""
        with self._lock:
            self._keep_interruptions()
            if not self._rows and not self._roster.unwritten:
                return
            try:
                self._store.append(self._rows, self._roster.kept(), self._roster.placement)
            except StateDirectoryError as error:
                self._waiting.failed()
                self._report(f"usage cannot be written now and waits in memory: {error}")
                return
            self._waiting.written()
            self._roster.written()
            self._report(None)
            self._retention.prune(self._store, self._at_ms)

    def close(self, at_ms: int | None = None) -> None:
        """Ends the open rows now (or at `at_ms`), writes everything, closes the file. StateDirectoryError when it cannot."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            try:
                self._end(at_ms)
            finally:
                self._store.close()
            if self._rows:
                raise StateDirectoryError(f"{len(self._rows)} usage rows are lost, their time will be `down`: {self._problem}")

    def _end(self, at_ms: int | None) -> None:
        tick = self._tick(at_ms) if self._started else None
        if tick is not None:
            self._advance(None, tick)
            for track in self._roster.tracks.values():
                track.finish()
            self._cpu.finish()
        self.flush()

    def _tick(self, at_ms: int | None) -> Tick | None:
        if self._standing is not None:
            return self._standing
        self._given_time = at_ms is not None
        if at_ms is not None:
            return Tick(max(at_ms, self._at_ms))
        tick = self._clock.read(self._at_ms)
        if tick is None:
            self._report("the clock of this machine is not set; usage is recorded from the moment it is: start an NTP client")
        return tick

    # The beginning

    def _start(self, sample: wire.Sample, info: wire.NodeInfo, at_ms: int) -> None:
        """Waits until the driver has answered, or had time to; then covers all time up to now."""
        if self._first_ms is None:
            self._first_ms = at_ms
        if not inventory_known(sample) and at_ms - self._first_ms < START_WAIT_MS:
            return
        self._started = True
        roster = self._roster
        if roster.placement is None:
            roster.begin(sample.gpus, info, self._first_ms)
        roster.restore(self._restored)
        self._cpu.skip(at_ms)
        for track in roster.tracks.values():
            track.down(self._first_ms, "agent_stopped")
            track.down(at_ms, "starting")
        if sample.gpus:
            roster.retire_all_but({gpu.uuid for gpu in sample.gpus})

    # The time since the last sample

    def _advance(self, sample: wire.Sample | None, tick: Tick) -> None:
        """`sample` None: nothing was read at the end of it."""
        until = tick.at_ms if tick.stepped_from_ms is None else tick.stepped_from_ms
        stalled = until - self._observed_ms > self._stall_ms
        if stalled:
            self._interruptions.suspended()
        read = sample is not None and reading_age_ms(sample) <= OLD_READING_MS
        gpus = {gpu.uuid: gpu for gpu in sample.gpus} if sample is not None and read else {}
        for uuid, track in self._roster.tracks.items():
            gpu = gpus.get(uuid) if uuid is not None else None
            seen = not stalled and track.tenure.measured
            joules, source = track.read_energy(gpu, until, seen) if read else (None, None)
            if stalled:
                track.down(until, "stalled", joules, source)
            else:
                measured = gpu if seen else None
                uses = None if measured is None or len(track.tenure.parts) == 1 else use_of_parts(track.tenure.parts, measured, self._projects)
                track.extend(until, None if measured is None else measured.utilization_ratio, joules, source, uses)
            if tick.at_ms > until:
                track.down(tick.at_ms, "clock_step")
        (self._cpu.skip if stalled else self._cpu.extend)(until)
        if tick.at_ms > until:
            self._cpu.skip(tick.at_ms)

    def _reach(self, tick: Tick) -> None:
        """A time at which nothing was read."""
        self._advance(None, tick)
        self._at_ms = tick.at_ms
        self._observed_ms += 0 if tick.stepped_from_ms is None else tick.at_ms - tick.stepped_from_ms

    # From now on

    def _enter(self, sample: wire.Sample, info: wire.NodeInfo) -> None:
        """Which GPUs there are, what the node is, and who holds what."""
        gpus = {gpu.uuid: gpu for gpu in sample.gpus}
        placement = self._roster.enter(gpus, info, self._at_ms)
        age_ms = reading_age_ms(sample)
        hung = age_ms > self._stall_ms
        for uuid, track in self._roster.tracks.items():
            tenure = tenure_now(uuid, gpus, self._claims, self._projects, hung)
            if tenure is UNREADABLE and age_ms > OLD_READING_MS and track.tenure.measured:
                tenure = track.tenure  # the driver is late: who held the GPU holds it still
            elif uuid is not None and tenure.measured:
                track.seen = gpus[uuid]
            track.enter(tenure, placement)
        self._enter_cpu()

    def _enter_cpu(self) -> None:
        placement = self._roster.placement
        assert placement is not None
        facts = placement.facts
        tenures = tuple(track.tenure for track in self._roster.tracks.values())
        self._cpu.enter(self._cpu_claims, tenures, placement, (facts.vcpus, facts.memory_bytes))

    # To the disk

    def _batching(self) -> bool:
        return self._given_time or not self._durable

    def _write_if_due(self) -> None:
        settled = self._first_ms is not None and self._at_ms - self._first_ms >= SETTLE_MS
        if self._first_ms is not None and self._waiting.due(batched=self._batching(), settled=settled):
            self.flush()

    def _report(self, problem: str | None) -> None:
        self._problem = problem
