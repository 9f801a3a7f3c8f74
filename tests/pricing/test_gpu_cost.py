"""What each GPU of a node cost: in sum it is what the report says of the node."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from fractions import Fraction

import pytest

from pricing.attribution import attribute
from pricing.catalog import Catalog
from pricing.gpu_cost import gpu_costs
from pricing.ledger import Ledger
from pricing.rates import Pricing
from tests.support.sample_ledger import fill

START = datetime(2026, 11, 2, tzinfo=UTC)


@pytest.mark.parametrize("hours", [(0, 24), (5, 9)])
def test_the_gpus_of_a_node_sum_to_its_report(hours: tuple[int, int]) -> None:
    catalog = Catalog.embedded()
    with Ledger.open(":memory:") as ledger:
        fill(ledger, START, 24, nodes=3)
        start, end = (START + timedelta(hours=hour) for hour in hours)
        report = attribute(ledger, catalog, start, end, by="node")
        for row in report.rows:
            costs = gpu_costs(ledger, Pricing(catalog), row.keys[0], start, end)
            assert sum((one.allocated or Fraction(0) for one in costs.values()), Fraction(0)) == row.allocated_cost
            assert sum((one.total or Fraction(0) for one in costs.values()), Fraction(0)) == row.total_cost
            assert all(one.until == end for one in costs.values())


def test_a_node_that_the_ledger_does_not_know_has_no_gpus() -> None:
    with Ledger.open(":memory:") as ledger:
        assert gpu_costs(ledger, Pricing(Catalog.embedded()), "nobody", START, START + timedelta(days=1)) == {}


def test_without_a_price_the_energy_is_told_and_the_money_is_not() -> None:
    with Ledger.open(":memory:") as ledger:
        fill(ledger, START, 2, nodes=1)
        ledger_prices = Pricing(Catalog.embedded(), currency="EUR")
        (cost, *_) = gpu_costs(ledger, ledger_prices, "node-00", START, START + timedelta(hours=2)).values()
        assert cost.total is None and cost.allocated is None
