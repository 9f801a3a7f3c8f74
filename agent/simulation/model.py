"""The readings of one simulated node at any moment: GPUs, processes, host, inventory.

Invariant: `gpus_at` and `host_at` are pure functions of (plan, seed, watched since, time); asking in another order, in another
process or after a restart gives the same answer. Energy is the exact integral of power without its flicker.
"""

from __future__ import annotations

import math
import random
import uuid
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from agent import wire
from agent.simulation import faults, links
from agent.simulation.boards import BOARDS, GIB, MIB, PLAIN_MACHINE, Board, Machine
from agent.simulation.curves import NOISE, NOISE_MASK
from agent.simulation.people import DAY, HOUR, WEEK
from agent.simulation.schedule import Job, Lane, draw_week

NO_GPU_REASON = "This simulated node has no GPU."
LOST_REASON = "it fell off the bus (XID 79); drain the node and reboot it, and check power and seating if it stays away"
THERMAL_SECONDS = 60.0
"""Temperature follows the mean power of about the last minute."""
NAMESPACE = uuid.UUID("6f2b5c1e-0a53-5c0e-9d0e-7d1f54b6a3c1")
HOT_DERATE = 0.72
"""What a GPU with poor cooling draws at most, as part of a healthy one."""

JobState = tuple[Job, float, float]
"""A running job with its level now and its mean level over the last minute."""


class NodePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a simulated node is. `board` is a key of `BOARDS`, or None for a node without GPUs."""

    name: str
    board: str | None
    gpus: int
    profile: str = "mixed"
    projects: tuple[str, ...] = ()
    machine: Machine = PLAIN_MACHINE
    faults: faults.Faults = faults.NONE
    cloud: str | None = None
    region: str | None = None
    zone: str | None = None
    instance_type: str | None = None
    purchase: wire.Purchase | None = None
    usd_per_hour: str | None = None
    on_premises: wire.OnPremises | None = None
    tags: dict[str, str] = {}


class _Slot(msgspec.Struct, frozen=True):
    """What stays the same for one GPU of the node."""

    index: int
    uuid: str
    salt: int
    factor: float
    """No two boards draw the same power: 0.97-1.0."""
    offset_celsius: float
    hot: bool


class NodeModel:
    """One node. `seed` and the plan's name give it its jobs, its boards' tolerances and its weekly reboot.

    XIDs from before `watched_since` (seconds since the epoch) are not told: an agent counts those it saw.
    """

    def __init__(self, plan: NodePlan, seed: int, *, watched_since: float = 0.0) -> None:
        self.plan = plan
        self._watched_since = watched_since
        self.board: Board | None = BOARDS[plan.board] if plan.board else None
        self._seed = seed
        rng = random.Random(f"node/{seed}/{plan.name}")
        self._reboot_phase = rng.randrange(7) * DAY + rng.uniform(3, 5) * HOUR
        self._salt = rng.randrange(1 << 20)
        self._slots = tuple(self._slot(index, rng) for index in range(plan.gpus if self.board else 0))
        self._weeks: dict[int, tuple[Lane, ...]] = {}
        self.inventory = tuple(self._inventory(slot) for slot in self._slots)

    # -- what does not change -------------------------------------------------------------------------------------

    def _slot(self, index: int, rng: random.Random) -> _Slot:
        name = f"{self._seed}/{self.plan.name}/{index}"
        return _Slot(
            index, f"GPU-{uuid.uuid5(NAMESPACE, name)}", rng.randrange(1 << 20), rng.uniform(0.97, 1.0),
            rng.uniform(-2.5, 3.5), index in self.plan.faults.hot,
        )

    def _inventory(self, slot: _Slot) -> wire.GpuInventory:
        board = self.board
        assert board is not None
        return wire.GpuInventory(
            index=slot.index, uuid=slot.uuid, model=board.model, memory_total_bytes=board.memory_total_bytes,
            power_limit_watts=board.power_limit_watts, pci_bus_id=f"00000000:{0x10 + 0x0B * slot.index:02X}:00.0",
            serial=str(1_650_000_000_000 + slot.salt), compute_capability=board.compute_capability,
            pcie_generation_max=board.pcie_generation, pcie_width_max=16, numa_node=slot.index // 4,
            mig_enabled=False if board.mig_capable else None, clock_sm_max_hertz=board.clock_sm_max_hertz,
            clock_memory_max_hertz=board.clock_memory_hertz, persistence_enabled=True, display_active=False, compute_mode="default",
        )

    def node_info(self, started_at: datetime, agent_version: str | None = None) -> wire.NodeInfo:
        """Identity and inventory as an agent on this node would give them."""
        plan, machine = self.plan, self.plan.machine
        fields = ("cloud", "region", "zone", "instance_type", "purchase", "usd_per_hour", "on_premises")
        placed = {name: getattr(plan, name) for name in fields}
        return wire.NodeInfo(
            node=plan.name, agent_version=agent_version, started_at=started_at, tags=plan.tags, gpus=self.inventory,
            boot_id=str(uuid.uuid5(NAMESPACE, f"boot/{plan.name}/{self.boot_seconds(started_at.timestamp()):.0f}")),
            identity_sources={name: "simulation" for name, value in placed.items() if value is not None},
            os="Ubuntu 22.04.4 LTS", kernel="5.15.0-1063", cpu_model=machine.cpu_model, cpu_count=machine.cpu_count,
            memory_total_bytes=machine.memory_total_bytes, driver_version=self.board and self.board.driver_version,
            cuda_version=self.board and self.board.cuda_version, gpu_reason=None if self.board else NO_GPU_REASON,
            simulated=True, **placed,
        )

    # -- time -----------------------------------------------------------------------------------------------------

    def _week(self, seconds: float) -> int:
        return math.floor((seconds - self._reboot_phase) / WEEK)

    def boot_seconds(self, seconds: float) -> float:
        """When the node last booted (it does so once a week; counters start again): seconds since the epoch."""
        return self._week(seconds) * WEEK + self._reboot_phase

    def lanes_at(self, seconds: float) -> tuple[Lane, ...]:
        """The jobs of the week that `seconds` lies in, per group of GPUs."""
        week = self._week(seconds)
        if week not in self._weeks:
            if len(self._weeks) > 1:
                self._weeks.pop(next(iter(self._weeks)))
            key = f"week/{self._seed}/{self.plan.name}/{week}"
            self._weeks[week] = draw_week(key, self.boot_seconds(seconds), len(self._slots), self.plan.profile, self.plan.projects)
        return self._weeks[week]

    # -- GPUs -----------------------------------------------------------------------------------------------------

    def gpus_at(self, at_ms: int) -> tuple[wire.Gpu, ...]:
        """Every GPU's reading at `at_ms` (UTC milliseconds since the epoch)."""
        if self.board is None:
            return ()
        seconds = at_ms / 1000
        per_gpu = self._holders(seconds)
        lost = {fault.gpu: fault for fault in self.plan.faults.lost if fault.holds(seconds)}
        up_seconds = seconds - self.boot_seconds(seconds)
        return tuple(
            self._lost(slot, lost[slot.index]) if slot.index in lost
            else self._gpu(slot, self.board, seconds, up_seconds, *per_gpu[slot.index])
            for slot in self._slots
        )

    def _holders(self, seconds: float) -> list[tuple[list[JobState], float, float, Lane | None]]:
        """Per GPU: its jobs now, seconds held and weighted level since boot, and its first lane. One look per job, not per GPU."""
        per_gpu: list[tuple[list[JobState], float, float, Lane | None]] = [([], 0.0, 0.0, None) for _ in self._slots]
        for lane in self.lanes_at(seconds):
            held, weighted = lane.totals(seconds)
            job = lane.job_at(seconds)
            state = _state(job, seconds) if job else None
            for index in lane.gpus:
                states, held_before, weighted_before, first = per_gpu[index]
                if state:
                    states.append(state)
                per_gpu[index] = (states, held_before + held, weighted_before + weighted, first or lane)
        return per_gpu

    def _gpu(self, slot: _Slot, board: Board, seconds: float, up_seconds: float, states: list[JobState],
             held_seconds: float, weighted_seconds: float, lane: Lane | None) -> wire.Gpu:
        tick = int(seconds)
        flicker = NOISE[(tick + slot.salt) & NOISE_MASK]
        level, draw, mean_draw, used, processes = _work(states, board, slot.index, seconds, flicker)
        derate = slot.factor * (HOT_DERATE if slot.hot else 1.0)
        span = (board.power_limit_watts - board.idle_watts - board.context_watts) * derate
        floor = board.idle_watts + (board.context_watts * len(states))
        percent = _percent(level, flicker)
        busy = bool(states)
        throttled = slot.hot and mean_draw > 0.55
        return wire.Gpu(
            index=slot.index, uuid=slot.uuid, model=board.model, state="ok",
            utilization_ratio=percent / 100,
            memory_utilization_ratio=percent * 45 // 100 / 100,
            memory_used_bytes=used + 4 * MIB,
            memory_total_bytes=board.memory_total_bytes,
            memory_reserved_bytes=board.memory_reserved_bytes,
            power_watts=round(floor + span * draw + flicker * (0.4 + 4.0 * draw), 1),
            power_limit_watts=board.power_limit_watts,
            energy_joules_total=round(board.idle_watts * up_seconds + board.context_watts * held_seconds + span * weighted_seconds, 1),
            temperature_celsius=_celsius(slot, board, busy, mean_draw),
            clock_sm_hertz=_clock(board, busy, throttled, draw, flicker),
            clock_memory_hertz=board.clock_memory_hertz if busy else board.clock_memory_idle_hertz,
            performance_state=0 if busy else board.performance_state_idle,
            pcie_generation=1 if board.pcie_sleeps and not busy else board.pcie_generation,
            pcie_width=16,
            throttle_reasons=_throttle_reasons(board, busy, throttled),
            encoder_utilization_ratio=0.0,
            decoder_utilization_ratio=0.0,
            ecc_corrected_total=slot.salt % 3 if slot.salt % 11 == 0 else 0,
            ecc_uncorrected_total=0,
            mig_enabled=False if board.mig_capable else None,
            processes=tuple(processes),
            **links.links(board, slot.index, slot.salt, level, lane is not None and len(lane.gpus) > 1, seconds),
            **_xids(lane, slot.index, self._watched_since, seconds),
        )

    def ancestors_at(self, at_ms: int) -> tuple[wire.Ancestor, ...]:
        """What started the programs that hold GPUs of this node at `at_ms` (UTC milliseconds since the epoch)."""
        jobs = (lane.job_at(at_ms / 1000) for lane in self.lanes_at(at_ms / 1000))
        return tuple(links.ancestor(job) for job in jobs if job is not None)

    def _lost(self, slot: _Slot, fault: faults.Lost) -> wire.Gpu:
        seen = fault.since >= self._watched_since
        return wire.Gpu(
            index=slot.index, uuid=slot.uuid, model=self.board and self.board.model, state="lost", reason=LOST_REASON,
            xid_counts={"79": 1} if seen else {}, xid_last=79 if seen else None,
            xid_last_at=datetime.fromtimestamp(fault.since, UTC) if seen else None,
        )

    # -- host -----------------------------------------------------------------------------------------------------

    def host_at(self, at_ms: int) -> wire.Host:
        """The machine's reading at `at_ms` (UTC milliseconds since the epoch)."""
        seconds = at_ms / 1000
        machine = self.plan.machine
        work, hold = self._work(seconds)
        flicker = NOISE[(int(seconds) + self._salt) & NOISE_MASK]
        busy = min(0.97, max(0.004, 0.015 + 0.45 * work + 0.012 * flicker + self._shell_load(seconds)))
        used = int(machine.memory_total_bytes * min(0.92, 0.03 + 0.42 * hold))
        load = busy * machine.cpu_count
        rate = machine.network_bytes_per_second
        return wire.Host(
            cpu_utilization_ratio=round(busy, 3), cpu_count=machine.cpu_count,
            load_1m=round(load, 2), load_5m=round(load * 0.97, 2), load_15m=round(load * 0.93, 2),
            memory_total_bytes=machine.memory_total_bytes, memory_used_bytes=used,
            memory_available_bytes=machine.memory_total_bytes - used - GIB // 2, swap_total_bytes=0, swap_used_bytes=0,
            network_receive_bytes_per_second=float(int(rate * (0.0004 + 0.06 * work * (1 + 0.5 * flicker)))),
            network_transmit_bytes_per_second=float(int(rate * (0.0003 + 0.05 * work * (1 - 0.5 * flicker)))),
            disk_read_bytes_per_second=float(int(2.5e9 * work * (0.12 + 0.1 * (1 + flicker)))),
            disk_write_bytes_per_second=float(int(4e6 + 3e8 * work * (1 - flicker) / 4)),
            filesystems=self._filesystems(seconds), boot_at=datetime.fromtimestamp(int(self.boot_seconds(seconds)), UTC),
        )

    def _work(self, seconds: float) -> tuple[float, float]:
        """Mean level and mean memory of the node's GPUs, 0-1."""
        if not self._slots:
            return 0.0, 0.1
        work = hold = 0.0
        for lane in self.lanes_at(seconds):
            if job := lane.job_at(seconds):
                work += len(lane.gpus) * job.level(seconds)
                hold += len(lane.gpus) * job.memory_ratio
        return min(1.0, work / len(self._slots)), min(1.0, hold / len(self._slots))

    def _shell_load(self, seconds: float) -> float:
        """People and cron on a node without GPUs; they come and go by the minute."""
        return 0.0 if self._slots else 0.09 + 0.07 * NOISE[(int(seconds / 60) + self._salt) & NOISE_MASK]

    def _filesystems(self, seconds: float) -> tuple[wire.Filesystem, ...]:
        root = _filesystem("/", 200 * GIB, 0.31 + (self._salt % 100) / 400)
        filling = self.plan.faults.filling
        if filling:
            return root, _filesystem(filling.mount, self.plan.machine.disk_total_bytes, filling.used_ratio(seconds))
        return root, _filesystem("/scratch", self.plan.machine.disk_total_bytes, 0.2 + (self._salt % 97) / 190)


