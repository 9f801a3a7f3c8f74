"""The range beside the saving of a commitment: what it holds, how it is told, and what it does with little evidence."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pricing.commitment_range import Purchase, range_of

RATIO = Fraction(63, 100)


def purchase(hours: np.ndarray, count: int = 5, price: float = 10.0, term_days: int = 365) -> Purchase:
    used = np.minimum(hours, count)
    by_hour = price * used - float(RATIO) * price * count
    saving, cost = float(by_hour.mean()) * 730, float(RATIO) * price * count * 730
    return Purchase(count, 1.0, hours, hours, by_hour, saving, cost, RATIO, term_days)


def fleet(weeks: list[float]) -> np.ndarray:
    return np.repeat(np.array(weeks, float), 168)


def test_the_longer_a_fleet_stood_still_the_less_it_is_supposed_to_fall() -> None:
    lows = [float(range_of(purchase(fleet([6.0] * weeks))).low) for weeks in (1, 4, 12, 52)]
    assert lows == sorted(lows) and lows[0] < 0 < lows[-1]
    assert all(range_of(purchase(fleet([6.0] * weeks))).high == Fraction(13505) for weeks in (1, 4, 52)), "all of it used"


def test_a_fleet_that_was_seen_to_fall_may_fall_again() -> None:
    steady, falling = (range_of(purchase(fleet(weeks))) for weeks in ([9.0] * 12, [30, 24, 30, 20, 28, 16, 22, 14, 20, 10, 16, 9]))
    assert falling.low < steady.low and falling.low < 0
    assert any("loses money" in risk for risk in falling.risks)


def test_a_longer_term_is_less_sure() -> None:
    hours = fleet([6.0] * 12)
    assert range_of(purchase(hours, term_days=1095)).low < range_of(purchase(hours, term_days=28)).low


def test_a_walk_forward_tells_its_origins_and_what_came_of_them() -> None:
    told = range_of(purchase(fleet([8.0] * 6)))
    assert told.evidence["walk_forward"] == "Over 5 origins, judged on the 7 to 35 days that followed: 100% of what was promised came true."
    broken = range_of(purchase(fleet([8.0, 8.0, 8.0, 2.0, 2.0, 8.0])))
    assert "of what was promised came true" in str(broken.evidence["walk_forward"])
    assert broken.low < told.low


def test_what_is_too_short_for_a_walk_forward_says_so() -> None:
    told = range_of(purchase(fleet([6.0])))
    assert told.evidence["walk_forward"] == "The evidence is too short for one: it takes two weeks."
    assert any("could be judged" in risk for risk in told.risks) and told.low < 0
    idle = range_of(purchase(np.concatenate((np.zeros(336), fleet([6.0])))))
    assert "nothing would have been bought" in str(idle.evidence["walk_forward"])


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(4, 20), min_size=1, max_size=8), st.integers(1, 9), st.sampled_from((28, 365, 1095)))
def test_the_range_holds_the_saving_and_lies_between_all_and_nothing_used(weeks: list[int], count: int, term: int) -> None:
    bought = purchase(fleet([float(nodes) for nodes in weeks]), count, term_days=term)
    assume(bought.saving > 0)
    told = range_of(bought)
    assert -bought.cost <= float(told.low) + 0.01 and float(told.low) - 0.01 <= bought.saving <= float(told.high) + 0.01
    assert float(told.high) <= bought.cost / float(RATIO) * (1 - float(RATIO)) + 0.01
    assert told == range_of(bought), "the same evidence, the same range"


@pytest.mark.parametrize("factor", [0.25, 8.0])
def test_scaled_prices_scale_the_range(factor: float) -> None:
    hours = fleet([30, 24, 30, 20, 28, 16, 22])
    one, other = range_of(purchase(hours, price=16.0)), range_of(purchase(hours, price=16.0 * factor))
    assert float(other.low) == pytest.approx(float(one.low) * factor, abs=0.02 * max(1, factor))
    assert float(other.high) == pytest.approx(float(one.high) * factor, abs=0.02 * max(1, factor))
