"""From the meter to the report: what jobs that share GPUs cost, and what stands idle beside them, is the node's price."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import msgspec
import pytest

from agent import wire
from agent.meter_claims import Claim
from agent.meter_holders import WHOLE
from pricing.attribution import attribute
from pricing.calendar import instant
from pricing.ledger import Ledger
from pricing.report import Report
from tests.support.metering import ANN, INFO, T0_MS, Node, gpu, lost
from tests.support.usage import HOUR_MS, PriceList
from tui.sync import placed, usage_rows

PRICE = "3.06"
"""Of a node of two GPUs, an hour."""


def priced_node() -> Node:
    node = Node(durable=False)
    node.info = msgspec.structs.replace(INFO, usd_per_hour=PRICE)
    return node


def report(node: Node, by: str) -> Report:
    """What the node's record costs from T0 to now, after a walk through wire, sync and ledger."""
    node.meter._end(None)
    page = wire.encoder.encode(node.meter.usage(0, 10_000))
    sent = msgspec.json.decode(page, type=wire.UsagePage)
    with Ledger.open(":memory:") as ledger:
        ledger.take(
            sent.node, sent.meter, usage_rows(sent.rows), [placed(one) for one in sent.placements], sent.first_sequence,
            last_sequence=sent.last_sequence,
        )  # fmt: skip
        assert ledger.check() == []
        return attribute(ledger, PriceList(), instant(T0_MS), instant(node.hands.wall_ms), by)  # type: ignore[arg-type]


def test_half_a_gpu_costs_half_and_what_nobody_claims_is_idle() -> None:
    node = priced_node()
    node.meter.claim({"GPU-0": (Claim("ann", "vision", "j1", WHOLE // 2),)})
    node.see(0, gpu(0), gpu(1))
    for _ in range(360):
        node.see(10_000, gpu(0), gpu(1))
    found = report(node, "job")
    assert found.totals.total_cost == Fraction(PRICE)
    costs = {row.keys[0]: (row.allocated_cost, row.idle_cost) for row in found.rows}
    assert costs["j1"] == (Fraction(PRICE) / 4, 0)
    assert sum(idle for _, idle in costs.values()) == Fraction(PRICE) * 3 / 4
    node.meter.close()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("by", ["job", "user", "project"])
def test_a_report_by_anything_adds_up_to_the_price_of_the_node_whatever_jobs_claim(seed: int, by: str) -> None:
    rng, node = Random(seed), priced_node()
    node.see(0, gpu(0), gpu(1))
    for _ in range(300):
        node.hands.pass_ms(rng.randrange(1, 20_000))
        node.meter.claim({f"GPU-{place}": claims(rng) for place in range(3)})
        node.see(rng.randrange(1, 20_000), *[lost(place) if rng.random() < 0.1 else gpu(place, *[ANN] * rng.randrange(2)) for place in (0, 1)])
    found = report(node, by)
    assert found.totals.total_cost == Fraction(PRICE) * Fraction(node.hands.wall_ms - T0_MS, HOUR_MS)
    assert sum(row.total_cost or 0 for row in found.rows) == found.totals.total_cost
    assert found.totals.allocated_cost and found.totals.idle_unallocated_cost and found.totals.idle_lost_cost
    node.meter.close()


def claims(rng: Random) -> tuple[Claim, ...]:
    shares = rng.choice(((), (WHOLE,), (333_333,), (500_000, 250_000), (1, 999_998)))
    return tuple(Claim(rng.choice(("ann", "bob")), None, f"j{rng.randrange(9)}{place}", share) for place, share in enumerate(shares))
