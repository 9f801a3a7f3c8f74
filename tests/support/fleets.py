"""Small fleets made of wire messages, with a catalog of three prices: for screens and tables without any network.

Invariant: the same call gives the same fleet; time is whatever the caller says.
"""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

from agent import wire
from tui.fleet import Fleet

AT = datetime(2026, 11, 30, 14, 5, 10, tzinfo=UTC)
GIB = 1 << 30
NOW = 1000.0
"""Monotonic seconds of a fleet's newest samples."""

PRICES = {"p4d.24xlarge": "32.7726", "p3.16xlarge": "24.48", "p5.48xlarge": "98.32", "g4dn.12xlarge": "3.912"}


class StubCatalog:
    """Prices by instance type alone; `quote` and `instance` are all that the fleet asks for."""

    def quote(self, cloud: Any, region: Any, zone: Any, instance_type: Any, purchase: Any, **configured: Any) -> Any:
        text = PRICES.get(instance_type) or configured.get("configured_usd_per_hour")
        if text is None:
            reason = f"instance type {instance_type} is not in the price tables; set usd_per_hour in the node's agent.toml"
            return SimpleNamespace(price=None, as_of=None, source="", reason=reason, estimated=False)
        price = SimpleNamespace(amount=Decimal(text), currency="USD")
        return SimpleNamespace(
            price=price, as_of=date(2026, 11, 1), source="AWS price list", reason=None, estimated=purchase == "spot"
        )

    def instance(self, cloud: Any, instance_type: Any) -> Any:
        if instance_type not in PRICES:
            return None
        return SimpleNamespace(cloud=cloud, instance_type=instance_type, gpu_count=8, gpu_model=None, gpu_memory_bytes=None)

    def offers(self, *_: Any, **__: Any) -> list[Any]:
        return []


class Clock:
    """A monotonic clock that a test moves."""

    def __init__(self, at: float = NOW) -> None:
        self.at = at

    def __call__(self) -> float:
        return self.at

    def now(self) -> datetime:
        return AT + timedelta(seconds=self.at - NOW)


def process(pid: int, user: str | None, **fields: Any) -> wire.Process:
    """One process that holds a GPU."""
    values: dict[str, Any] = {
        "command": "python train.py --config configs/vit.yaml", "memory_used_bytes": 30 * GIB, "utilization_ratio": 0.87,
        "job": "4711", "project": "vision", "started_at": AT - timedelta(hours=5),
    }  # fmt: skip
    return wire.Process(pid=pid, user=user, **{**values, **fields})


def gpu(
    index: int, *, node: str = "n", util: float | None = 0.87, users: tuple[str, ...] | None = ("ada",), **fields: Any
) -> wire.Gpu:
    """An A100; `users` None: the driver does not tell who holds it."""
    values: dict[str, Any] = {
        "model": "NVIDIA A100-SXM4-40GB", "state": "ok", "utilization_ratio": util, "memory_used_bytes": 31 * GIB,
        "memory_total_bytes": 40 * GIB, "power_watts": 312.0, "power_limit_watts": 400.0, "temperature_celsius": 64.0,
        "clock_sm_hertz": 1_410_000_000, "clock_memory_hertz": 1_215_000_000, "pcie_generation": 4, "pcie_width": 16,
        "throttle_reasons": (), "ecc_corrected_total": 0, "ecc_uncorrected_total": 0,
        "processes": None if users is None else tuple(process(4000 + index, user) for user in users),
    }  # fmt: skip
    return wire.Gpu(index=index, uuid=f"GPU-{node}-{index}", **{**values, **fields})


def lost_gpu(index: int, *, node: str = "n") -> wire.Gpu:
    """It fell off the bus: only its name is left."""
    return wire.Gpu(
        index=index, uuid=f"GPU-{node}-{index}", model="NVIDIA A100-SXM4-40GB", state="lost",
        reason="GPU is lost: it fell off the bus; reset it or restart the node", xid_last=79, xid_counts={"79": 1},
    )  # fmt: skip


def idle_gpu(index: int, *, node: str = "n") -> wire.Gpu:
    """Nobody holds it."""
    return gpu(index, node=node, util=0.0, users=(), memory_used_bytes=0, power_watts=52.0, temperature_celsius=29.0,
               throttle_reasons=("gpu_idle",))  # fmt: skip


HOST = wire.Host(
    cpu_utilization_ratio=0.42, cpu_count=96, load_1m=40.2, load_5m=38.0, load_15m=33.9, memory_total_bytes=1152 * GIB,
    memory_used_bytes=410 * GIB, memory_available_bytes=742 * GIB, swap_total_bytes=0, swap_used_bytes=0,
    network_receive_bytes_per_second=3.1e8, network_transmit_bytes_per_second=2.2e7, disk_read_bytes_per_second=9.9e8,
    disk_write_bytes_per_second=1.2e6,
    filesystems=(wire.Filesystem(mount="/", total_bytes=200 * GIB, used_bytes=60 * GIB, available_bytes=130 * GIB),),
)  # fmt: skip