def _state(job: Job, seconds: float) -> JobState:
    since = max(job.started, seconds - THERMAL_SECONDS)
    return job, job.level(seconds), (job.area(seconds) - job.area(since)) / THERMAL_SECONDS


class _Work(NamedTuple):
    """What the jobs of one GPU do to it: levels are of the whole GPU, `used` is bytes."""

    level: float
    draw: float
    mean_draw: float
    used: int
    processes: list[wire.Process]


def _work(states: list[JobState], board: Board, index: int, seconds: float, flicker: float) -> _Work:
    level = draw = mean_draw = 0.0
    used = 0
    processes: list[wire.Process] = []
    for job, job_level, job_mean in states:
        level += job_level
        draw += job_level * job.intensity
        mean_draw += job_mean * job.intensity
        held_bytes = _memory(job, board, seconds)
        used += held_bytes
        processes.append(_process(job, index, job_level, held_bytes, flicker))
    return _Work(level, draw, mean_draw, used, processes)


def _memory(job: Job, board: Board, seconds: float) -> int:
    """Grows while the job loads, then stays: frameworks keep what they took. Whole MiB, as drivers tell."""
    loaded = min(1.0, 0.15 + 0.85 * (seconds - job.started) / job.warm)
    usable = board.memory_total_bytes - board.memory_reserved_bytes
    return int(usable * job.memory_ratio * loaded) // MIB * MIB


