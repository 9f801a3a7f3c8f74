"""A ledger as a team of some projects fills it: nodes of three clouds, jobs that come and go, idle nights, a lost GPU.

Invariant: the same arguments give the same ledger; GPUs x time is covered without gap or overlap.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime
from random import Random

from pricing.ledger import Ledger
from pricing.usage import WHOLE_SHARE, Placed, Usage

HOUR_MS = 3_600_000
PROJECTS = ("vision", "speech", "language", "robotics", "search", "ads-ranking", "weather", "protein", "audio")
USERS = ("ann", "bob", "cho", "dee", "eva", "finn")
FLEET = (
    ("aws", "us-east-1", "use1-az1", "p4d.24xlarge", "on_demand", 8, "A100"),
    ("aws", "us-east-1", "use1-az2", "p4d.24xlarge", "spot", 8, "A100"),
    ("aws", "eu-west-1", None, "g5.xlarge", "on_demand", 1, "A10G"),
    ("gcp", "us-central1", None, "a2-highgpu-8g", "on_demand", 8, "A100"),
    ("azure", "eastus", None, "Standard_NC6s_v3", "on_demand", 1, "V100"),
)  # fmt: skip


def fill(ledger: Ledger, start: datetime, hours: int, nodes: int = 6, seed: int = 7) -> None:
    """Takes `hours` of `nodes` nodes from `start` on."""
    for number in range(nodes):
        node = f"node-{number:02}"
        rows = list(_rows(Random(f"{seed}{node}"), node, number, round(start.timestamp() * 1000), hours))
        for begin in range(0, len(rows), 5_000):
            ledger.take(node, f"m-{node}", rows[begin : begin + 5_000], [placed(node, number)], 1)


def placed(node: str, number: int) -> Placed:
    cloud, region, zone, name, purchase, gpus, model = FLEET[number % len(FLEET)]
    tags = {"team": "red" if number % 2 else "blue", "cost center": f"{4000 + number}"}
    return Placed(1, node, cloud, region, zone, name, purchase, gpu_count=gpus, gpu_model=model, tags=tags)


def _rows(rng: Random, node: str, number: int, start_ms: int, hours: int) -> Iterator[Usage]:
    gpus, sequence = FLEET[number % len(FLEET)][5], 0
    holder: list[tuple[str, str, str] | None] = [None] * gpus
    for hour in range(hours):
        night = 0.16 + 0.14 * math.sin(hour / 24 * 2 * math.pi) + (0.32 if hour // 24 % 7 in (0, 6) else 0)
        for gpu in range(gpus):
            if rng.random() < 0.08 or not hour:
                project = PROJECTS[min(int(rng.expovariate(0.55)), len(PROJECTS) - 1)]
                job = f"{project}-{rng.choice(('train', 'sweep', 'eval'))}-{rng.randrange(1, 4):02}"
                holder[gpu] = None if rng.random() < night else (rng.choice(USERS), project, job)
            kind, reason = "held" if holder[gpu] else "idle", None
            if number == 3 and gpu == 5 and hours - 240 <= hour < hours - 150:
                kind = "lost"
            if number == 1 and hours - 330 <= hour < hours - 300:
                kind = "down"
            user, project, job = holder[gpu] if kind == "held" and holder[gpu] else (None, None, None)
            sequence += 1
            ratio = min(1.0, max(0.05, rng.gauss(0.66 + 0.14 * math.sin(hour / 24 / 4.1) - 0.05 * math.cos(hour / 24 * 1.7), 0.16))) if kind == "held" else 0.0 if kind == "idle" else None
            energy = None if kind in ("lost", "down") else 280 * HOUR_MS
            yield Usage(
                sequence, start_ms + hour * HOUR_MS, start_ms + (hour + 1) * HOUR_MS, f"{node}-GPU-{gpu}", kind, reason,
                WHOLE_SHARE, user, project, job, ratio, energy, None if energy is None else "counter", 1,
            )  # fmt: skip