def info(node: str, gpus: tuple[wire.Gpu, ...], **fields: Any) -> wire.NodeInfo:
    """Identity of a node in AWS."""
    values: dict[str, Any] = {
        "cloud": "aws", "region": "us-east-1", "zone": "use1-az1", "instance_type": "p4d.24xlarge",
        "purchase": "on_demand", "agent_version": "0.1.0", "driver_version": "550.90.07", "cuda_version": "12.4",
        "os": "Ubuntu 22.04", "kernel": "5.15.0", "cpu_model": "Intel Xeon Platinum 8275CL", "cpu_count": 96,
        "gpus": tuple(wire.GpuInventory(index=g.index, uuid=g.uuid, model=g.model) for g in gpus),
    }  # fmt: skip
    return wire.NodeInfo(node=node, **{**values, **fields})


def sample(node: str, gpus: tuple[wire.Gpu, ...], sequence: int = 1, **fields: Any) -> wire.Sample:
    """A sample taken at AT."""
    return wire.Sample(node=node, sequence=sequence, taken_at=AT, gpus=gpus, **{"host": HOST, **fields})


def put(
    fleet: Fleet, name: str, gpus: tuple[wire.Gpu, ...], *, now: float = NOW, sample_fields: Any = None, **fields: Any
) -> None:
    """Adds a node that has been heard of."""
    fleet.add(name, f"http://127.0.0.1:9477/nodes/{name}/")
    fleet.apply(name, wire.NodeEvent(node=info(name, gpus, **fields)), now)
    fleet.apply(name, wire.SampleEvent(sample=sample(name, gpus, **(sample_fields or {}))), now)


def with_history(fleet: Fleet, name: str, now: float = NOW) -> None:
    """A minute of waves, different for each GPU; ends with the newest sample as it was."""
    view = fleet[name]
    newest = view.sample
    assert newest is not None
    for second in range(60):
        gpus = tuple(
            g if g.utilization_ratio is None else _at(g, abs(math.sin(second / (5 + g.index))) * g.utilization_ratio)
            for g in newest.gpus
        )
        fleet.apply(name, wire.SampleEvent(sample=sample(name, gpus, second)), now)
    fleet.apply(name, wire.SampleEvent(sample=newest), now)


def _at(each: wire.Gpu, ratio: float) -> wire.Gpu:
    import msgspec

    return msgspec.structs.replace(each, utilization_ratio=ratio)


def alert(node: str, **fields: Any) -> wire.Alert:
    """A GPU that is held and idle."""
    values: dict[str, Any] = {
        "key": f"gpu_idle_held/GPU-{node}-1", "rule": "gpu_idle_held", "severity": "warning", "gpu": f"GPU-{node}-1",
        "message": "GPU 1 is held by bob and was under 20 % for 25 minutes: ask bob, or end the job",
        "reading": "3 %", "threshold": "20 %", "since": AT - timedelta(minutes=25), "fired_at": AT - timedelta(minutes=15),
    }  # fmt: skip
    return wire.Alert(node=node, **{**values, **fields})


def small_fleet() -> Fleet:
    """Seven nodes: busy, half idle, with a lost GPU, without a price, without GPUs, stale, lost; and one never heard."""
    fleet = Fleet(StubCatalog())  # type: ignore[arg-type]
    put(fleet, "a100-busy", tuple(gpu(i, node="a100-busy", util=0.55 + 0.05 * i) for i in range(8)))
    half = (
        *(gpu(i, node="a100-half", users=("bob",), util=0.7) for i in range(4)),
        *(idle_gpu(i, node="a100-half") for i in range(4, 8)),
    )
    put(fleet, "a100-half", half, purchase="spot")
    broken = (*(gpu(i, node="v100-broken", users=("carol", "dan")) for i in range(3)), lost_gpu(3, node="v100-broken"))
    put(fleet, "v100-broken", broken, instance_type="p3.16xlarge", zone="use1-az4")
    put(fleet, "mystery", (gpu(0, node="mystery", users=None),), instance_type="x9.unheard", cloud="acme", region=None, zone=None)
    reason = "no NVIDIA driver is loaded: install one, or ignore this on a machine without GPUs"
    put(fleet, "cpu-head", (), instance_type="c5.4xlarge", usd_per_hour="0.68", gpu_reason=reason)
    put(
        fleet,
        "t4-stale",
        tuple(gpu(i, node="t4-stale", users=("eve",)) for i in range(4)),
        now=NOW - 8,
        instance_type="g4dn.12xlarge",
    )
    put(
        fleet,
        "h100-gone",
        tuple(gpu(i, node="h100-gone", users=("fay",)) for i in range(8)),
        now=NOW - 200,
        instance_type="p5.48xlarge",
    )
    fleet.failed("h100-gone", "127.0.0.1:9477 is not reachable: the connection was refused")
    fleet.add("never", "http://127.0.0.1:1/")
    fleet.apply("a100-half", wire.AlertEvent(alert=alert("a100-half")), NOW)
    for name in ("a100-busy", "a100-half", "v100-broken"):
        with_history(fleet, name)
    return fleet


def many(count: int, gpus: int = 8) -> Fleet:
    """`count` equal nodes named `node-0000` and on."""
    fleet = Fleet(StubCatalog())  # type: ignore[arg-type]
    for number in range(count):
        name = f"node-{number:04}"
        put(fleet, name, tuple(gpu(i, node=name, util=(number % 100) / 100) for i in range(gpus)))
    return fleet
