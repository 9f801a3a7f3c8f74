"""Budgets of config.toml, and how the commands show what became of them.

Invariant: a budget that is none is refused when the file is read, with its name; the figures shown are those of the states.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from agent import wire
from pricing.budgets import Budget, BudgetAlert, BudgetState, budget_alerts, budget_states
from pricing.errors import BadBudget, PricingError
from pricing.money import Money
from tui import format as fmt
from tui.errors import ConfigurationError

if TYPE_CHECKING:
    from pricing.ledger import Ledger
    from pricing.rates import Pricing
    from pricing.report import Report
    from tui.config import BudgetConfig, Config

TITLES = ("BUDGET", "OF", "SPENT", "AMOUNT", "USED", "FORECAST", "FROM", "TO", "STATE")
ALIGN = ("left", "left", "right", "right", "right", "right", "right", "right", "left")


def budgets_of(config: Config, zone: str) -> list[Budget]:
    """The budgets of the file; `zone`: of those that name none."""
    return [_budget(one, one.timezone or zone) for one in config.budgets]


def states_of(
    budgets: Sequence[BudgetConfig],
    ledger: Ledger,
    pricing: Pricing,
    zone: str,
    now: datetime,
    previous: Sequence[BudgetState] = (),
) -> list[BudgetState]:
    """What became of them, each in its own currency, under the terms of `pricing`. `previous`: as they stood before."""
    from pricing.attribution import attribute

    def report_for(keys: tuple[str, ...], start: datetime, end: datetime, tz: str, currency: str) -> Report:
        return attribute(
            ledger, pricing.catalog, start, end, keys, tz=tz, prices=pricing.prices, currency=currency, terms=pricing.terms,
            book=pricing.book, now=now,
        )  # fmt: skip

    return budget_states([_budget(one, one.timezone or zone) for one in budgets], report_for, now, previous)


def check_budgets(config: Config, where: str) -> None:
    """ConfigurationError names the file, the budget and what is wrong with it."""
    names = [one.name for one in config.budgets]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ConfigurationError(f"{where}: two budgets are named `{twice}`; names must differ.")
    for one in config.budgets:
        try:
            _budget(one, one.timezone or "UTC")
        except PricingError as error:
            about = "" if f"`{one.name}`" in str(error) else f"budget `{one.name}`: "
            raise ConfigurationError(f"{where}: {about}{error}") from None


def _budget(one: BudgetConfig, zone: str) -> Budget:
    of = [("project", one.project), ("user", one.user), *((f"tag:{key}", value) for key, value in one.tag.items())]
    named = [(key, value) for key, value in of if value is not None]
    if len(named) > 1:
        told = " and ".join(key for key, _ in named)
        raise BadBudget(f"The budget `{one.name}` is of {told}: give one of them, or make two budgets.")
    key, value = named[0] if named else ("", "")
    thresholds = tuple(Decimal(str(threshold)) for threshold in one.thresholds)
    amount = Money.parse(str(one.amount), one.currency, "amount")
    return Budget(one.name, amount, key, value, thresholds, zone)


def budget_rows(states: Sequence[BudgetState]) -> list[tuple[str, ...]]:
    """Cells of `rackrate cost`; `*` marks what is not complete."""
    return [_cells(state) for state in states]


def _cells(state: BudgetState) -> tuple[str, ...]:
    budget, forecast = state.budget, state.forecast
    return (
        fmt.clean(budget.name if state.complete else f"{budget.name} *"),
        fmt.clean(budget.scope),
        _money(state.spent if state.known else None, budget),
        _money(budget.amount.fraction, budget),
        fmt.percent(float(state.ratio) if state.known else None),
        *(_money(value, budget) for value in (forecast.expected, forecast.low, forecast.high)),
        state.word,
    )


def _money(value: Fraction | None, budget: Budget) -> str:
    return fmt.UNKNOWN if value is None else Money.of(value, 2, budget.amount.currency).text()


def budget_notes(states: Sequence[BudgetState]) -> list[str]:
    """What a reader should know: sums that are not whole, forecasts that are none."""
    notes = []
    for state in states:
        if not state.complete:
            notes.append(
                f"budget {state.budget.name}: some of its time has no price in {state.budget.amount.currency}, or its usage rows "
                "are missing; it is in no sum."
            )
        if state.forecast.reason:
            notes.append(f"budget {state.budget.name}: no forecast, {state.forecast.reason}")
    return notes


def budget_record(state: BudgetState) -> dict[str, Any]:
    """For `--json`: amounts as decimal texts, null where not known."""
    budget, forecast, ends = state.budget, state.forecast, state.projected_exhaustion
    return {
        "name": budget.name,
        "of": budget.key or "all",
        "value": budget.value or None,
        "month": state.month,
        "timezone": budget.tz,
        "currency": budget.amount.currency,
        "amount": _text(budget.amount.fraction),
        "spent": _text(state.spent) if state.known else None,
        "spent_ratio": round(float(state.ratio), 6) if state.known else None,
        "complete": state.complete,
        "forecast": {
            "expected": _text(forecast.expected),
            "low": _text(forecast.low),
            "high": _text(forecast.high),
            "confidence": float(forecast.confidence),
            "reason": forecast.reason,
        },
        "crossed": [{"kind": one.kind, "percent": float(one.percent)} for one in state.crossed],
        "projected_exhaustion": None if ends is None else ends.isoformat().replace("+00:00", "Z"),
        "over": state.over,
        "state": state.word,
    }


def _text(value: Fraction | None) -> str | None:
    return None if value is None else f"{fmt.decimal_of(value, 2):f}"


def alert_records(alerts: Sequence[BudgetAlert]) -> list[dict[str, Any]]:
    """For `--json`."""
    return [
        {"budget": one.budget, "month": one.month, "kind": one.kind, "percent": float(one.percent), "message": one.sentence}
        for one in alerts
    ]


def alert_rows(
    states: Sequence[BudgetState], before: Sequence[wire.Alert], previous: Sequence[BudgetState]
) -> tuple[wire.Alert, ...]:
    """The alerts of budgets among those of nodes, the worst first. `before`, `previous`: what was told and known last."""
    since = {alert.key: alert.since for alert in before}
    of_name = {state.budget.name: state for state in states}
    rows = [_row(one, of_name[one.budget], since) for one in budget_alerts(states, previous)]
    ratios = {state.budget.name: -state.ratio for state in states}
    return tuple(sorted(rows, key=lambda row: (row.severity != "critical", ratios[row.holders[0]], row.key)))


def _row(one: BudgetAlert, state: BudgetState, since: Mapping[str, datetime]) -> wire.Alert:
    key = f"budget:{one.budget}:{one.month}:{one.kind}:{one.percent:f}"
    forecast = one.kind == "forecast"
    ratio = state.forecast_ratio if forecast else state.ratio
    return wire.Alert(
        key=key,
        rule="budget_forecast" if forecast else "budget",
        severity="critical" if one.kind == "spent" and state.ratio >= 1 else "warning",
        node="",
        message=one.sentence[0].upper() + one.sentence[1:],
        reading=f"{fmt.percent(None if ratio is None else float(ratio))}{' likely' if forecast else ''}",
        threshold=f"{one.percent:f} %",
        since=since.get(key, state.at),
        fired_at=since.get(key, state.at),
        holders=(one.budget,),
    )
