"""A budget's month as the HTML report draws it.

Invariant: what was spent by the end of the last day is the budget state's own sum, to the cent.
"""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from fractions import Fraction

from pricing import calendar, grouping
from pricing.budgets import BudgetState
from pricing.money import to_decimal
from pricing.report import Report
from pricing.reports.charts import Burn


_TICK = timedelta(milliseconds=1)


def burn_of(state: BudgetState, daily: Report) -> Burn:
    """`daily` is by day (and the budget's key), from the start of the month until the state's moment."""
    budget = state.budget
    group = grouping.shown(budget.value, "") if budget.key else ""
    costs: dict[str, Fraction] = {}
    for row in daily.rows:
        if row.total_cost is not None and (not budget.key or row.keys[1] == group):
            costs[row.keys[0]] = costs.get(row.keys[0], Fraction(0)) + row.total_cost
    labels, spent, sum_ = [], [], Fraction(0)
    for day in calendar.days(state.start, state.end, budget.tz):
        labels.append(f"{day.start.astimezone(calendar.zone(budget.tz)):%-d %b}")
        sum_ += costs.get(day.label, Fraction(0))
        spent.append(to_decimal(sum_, 2) if day.start < max(state.at, state.start + _TICK) else None)
    forecast = state.forecast
    range_ = None
    if forecast.low is not None and forecast.expected is not None and forecast.high is not None:
        range_ = tuple(to_decimal(part, 2) for part in (forecast.low, forecast.expected, forecast.high))
    name = f"{budget.name}, {state.month}" + (f" ({budget.scope})" if budget.key else "")
    limit: Decimal = budget.amount.amount
    return Burn(name, limit, tuple(labels), tuple(spent), range_)  # type: ignore[arg-type]
