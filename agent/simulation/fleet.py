"""Which nodes a simulated fleet has: N of them over boards, instance types, regions and purchase options.

Invariant: the plans depend on the arguments only; every instance type is one that exists, with the GPUs it really has
unless the caller asks for another number.
"""

from __future__ import annotations

import random

import msgspec

from agent import wire
from agent.simulation.boards import MACHINES, PLAIN_MACHINE, PRESETS
from agent.simulation.faults import NONE, Faults, Filling, Lost, Stall
from agent.simulation.model import NodePlan
from agent.simulation.people import DAY, HOUR

TEAMS = ("llm", "vision", "speech", "serving")


class Place(msgspec.Struct, frozen=True):
    """An instance type somewhere, bought somehow."""

    board: str
    cloud: str
    region: str
    zone: str
    instance_type: str
    purchase: wire.Purchase
    usd_per_hour: str | None = None


PLACES: tuple[Place, ...] = (
    Place("A100", "aws", "us-east-1", "use1-az1", "p4d.24xlarge", "on_demand"),
    Place("H100", "aws", "us-east-1", "use1-az2", "p5.48xlarge", "spot"),
    Place("V100", "aws", "us-east-1", "use1-az5", "p3.16xlarge", "on_demand"),
    Place("A100", "gcp", "us-central1", "us-central1-a", "a2-highgpu-8g", "spot"),
    Place("A100", "aws", "us-west-2", "usw2-az3", "p4d.24xlarge", "spot"),
    Place("H100", "gcp", "europe-west4", "europe-west4-b", "a3-highgpu-8g", "on_demand"),
    Place("T4", "aws", "us-east-1", "use1-az1", "g4dn.12xlarge", "on_demand"),
    Place("V100", "aws", "us-west-2", "usw2-az2", "p3.16xlarge", "spot"),
    Place("H100", "aws", "us-west-2", "usw2-az1", "p5.48xlarge", "reserved_1y", "33.90"),
    Place("A100", "aws", "eu-west-1", "euw1-az2", "p4d.24xlarge", "on_demand"),
)
PROFILE_CYCLE = ("busy", "mixed", "busy", "half", "mixed", "desk", "busy", "mixed", "idle", "serve")


def plan_fleet(nodes: int, gpus: int, seed: int, now: float) -> list[NodePlan]:
    """`nodes` plans named node-0001 ..., each with `gpus` GPUs. `now` (seconds since the epoch) places the faults."""
    return [_plan(number, gpus, seed, now) for number in range(1, nodes + 1)]


def _plan(number: int, gpus: int, seed: int, now: float) -> NodePlan:
    name = f"node-{number:04d}"
    rng = random.Random(f"plan/{seed}/{name}")
    place = PLACES[(number - 1) % len(PLACES)]
    team = TEAMS[(number - 1) // 3 % len(TEAMS)]
    return NodePlan(
        name=name, board=place.board, gpus=gpus, profile=PROFILE_CYCLE[(number * 7 - 1) % len(PROFILE_CYCLE)],
        projects=(team,), machine=MACHINES[place.instance_type], faults=_faults(rng, name, gpus, now), cloud=place.cloud,
        region=place.region, zone=place.zone, instance_type=place.instance_type, purchase=place.purchase,
        usd_per_hour=place.usd_per_hour, tags={"team": team},
    )


def _faults(rng: random.Random, name: str, gpus: int, now: float) -> Faults:
    """Most nodes have none; one in fifty of each kind, from the second node on so that one node alone is healthy."""
    draw = rng.random()
    if name == "node-0001" or draw > 0.08:
        return NONE
    if draw < 0.02 and gpus:
        return Faults(lost=(Lost(gpu=rng.randrange(gpus), since=last_time_of_day(now, rng.uniform(0, DAY))),))
    if draw < 0.04 and gpus:
        return Faults(hot=(rng.randrange(gpus),))
    if draw < 0.06:
        return Faults(filling=Filling())
    return Faults(stall=Stall(key=name))


def last_time_of_day(now: float, second_of_day: float, at_least: float = 2 * HOUR) -> float:
    """The newest moment with this UTC second of the day that is `at_least` seconds before `now`."""
    return (now - at_least - second_of_day) // DAY * DAY + second_of_day


def plan_preset(preset: str, name: str = "simulated") -> NodePlan:
    """One node for `rackrate-agent run --simulate PRESET`. KeyError when there is no such preset."""
    board, gpus = PRESETS[preset]
    profile = {"1xL4": "desk", "4xT4": "serve"}.get(preset, "mixed")
    return NodePlan(name=name, board=board, gpus=gpus, profile=profile, machine=PLAIN_MACHINE)


