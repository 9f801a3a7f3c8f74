"""What a job costs: exact, unknown where the price is, and stopped before the budget is overrun."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.jobs import costs

HOUR = 3_600_000


def test_a_job_costs_its_part_of_the_node() -> None:
    node = Decimal("3.10")
    assert costs.cost(node, costs.millionths(8, None), 8, HOUR) == node
    assert costs.cost(node, costs.millionths(0, Decimal("0.5")), 8, HOUR) == Decimal("0.19375")
    assert str(costs.cost(Decimal(80), costs.millionths(1, None), 8, HOUR)) == "10"
    assert costs.usd_per_hour(node, costs.millionths(2, None), 8) == Decimal("0.775")
    assert costs.usd_per_hour(node, 0, 8) is None, "what its processors are worth, the agent does not know"


def test_what_is_not_known_is_not_nothing() -> None:
    assert costs.cost(None, 10**6, 8, HOUR) is None and costs.cost(Decimal(1), 10**6, 0, HOUR) is None
    assert costs.total(Decimal(1), None) is None and costs.total() is None
    for text in ("0", "-1", "NaN", "free", "Infinity"):
        assert costs.price(text, None) is None
    assert costs.price("2", Decimal(3)) == 3 and costs.price("2", None) == 2 and costs.price(None, Decimal(3)) == 3 and costs.price("0", Decimal(3)) == 3


@given(st.decimals("0.0001", "99999", places=4), st.integers(1, 16), st.integers(0, 10**10))
def test_the_parts_of_all_gpus_add_up_to_the_node(price: Decimal, gpus: int, milliseconds: int) -> None:
    whole = costs.cost(price, costs.millionths(gpus, None), gpus, milliseconds)
    parts = costs.total(*[costs.cost(price, costs.WHOLE, gpus, milliseconds)] * gpus)
    assert whole is not None and parts is not None
    assert abs(whole - parts) <= (gpus + 1) * Decimal("0.0000000005")


@pytest.mark.parametrize(
    ("budget", "spent", "rate", "grace", "seconds"),
    [
        ("10", "0", "10", 60.0, 3540.0),
        ("10", "5", "10", 60.0, 1740.0),
        ("0.01", "0", "3.6", 60.0, 5.0),
        ("10", "10", "10", 60.0, 0.0),
        ("10", "11", "10", 60.0, 0.0),
    ],
)
def test_the_grace_ends_when_the_budget_does(budget: str, spent: str, rate: str, grace: float, seconds: float) -> None:
    assert costs.seconds_until_stop(Decimal(budget), Decimal(spent), Decimal(rate), grace) == pytest.approx(seconds)