def _percent(level: float, flicker: float) -> int:
    """Whole percents, as NVML tells. Nothing running is exactly 0."""
    return min(100, max(0, int(level * 100 + flicker * 2.5 + 0.5))) if level > 0.0 else 0


def _process(job: Job, index: int, level: float, memory: int, flicker: float) -> wire.Process:
    cpus, resident = links.host_use(job, level, flicker)
    return wire.Process(
        pid=job.pid + 3 * index, user=job.user, command=job.command, memory_used_bytes=memory,
        utilization_ratio=_percent(level, flicker) / 100, job=job.id, project=job.project,
        started_at=datetime.fromtimestamp(int(job.started), UTC), parent_pid=links.launcher_pid(job), cpu_ratio=cpus,
        host_memory_bytes=resident,
    )


def _celsius(slot: _Slot, board: Board, busy: bool, mean_draw: float) -> float:
    """Whole degrees, from the mean power of the last minute. Poor cooling brings a board to its slowdown limit."""
    top = board.slowdown_celsius + 1.0 if slot.hot else board.busy_celsius
    held = 3.0 if busy else 0.0
    span = top - board.idle_celsius - held
    heat = min(1.0, mean_draw * 1.6) if slot.hot else mean_draw
    return float(round(board.idle_celsius + held + span * heat + (0.0 if slot.hot and busy else slot.offset_celsius)))


def _clock(board: Board, busy: bool, throttled: bool, draw: float, flicker: float) -> int:
    """Idle boards clock down; busy ones lose a little to power, hot ones a lot to heat. Steps of 15 MHz."""
    if not busy:
        return board.clock_sm_idle_hertz
    part = 0.66 if throttled else 1.0 - 0.09 * draw
    return int(board.clock_sm_max_hertz * part + flicker * 8e6) // 15_000_000 * 15_000_000


IDLE_REASONS = ("gpu_idle",)
HOT_REASONS = ("sw_thermal_slowdown",)
NO_REASONS: tuple[str, ...] = ()


def _throttle_reasons(board: Board, busy: bool, throttled: bool) -> tuple[str, ...]:
    if throttled:
        return HOT_REASONS
    return NO_REASONS if busy else IDLE_REASONS


def _xids(lane: Lane | None, index: int, since: float, seconds: float) -> dict[str, object]:
    """Errors that jobs left behind on the first GPU of their lane after `since`, and after the node booted."""
    if lane is None or index != lane.gpus[0]:
        return {}
    counts: dict[str, int] = {}
    last: Job | None = None
    for job in lane.jobs[: lane.begun(seconds)]:
        if job.xid is not None and since <= job.ended <= seconds:
            counts[str(job.xid)] = counts.get(str(job.xid), 0) + 1
            last = job
    if last is None:
        return {}
    return {"xid_counts": counts, "xid_last": last.xid, "xid_last_at": datetime.fromtimestamp(int(last.ended), UTC)}


def _filesystem(mount: str, total: int, used_ratio: float) -> wire.Filesystem:
    used = int(total * used_ratio)
    return wire.Filesystem(mount=mount, total_bytes=total, used_bytes=used, available_bytes=total - used)
