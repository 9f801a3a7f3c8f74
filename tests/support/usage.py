"""Random usage as agents record it, and what it costs by the simplest arithmetic there is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from random import Random
from typing import NamedTuple

from pricing.instances import InstanceType
from pricing.ledger import Ledger
from pricing.money import PerHour
from pricing.quotes import Quote
from pricing.usage import WHOLE_SHARE, Placed, Usage

HOUR_MS = 3_600_000


class Record(NamedTuple):
    """What one agent has."""

    node: str
    meter: str
    rows: list[Usage]
    placements: list[Placed]


@dataclass
class PriceList:
    """Stands in for the catalog: `usd_per_hour` is the price; `gpu_box` has GPUs. Counts what it is asked."""

    asked: int = 0
    currency: str = "USD"
    reasons: dict[str, str] = field(default_factory=dict)

    def instance(self, cloud: str, instance_type: str) -> InstanceType | None:
        if instance_type not in ("gpu_box", "cpu_box"):
            return None
        kind = "gpu" if instance_type == "gpu_box" else "cpu"
        count = 8 if kind == "gpu" else 0
        return InstanceType(cloud, instance_type, None, count, None, None, None, None, None, kind)  # type: ignore[arg-type]

    def quote(
        self, cloud: object, region: object, zone: object, instance_type: object, purchase: object,
        configured_usd_per_hour: str | Decimal | None = None, on_premises: object = None,
    ) -> Quote:  # fmt: skip
        self.asked += 1
        if configured_usd_per_hour is None:
            return Quote(None, None, "", f"No price for {instance_type}: unknown instance type")
        return Quote(PerHour(Decimal(configured_usd_per_hour), self.currency), None, "test")


def random_price(rng: Random, priced: bool) -> str | None:
    if not priced and rng.random() < 0.2:
        return None
    return str(Decimal(rng.randrange(1, 10**8)).scaleb(-rng.randrange(2, 7)))


def random_record(rng: Random, node: str, start_ms: int, *, priced: bool = True) -> Record:
    """One node's usage: rows tile its time, shares of a moment sum to one, the placement changes now and then."""
    gpus = rng.choice((0, 1, 2, 3))
    placements = [
        Placed(
            number, node, rng.choice(("aws", "on_premises", None)), rng.choice(("here", "there", None)), None,
            rng.choice(("gpu_box", "cpu_box", None)), rng.choice(("spot", "on_demand", None)),
            random_price(rng, priced), None, gpus, rng.choice(("T4", None)), rng.choice(({}, {"team": "red"})),
        )
        for number in range(1, rng.choice((2, 3)))
    ]  # fmt: skip
    rows: list[Usage] = []
    at_ms = start_ms + rng.randrange(3 * HOUR_MS)
    for _ in range(rng.randrange(1, 9)):
        ends_ms = at_ms + rng.choice((1, 999, 10_000, 10_000, rng.randrange(1, HOUR_MS), rng.randrange(1, 40 * HOUR_MS)))
        placed = rng.choice(placements)
        for gpu in [f"{node}-{n}" for n in range(gpus)] or [None]:
            rows += _moment(rng, len(rows) + 1, at_ms, ends_ms, gpu, placed.number)
        at_ms = ends_ms
    return Record(node, f"meter-{node}", rows, placements)


def _moment(rng: Random, sequence: int, starts_ms: int, ends_ms: int, gpu: str | None, placement: int) -> list[Usage]:
    kind = "host" if gpu is None else rng.choice(("held", "held", "held", "idle", "lost", "down"))
    parties = rng.sample(["ann", "bob", "(idle)", None], rng.randrange(1, 4)) if kind == "held" else [None]
    cuts = sorted(rng.sample(range(1, WHOLE_SHARE), len(parties) - 1))
    shares = [after - before for before, after in zip([0, *cuts], [*cuts, WHOLE_SHARE], strict=True)]
    source = rng.choice((None, "counter", "integrated"))
    return [
        Usage(
            sequence + place, starts_ms, ends_ms, gpu, kind, "stopped" if kind == "down" else None, share, user,
            rng.choice(("vision", None)) if user else None, rng.choice(("j1", None)) if user else None,
            rng.choice((None, rng.random())), None if source is None else rng.randrange(10**7), source, placement,
        )
        for place, (user, share) in enumerate(zip(parties, shares, strict=True))
    ]  # fmt: skip


def take_all(ledger: Ledger, record: Record, page: int = 10_000) -> None:
    for begin in range(0, len(record.rows), page):
        ledger.take(record.node, record.meter, record.rows[begin : begin + page], record.placements, 1)


def content(ledger: Ledger) -> dict[str, list[tuple[object, ...]]]:
    """All that a ledger says, with names instead of ids, so that two of them can be compared."""
    names = (
        "SELECT hour, nodes.name, meters.name, uuid, starts_ms, first_sequence, usage.ends_ms, number, kind, text, key, share,"
        " source, busy, measured_ms, energy_mj, rows, last_sequence FROM usage JOIN nodes ON nodes.id = usage.node_id"
        " JOIN meters ON meters.id = usage.meter_id JOIN gpus ON gpus.id = gpu_id JOIN reasons ON reasons.id = reason_id"
        " JOIN holders ON holders.id = holder_id JOIN placements ON placements.id = placement_id ORDER BY 1, 2, 3, 4, 5, 6"
    )
    sums = (
        "SELECT at, number, meters.name, kind, key, share_ms, busy, measured_share_ms, energy_mj FROM {} "
        "JOIN placements ON placements.id = placement_id JOIN meters ON meters.id = meter_id"
        " JOIN holders ON holders.id = holder_id ORDER BY 1, 2, 3, 4, 5"
    )
    queries = {"usage": names, "hours": sums.format("hours"), "days": sums.format("days")}
    queries["meters"] = "SELECT name, cursor FROM meters ORDER BY name"
    with ledger.reading() as connection:
        return {name: connection.execute(query).fetchall() for name, query in queries.items()}


def plain_costs(records: Sequence[Record], starts_ms: int, ends_ms: int) -> dict[str, Fraction]:
    """Node -> price x covered time in [starts_ms, ends_ms), row by row; nodes without a price count what has one."""
    costs: defaultdict[str, Fraction] = defaultdict(Fraction)
    for record in records:
        placed = {one.number: one for one in record.placements}
        for row in record.rows:
            length = max(0, min(row.ends_ms, ends_ms) - max(row.starts_ms, starts_ms))
            price = placed[row.placement].usd_per_hour
            if length and price is not None:
                parties = placed[row.placement].gpu_count if row.kind != "host" else 1
                share = Fraction(row.share_millionths, WHOLE_SHARE) / parties
                costs[record.node] += Fraction(price) * Fraction(length, HOUR_MS) * share
    return dict(costs)
