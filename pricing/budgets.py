"""Budgets of a calendar month: what is spent of them, what the month will have cost, which thresholds are crossed.

Invariant: what is spent is the `total_cost` of the rows of one attribution report, the same figures that `rackrate report`
writes; time without a price is in no sum and makes a state incomplete. Reads no clock: `now` is given.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Literal, NamedTuple

from pricing import calendar, grouping
from pricing.errors import BadBudget, BadRange
from pricing.forecast import MOST_DAYS, Forecast, month_end
from pricing.money import Money
from pricing.report import Report

THRESHOLDS = (Decimal(50), Decimal(80), Decimal(100))
"""Percent of the amount, spent."""
FORECAST_THRESHOLD = Decimal(100)
"""Percent of the amount, expected by the end of the month."""
HYSTERESIS = Decimal(5)
"""A threshold that was crossed is so until the ratio is this many points below it: an alert does not flutter."""

ReportFor = Callable[[tuple[str, ...], datetime, datetime, str, str], Report]
"""(group keys, start, end, tz, currency) -> `attribution.attribute` with a ledger, a catalog and whatever it needs."""


@dataclass(frozen=True, slots=True)
class Budget:
    """`key`: `project`, `user`, `tag:NAME` (then `value` says which), or empty: everything, idle time too."""

    name: str
    amount: Money
    key: str = ""
    value: str = ""
    thresholds: tuple[Decimal, ...] = THRESHOLDS
    tz: str = "UTC"

    def __post_init__(self) -> None:
        where = f"The budget `{self.name}`"
        if self.amount.amount <= 0:
            raise BadBudget(f"{where} has the amount {self.amount.amount}: it must be above 0.")
        if self.key not in ("", "project", "user") and not (self.key.startswith("tag:") and self.key != "tag:"):
            raise BadBudget(
                f"{where} is of `{self.key}`: it can be of a project, a user, a tag (`tag:NAME`), or of everything."
            )
        if bool(self.key) != bool(self.value):
            raise BadBudget(f"{where} does not say which {self.key or 'part'} it is of.")
        if not all(threshold.is_finite() and 0 < threshold <= 1000 for threshold in self.thresholds):
            raise BadBudget(f"{where} has a threshold that is none: write percents above 0 and up to 1000, like [50, 80, 100].")
        object.__setattr__(self, "thresholds", tuple(sorted(set(self.thresholds))))
        try:
            calendar.zone(self.tz)
        except BadRange as error:
            raise BadBudget(f"{where}: {error}") from None

    @property
    def scope(self) -> str:
        """`project vision`, `tag team=red`, `everything`."""
        if not self.key:
            return "everything"
        return f"tag {self.key[4:]}={self.value}" if self.key.startswith("tag:") else f"{self.key} {self.value}"


class Crossed(NamedTuple):
    """A threshold that is crossed: `spent` so far, or `forecast` for the end of the month."""

    kind: Literal["spent", "forecast"]
    percent: Decimal


@dataclass(frozen=True, slots=True)
class BudgetState:
    """A budget at one moment. Amounts are exact, in the budget's currency."""

    budget: Budget
    month: str
    """`2026-03`."""
    start: datetime
    end: datetime
    at: datetime
    spent: Fraction
    complete: bool
    """False when some of the time has no price (it is in no sum), or usage rows are missing."""
    forecast: Forecast
    crossed: tuple[Crossed, ...]
    projected_exhaustion: datetime | None
    """When the whole amount is spent, by the days so far and the forecast; None: not in this month, or not known."""

    @property
    def ratio(self) -> Fraction:
        """Spent of the amount."""
        return self.spent / self.budget.amount.fraction

    @property
    def forecast_ratio(self) -> Fraction | None:
        expected = self.forecast.expected
        return None if expected is None else expected / self.budget.amount.fraction

    @property
    def over(self) -> bool:
        """All of it is spent, and more."""
        return self.ratio > 1

    @property
    def known(self) -> bool:
        """Some of what was spent is known, or all that there was is."""
        return self.complete or self.spent > 0

    @property
    def word(self) -> str:
        """`over`, `likely over`, `80% spent`, `ok`; `not known` where an incomplete sum has not crossed anything yet."""
        if self.over:
            return "over"
        if any(one.kind == "forecast" for one in self.crossed):
            return "likely over"
        spent = [one.percent for one in self.crossed if one.kind == "spent"]
        return f"{max(spent):f}% spent" if spent else "ok" if self.complete else "not known"


class BudgetAlert(NamedTuple):
    """One threshold that is crossed, as a sentence. `(budget, month, kind, percent)` tells it from all others."""

    budget: str
    month: str
    kind: Literal["spent", "forecast"]
    percent: Decimal
    sentence: str
    new: bool
    """It was not crossed in the states before."""


def budget_states(
    budgets: Sequence[Budget],
    report_for: ReportFor,
    now: datetime,
    previous: Iterable[BudgetState] = (),
) -> list[BudgetState]:
    """The state of each budget, in their order. One report is made for each key, time zone and currency among them.

    `previous`: states of an earlier moment, for the hysteresis of thresholds; those of another month count for nothing.
    """
    before = {(state.budget.name, state.month): state for state in previous}
    reports: dict[tuple[str, str, str], _Days] = {}
    states = []
    for budget in budgets:
        kind = budget.key, budget.tz, budget.amount.currency
        if kind not in reports:
            reports[kind] = _days(*kind, report_for, now)
        states.append(_state(budget, reports[kind], now, before))
    return states


class _Days(NamedTuple):
    """Cost per value of the key and day, of one report."""

    start: datetime
    costs: Mapping[str, Mapping[str, Fraction]]
    incomplete: frozenset[str]
    """Values with time in this month that has no price."""
    missing: bool
    """Usage rows of this month are missing."""


