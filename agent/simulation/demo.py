"""The twelve nodes of `--preset demo`: every kind of board, purchase option and trouble that a fleet knows.

Invariant: exactly twelve nodes, each an instance type with its real GPU count, where a price is known or configured.
"""

from __future__ import annotations

from decimal import Decimal

from agent import wire
from agent.simulation.boards import GIB, MACHINES, Machine
from agent.simulation.faults import NONE, Faults, Filling, Lost, Stall
from agent.simulation.fleet import last_time_of_day
from agent.simulation.model import NodePlan
from agent.simulation.people import HOUR

STALLING_NODE = "v100-dev-01"
LOST_NODE = "v100-lab-01"

LAB_MACHINE = Machine(cpu_model="Intel(R) Xeon(R) Gold 6148 CPU @ 2.40GHz", cpu_count=80, memory_total_bytes=768 * GIB,
                      disk_total_bytes=7_600 * 10**9, network_bytes_per_second=1.25e9)
LAB_PRICE = wire.OnPremises(purchase_usd=Decimal("92000"), years=Decimal("4"), power_watts=Decimal("2600"),
                            power_usd_per_kwh=Decimal("0.21"))


def plan_demo(now: float) -> list[NodePlan]:
    """The plans; `now` (seconds since the epoch) places the moment at which a GPU fell off the bus."""
    fell_off = max(last_time_of_day(now, 5.7 * HOUR), last_time_of_day(now, 17.7 * HOUR))
    lab_faults = Faults(lost=(Lost(gpu=5, since=fell_off),), hot=(2,), filling=Filling())
    return [
        _aws("h100-train-01", "p5.48xlarge", "us-east-1", "use1-az2", "reserved_1y", "H100", 8, "busy", "llm", usd="33.90"),
        _gcp("h100-train-02", "a3-highgpu-8g", "us-central1", "us-central1-a", "spot", "H100", 8, "mixed", "llm"),
        _aws("a100-train-01", "p4d.24xlarge", "us-east-1", "use1-az1", "on_demand", "A100", 8, "busy", "vision"),
        _aws("a100-train-02", "p4d.24xlarge", "us-east-1", "use1-az6", "spot", "A100", 8, "busy", "speech"),
        _gcp("a100-lab-01", "a2-highgpu-8g", "us-central1", "us-central1-c", "on_demand", "A100", 8, "half", "vision"),
        _aws("v100-train-01", "p3.16xlarge", "us-east-1", "use1-az5", "on_demand", "V100", 8, "idle", "speech"),
        _lab(LOST_NODE, lab_faults),
        _aws(STALLING_NODE, "p3.2xlarge", "us-west-2", "usw2-az2", "spot", "V100", 1, "desk", "vision",
             faults=Faults(stall=Stall(key=STALLING_NODE))),
        _aws("t4-serve-01", "g4dn.12xlarge", "us-east-1", "use1-az1", "on_demand", "T4", 4, "serve", "serving"),
        _aws("t4-dev-01", "g4dn.xlarge", "us-east-1", "use1-az2", "spot", "T4", 1, "desk", "serving"),
        _gcp("l4-dev-01", "g2-standard-4", "europe-west4", "europe-west4-a", "on_demand", "L4", 1, "desk", "speech"),
        _aws("cpu-head-01", "c5.4xlarge", "us-east-1", "use1-az1", "on_demand", None, 0, "idle", "serving", usd="0.68"),
    ]


def _aws(name: str, kind: str, region: str, zone: str, purchase: wire.Purchase, board: str | None, gpus: int, profile: str,
         team: str, *, usd: str | None = None, faults: Faults = NONE) -> NodePlan:
    return NodePlan(
        name=name, cloud="aws", region=region, zone=zone, instance_type=kind, purchase=purchase, usd_per_hour=usd,
        board=board, gpus=gpus, profile=profile, projects=(team,), tags={"team": team}, machine=MACHINES[kind], faults=faults,
    )


def _gcp(name: str, kind: str, region: str, zone: str, purchase: wire.Purchase, board: str, gpus: int, profile: str,
         team: str) -> NodePlan:
    return NodePlan(
        name=name, cloud="gcp", region=region, zone=zone, instance_type=kind, purchase=purchase, board=board, gpus=gpus,
        profile=profile, projects=(team,), tags={"team": team}, machine=MACHINES[kind],
    )


def _lab(name: str, faults: Faults) -> NodePlan:
    return NodePlan(
        name=name, cloud="on_premises", region="zurich", zone="rack-7", on_premises=LAB_PRICE, board="V100", gpus=8,
        profile="mixed", projects=("speech",), tags={"team": "speech"}, machine=LAB_MACHINE, faults=faults,
    )
