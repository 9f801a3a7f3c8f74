"""Budgets: what is spent is what the report says, months are the zone's, thresholds do not flutter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pricing.attribution import attribute
from pricing.budgets import Budget, BudgetState, Crossed, budget_alerts, budget_states
from pricing.calendar import milliseconds, month_start
from pricing.errors import BadBudget
from pricing.ledger import Ledger
from pricing.money import Money
from pricing.report import Report, Row
from tests.support.usage import PriceList, random_record, take_all

NOON = datetime(2026, 3, 20, 12, tzinfo=UTC)
Costs = Mapping[str, Mapping[str, Fraction | None]]


def budget(amount: str = "1000", key: str = "project", value: str = "vision", **other: object) -> Budget:
    return Budget("v", Money.parse(amount), key, value, **other)  # type: ignore[arg-type]


def each_day(amount: float, first: str = "2026-01-20", count: int = 60) -> dict[str, Fraction | None]:
    start = date.fromisoformat(first)
    return {(start + timedelta(days=place)).isoformat(): Fraction(amount) for place in range(count)}


class Reports:
    """Stands in for attribution: value -> day -> cost. None: without a price."""

    def __init__(self, costs: Costs, missing: tuple[str, ...] = ()) -> None:
        self.costs, self.missing = costs, missing
        self.asked: list[tuple[tuple[str, ...], datetime, datetime, str, str]] = []

    def __call__(self, keys: tuple[str, ...], start: datetime, end: datetime, tz: str, currency: str) -> Report:
        self.asked.append((keys, start, end, tz, currency))
        rows = tuple(
            row((day, value)[: len(keys)], cost)
            for value, days in self.costs.items()
            for day, cost in days.items()
            if keys
        )  # fmt: skip
        return Report(rows, row((), Fraction(0)), start, end, tz, currency, keys, (), self.missing)


def row(keys: tuple[str, ...], cost: Fraction | None) -> Row:
    nothing = Fraction(0)
    if cost is None:
        return Row(keys, 0, 0, 0, 0, None, None, None, None, None, complete=False)
    return Row(keys, 0, 0, 0, 0, None, cost, nothing, nothing, nothing, complete=True)


def state(one: Budget, costs: Costs, now: datetime = NOON, previous: list[BudgetState] | None = None) -> BudgetState:
    (found,) = budget_states([one], Reports(costs), now, previous or [])
    return found


def test_an_even_project_is_spent_forecast_and_projected() -> None:
    found = state(budget("500"), {"vision": {**each_day(20), "2026-03-20": Fraction(10)}})
    assert (found.month, found.spent, found.complete) == ("2026-03", 390, True)
    assert (found.start, found.end) == (datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 4, 1, tzinfo=UTC))
    assert found.ratio == Fraction(39, 50) and found.forecast.expected == 620 and found.forecast_ratio == Fraction(31, 25)
    assert found.crossed == (Crossed("spent", Decimal(50)), Crossed("forecast", Decimal(100)))
    assert found.word == "likely over" and not found.over
    assert found.projected_exhaustion == datetime(2026, 3, 26, tzinfo=UTC), "5.5 days of 20 from noon of the 20th"


@pytest.mark.parametrize("seed", [4, 13, 21])
def test_the_figures_are_those_of_the_report_for_random_usage(seed: int) -> None:
    rng = Random(seed)
    with Ledger.open(":memory:") as ledger:
        for node in ("a", "b", "c", "d"):
            take_all(ledger, random_record(rng, node, milliseconds(datetime(2026, 2, 28, 20, tzinfo=UTC))))

        def report_for(keys: tuple[str, ...], start: datetime, end: datetime, tz: str, currency: str) -> Report:
            return attribute(ledger, PriceList(), start, end, keys, tz=tz, currency=currency)  # type: ignore[arg-type]

        now = datetime(2026, 3, 2, 7, 30, tzinfo=UTC)
        tz = "America/New_York"
        some = [("", ""), ("project", "vision"), ("user", "ann"), ("user", "(unknown)"), ("tag:team", "red")]
        budgets = [Budget(f"{key}{value}", Money.parse("10"), key, value, tz=tz) for key, value in some]
        states = budget_states(budgets, report_for, now)
        for (key, value), found in zip(some, states, strict=True):
            whole = attribute(ledger, PriceList(), month_start(now, tz), now, key or (), tz=tz)  # type: ignore[arg-type]
            rows = {one.keys: one.total_cost for one in whole.rows}
            expected = whole.totals.total_cost if not key else rows.get((value,), Fraction(0))
            assert found.spent == (0 if value == "(unknown)" else expected), "a label of ours is nobody's name"
        assert all(states[place].spent > 0 for place in (0, 1, 2, 4)), "there is something to compare"


def test_budgets_of_the_same_key_zone_and_currency_share_one_report() -> None:
    reports = Reports({"vision": each_day(20), "nlp": each_day(5)})
    budgets = [
        budget(), replace(budget(value="nlp"), name="n"), budget(key="user", value="ann"),
        budget(tz="Asia/Tokyo"), Budget("all", Money.parse("5", "CNY")),
    ]  # fmt: skip
    states = budget_states(budgets, reports, NOON)
    assert [(keys, tz, currency) for keys, _, _, tz, currency in reports.asked] == [
        (("day", "project"), "UTC", "USD"), (("day", "user"), "UTC", "USD"),
        (("day", "project"), "Asia/Tokyo", "USD"), (("day",), "UTC", "CNY"),
    ]  # fmt: skip
    assert [float(one.spent) for one in states[:3]] == [400, 100, 0]
    assert budget_states([], reports, NOON) == []


def test_a_month_is_that_of_the_zone_also_over_a_clock_change() -> None:
    now = datetime(2026, 3, 31, 22, 30, tzinfo=UTC)
    assert state(budget(tz="Europe/Berlin"), {"vision": each_day(1, count=90)}, now).month == "2026-04"
    found = state(budget(tz="America/New_York"), {"vision": each_day(1, count=90)}, now)
    assert found.month == "2026-03" and found.end == datetime(2026, 4, 1, 4, tzinfo=UTC)
    assert len(found.forecast.daily) == 1 and found.forecast.daily[0] == pytest.approx(Fraction(11, 48), abs=Fraction(1, 10**6))
    first = state(budget(), {"vision": each_day(7)}, datetime(2026, 3, 1, tzinfo=UTC))
    assert first.spent == 7 and first.month == "2026-03", "the first moment of a month belongs to it"


def test_a_short_history_has_no_forecast_and_nothing_spent_is_ok() -> None:
    found = state(budget("10"), {"vision": each_day(1, "2026-03-18", 3)})
    assert found.forecast.expected is None and found.forecast_ratio is None and found.forecast.reason
    assert found.spent == 3 and found.word == "ok" and found.projected_exhaustion is None
    nobody = state(budget(value="nobody"), {"vision": each_day(1)})
    assert (nobody.spent, nobody.crossed, nobody.complete) == (0, (), True)


def test_time_without_a_price_in_this_month_makes_it_incomplete() -> None:
    old: dict[str, Fraction | None] = {**each_day(20), "2026-02-10": None}
    assert state(budget(), {"vision": old}).complete
    unpriced: dict[str, Fraction | None] = {**each_day(20), "2026-03-10": None}
    found = state(budget(), {"vision": unpriced})
    assert not found.complete and found.spent == 380 and found.known and found.word == "not known"
    nothing = state(budget(), {"vision": {"2026-03-10": None}})
    assert not nothing.known and nothing.spent == 0
    (missing,) = budget_states([budget()], Reports({"vision": each_day(20)}, ("node a: rows 1 to 5 ...",)), NOON)
    assert not missing.complete


def test_a_budget_that_is_spent_says_when_that_was() -> None:
    found = state(budget("100"), {"vision": each_day(20)})
    assert found.over and found.word == "over"
    assert found.projected_exhaustion == datetime(2026, 3, 6, tzinfo=UTC)
    assert [one.percent for one in found.crossed if one.kind == "spent"] == [50, 80, 100]


def test_the_forecast_threshold_stays_crossed_until_it_is_clearly_below() -> None:
    costs = {"vision": {**each_day(20), "2026-03-20": Fraction(10)}}  # 620 are expected
    above, near, below = budget("615"), budget("640"), budget("700")
    first = state(above, costs)
    crossed = Crossed("forecast", Decimal(100))
    assert crossed in first.crossed
    assert crossed not in state(near, costs).crossed
    held = state(near, costs, previous=[first])
    assert crossed in held.crossed, "97 % after it was crossed"
    assert crossed not in state(below, costs, previous=[held]).crossed, "89 % ends it"
    april = datetime(2026, 4, 1, 12, tzinfo=UTC)
    assert not state(near, {"vision": each_day(20, count=71)}, april, [held]).crossed, "a new month begins anew"


@given(st.lists(st.fractions(0, 100), min_size=2, max_size=20), st.integers(1, 500))
@settings(max_examples=25, deadline=None)
def test_a_threshold_never_flutters_within_its_margin(spent: list[Fraction], amount: int) -> None:
    one, before = budget(str(amount)), None
    for cost in spent:
        found = state(one, {"vision": {"2026-03-19": cost}}, previous=[before] if before else None)
        for percent in one.thresholds:
            crossed = Crossed("spent", percent)
            limit = Fraction(percent) / 100 * amount
            if cost >= limit:
                assert crossed in found.crossed
            elif crossed in found.crossed:
                assert before is not None and crossed in before.crossed and cost >= limit - Fraction(amount, 20)
        before = found


def test_alerts_are_of_the_highest_threshold_and_the_forecast_and_know_what_is_new() -> None:
    costs = {"vision": {**each_day(20), "2026-03-20": Fraction(10)}}
    found = state(budget("500"), costs)
    spent, likely = budget_alerts([found])
    assert (spent.kind, spent.percent, spent.new, likely.kind, likely.new) == ("spent", 50, True, "forecast", True)
    assert spent.sentence == "budget v (project vision): $390.00 of $500.00 spent in 2026-03, 78%: past 50 %."
    assert "$620.00 is expected by its end (" in likely.sentence and "spent by about 2026-03-26" in likely.sentence
    assert [one.new for one in budget_alerts([found], [found])] == [False, False]
    (over,) = budget_alerts([state(budget("100"), costs)])
    assert over.percent == 100 and over.kind == "spent"
    assert budget_alerts([state(budget("5000"), costs)]) == []


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"amount": Money.parse("0")}, "above 0"),
        ({"key": "node"}, "can be of a project"),
        ({"key": "tag:"}, "can be of a project"),
        ({"value": ""}, "does not say which project"),
        ({"key": ""}, "does not say which"),
        ({"thresholds": (Decimal(0),)}, "threshold that is none"),
        ({"thresholds": (Decimal("NaN"),)}, "threshold that is none"),
        ({"tz": "Mars/Base"}, "no IANA time zone"),
    ],
)
def test_a_budget_that_is_none_is_told_with_its_name(change: dict[str, object], part: str) -> None:
    with pytest.raises(BadBudget, match="`v`") as error:
        replace(budget(), **change)  # type: ignore[arg-type]
    assert part in str(error.value)


def test_scopes_are_named() -> None:
    assert budget().scope == "project vision" and Budget("a", Money.parse("1")).scope == "everything"
    assert budget(key="tag:team", value="red").scope == "tag team=red"
    assert budget(thresholds=(Decimal(90), Decimal(50), Decimal(90))).thresholds == (50, 90)