def _days(key: str, tz: str, currency: str, report_for: ReportFor, now: datetime) -> _Days:
    today, month = calendar.day_start(now, tz), calendar.month_start(now, tz)
    start = min(month, calendar.day_start(today - timedelta(days=MOST_DAYS), tz))
    end = max(now, today + timedelta(milliseconds=1))
    report = report_for(("day", key) if key else ("day",), start, end, tz, currency)
    first = next(iter(calendar.days(month, end, tz))).label
    costs: defaultdict[str, dict[str, Fraction]] = defaultdict(dict)
    incomplete = set()
    for row in report.rows:
        day, value = row.keys[0], row.keys[1] if key else ""
        if row.total_cost is not None:
            costs[value][day] = row.total_cost
        if not row.complete and day >= first:
            incomplete.add(value)
    missing = bool(report.missing) and (start == month or bool(report_for((), month, end, tz, currency).missing))
    return _Days(start, costs, frozenset(incomplete), missing)


def _state(budget: Budget, days: _Days, now: datetime, before: Mapping[tuple[str, str], BudgetState]) -> BudgetState:
    start = calendar.month_start(now, budget.tz)
    end = calendar.month_start(start + timedelta(days=32), budget.tz)
    group = grouping.shown(budget.value, "") if budget.key else ""
    costs = days.costs.get(group, {})
    today = calendar.day_start(now, budget.tz)
    known = [costs.get(day.label, Fraction(0)) for day in calendar.days(days.start, today, budget.tz)]
    passed = list(calendar.days(start, max(now, start + timedelta(milliseconds=1)), budget.tz))
    so_far = [costs.get(day.label, Fraction(0)) for day in passed]
    left = _left(now, today, end, budget.tz)
    spent = sum(so_far, Fraction(0))
    forecast = month_end(spent, known, [part for part, _ in left])
    month = passed[0].label[:7]
    old = before.get((budget.name, month))
    return BudgetState(
        budget=budget,
        month=month,
        start=start,
        end=end,
        at=now.astimezone(UTC),
        spent=spent,
        complete=group not in days.incomplete and not days.missing,
        forecast=forecast,
        crossed=_crossed(budget, spent, forecast, old.crossed if old else ()),
        projected_exhaustion=_exhaustion(budget, [*zip(so_far, passed, strict=True)], forecast, [day for _, day in left]),
    )


def _left(now: datetime, today: datetime, end: datetime, tz: str) -> list[tuple[Fraction, calendar.Day]]:
    """(share of a day, the stretch) of what the month still has, the rest of today first."""
    begin = max(now.astimezone(UTC), today)
    whole = {day.label: day.end - day.start for day in calendar.days(today, end, tz)}
    return [(Fraction((day.end - day.start) / whole[day.label]), day) for day in calendar.days(begin, end, tz)]


def _crossed(budget: Budget, spent: Fraction, forecast: Forecast, before: Sequence[Crossed]) -> tuple[Crossed, ...]:
    amount = budget.amount.fraction
    candidates = [(Crossed("spent", percent), spent) for percent in budget.thresholds]
    if forecast.expected is not None:
        candidates.append((Crossed("forecast", FORECAST_THRESHOLD), forecast.expected))
    found = []
    for one, value in candidates:
        limit = Fraction(one.percent) / 100 * amount
        if one in before:
            limit -= min(Fraction(HYSTERESIS) / 100 * amount, limit / 2)
        if value >= limit:
            found.append(one)
    return tuple(found)


def _exhaustion(
    budget: Budget, so_far: Sequence[tuple[Fraction, calendar.Day]], forecast: Forecast, left: Sequence[calendar.Day]
) -> datetime | None:
    """Even within a day: the moment at which the sum reaches the amount."""
    total, amount = Fraction(0), budget.amount.fraction
    for cost, day in [*so_far, *zip(forecast.daily, left, strict=False)]:
        if cost > 0 and total + cost >= amount > total:
            share = float((amount - total) / cost)
            return day.start + (day.end - day.start) * share
        total += cost
    return None


def budget_alerts(states: Iterable[BudgetState], previous: Iterable[BudgetState] = ()) -> list[BudgetAlert]:
    """An alert for the highest spent threshold that is crossed, and one for the forecast while the budget is not yet spent."""
    before = {(state.budget.name, state.month): state.crossed for state in previous}
    alerts = []
    for state in states:
        spent = [one for one in state.crossed if one.kind == "spent"][-1:]
        likely = [one for one in state.crossed if one.kind == "forecast" and state.ratio < 1]
        known = before.get((state.budget.name, state.month), ())
        for one in (*spent, *likely):
            sentence = _sentence(state, one)
            alerts.append(BudgetAlert(state.budget.name, state.month, *one, sentence, one not in known))
    return alerts


def _sentence(state: BudgetState, one: Crossed) -> str:
    budget = state.budget
    spent, amount = (Money.of(value, 2, budget.amount.currency) for value in (state.spent, budget.amount.fraction))
    beginning = f"budget {budget.name} ({budget.scope}): {spent} of {amount} spent in {state.month}"
    if one.kind == "spent":
        return f"{beginning}, {float(state.ratio):.0%}: past {one.percent:f} %."
    expected, low, high = (
        Money.of(value or Fraction(0), 2, budget.amount.currency)
        for value in (state.forecast.expected, state.forecast.low, state.forecast.high)
    )
    when = state.projected_exhaustion
    day = "" if when is None else f", spent by about {when.astimezone(calendar.zone(budget.tz)):%Y-%m-%d}"
    return f"{beginning}; {expected} is expected by its end ({low} to {high}){day}."
