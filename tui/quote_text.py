"""A quote as lines and as JSON: the same on the screen and in `rackrate run --dry-run`.

Invariant: money that is not known is `–` with why; amounts are rounded here and nowhere before.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any, NamedTuple

from tui import format as fmt
from tui.job_rows import span
from tui.quote import Alternative, Calibrated, Quote, cost_of
from tui.records import money


class Part(NamedTuple):
    """One line: its label, its text, and what it is: `strong`, `text`, `dim`, `idle` (beware)."""

    label: str
    text: str
    style: str = "text"


def parts(quote: Quote, *, reasons: bool = True) -> Iterator[Part]:
    """`reasons`: with what speaks against each alternative."""
    held = f"{quote.gpus}, " if quote.gpus else ""
    start = "starts at once" if quote.starts_now else "waits"
    yield Part("would run on", f"{fmt.clean(quote.node)}: {held}{_hourly(quote.usd_per_hour)}, {start}", "strong")
    if not quote.starts_now and quote.reason:
        yield Part("", fmt.clean(quote.reason), "idle")
    yield from _expected(quote)
    yield from _budget(quote)
    for place, one in enumerate(quote.alternatives):
        yield Part("or" if not place else "", alternative_text(one, measured=quote.basis != "limit"))
        if reasons:
            yield from (Part("", f"  {sentence}", "dim") for sentence in one.against)


def alternative_text(one: Alternative, *, measured: bool) -> str:
    """`measured`: its time is that of runs of before; else the time limit's."""
    cost = f", {fmt.usd(one.usd)} {'expected' if measured else 'at the limit'}" if one.usd is not None else ""
    return f"{one.what}: {_hourly(one.usd_per_hour)}{cost}{' (scaled)' if one.scaled else ''}"


def _expected(quote: Quote) -> Iterator[Part]:
    before = quote.measured
    if quote.basis == "measured" and before is not None:
        took = f"{span(float(before.middle))}"
        if before.runs > 1:
            took += f" ({span(float(before.shortest))} to {span(float(before.longest))})"
        runs = "the run before took" if before.runs == 1 else f"the {before.runs} runs before took"
        where = ", on other GPUs" if before.elsewhere else ""
        yield Part("expected", f"{_amount(quote.usd)}: {runs} {took}{where}", "strong")
    elif quote.basis == "calibration" and quote.calibrated is not None:
        yield from _calibrated(quote, quote.calibrated)
    elif quote.seconds is None:
        yield Part("expected", "not known: no time limit is set, and the same command has not run to its end before", "dim")
    if quote.most_usd is not None:
        by = f"its time limit of {span(float(quote.limit_seconds))}" if quote.limit_seconds is not None else "its budget"
        whole = cost_of(quote.usd_per_hour, quote.limit_seconds)
        if whole is not None and quote.most_usd < whole:
            by = "its budget, which ends it before its time limit"
        yield Part("at most", f"{fmt.usd(quote.most_usd)}, by {by}", "text")


def _calibrated(quote: Quote, found: Calibrated) -> Iterator[Part]:
    took, money_range = span(float(found.seconds)), ""
    if found.shortest is not None and found.longest is not None:
        took += f" ({span(float(found.shortest))} to {span(float(found.longest))})"
        ends = [fmt.usd(cost) for end in (found.shortest, found.longest) if (cost := cost_of(quote.usd_per_hour, end)) is not None]
        money_range = f" ({' to '.join(ends)})" if ends else ""
    yield Part("expected", f"{_amount(quote.usd)}{money_range}: {took} of training, {found.how}", "strong")
    yield Part("", f"  {fmt.clean(found.why)}", "dim")


def _budget(quote: Quote) -> Iterator[Part]:
    budget = quote.budget
    if budget is None:
        return
    name = fmt.clean(budget.name)
    if budget.left is None:
        yield Part("budget", f"{name}: what was spent of it is not known", "dim")
        return
    money_text = _money(budget.left, budget.currency)
    text = f"{name}: {money_text} left of {_money(budget.amount, budget.currency)} this month"
    if not budget.complete:
        text += " (some of what was used has no price)"
    over = budget.left < 0 or quote.over_budget
    yield Part("budget", f"{text}{'; this is more than is left' if quote.over_budget else ''}", "idle" if over else "text")


def _money(value: Fraction, currency: str) -> str:
    return fmt.usd(value) if currency == "USD" else f"{currency} {fmt.decimal_of(value, 2):,}"


def _hourly(value: Fraction | None) -> str:
    if value is None:
        return "its price is not known"
    return f"{fmt.usd(value, 2 if value >= 1 else 4)}/h"


def _amount(value: Fraction | None) -> str:
    return "not known" if value is None else fmt.usd(value)


def lines(quote: Quote) -> Iterator[str]:
    """What `rackrate run --dry-run` prints."""
    yield from (f"{part.label:<15}{part.text}".rstrip() for part in parts(quote))


def record(quote: Quote) -> dict[str, Any]:
    """For `--json`: money as decimal strings in US dollars, times in seconds; null: not known."""
    before, budget = quote.measured, quote.budget
    return {
        "usd_per_hour": money(quote.usd_per_hour),
        "expected_usd": money(quote.usd),
        "expected_seconds": _seconds(quote.seconds),
        "expected_from": quote.basis,
        "limit_seconds": _seconds(quote.limit_seconds),
        "most_usd": money(quote.most_usd),
        "measured": None
        if before is None
        else {
            "runs": before.runs, "seconds": _seconds(before.middle), "shortest_seconds": _seconds(before.shortest),
            "longest_seconds": _seconds(before.longest), "other_gpus": before.elsewhere,
        },
        "calibration": None
        if quote.calibrated is None
        else {
            "how": quote.calibrated.how, "seconds": _seconds(quote.calibrated.seconds),
            "shortest_seconds": _seconds(quote.calibrated.shortest), "longest_seconds": _seconds(quote.calibrated.longest),
            "why": quote.calibrated.why,
        },
        "budget": None
        if budget is None
        else {
            "budget": budget.name, "left": money(budget.left), "amount": money(budget.amount), "currency": budget.currency,
            "complete": budget.complete, "over": quote.over_budget,
        },
        "alternatives": [_alternative(one) for one in quote.alternatives],
    }  # fmt: skip


def _alternative(one: Alternative) -> dict[str, Any]:
    return {
        "kind": one.kind, "what": one.what, "cloud": one.cloud, "region": one.region, "instance_type": one.instance_type,
        "usd_per_hour": money(one.usd_per_hour), "expected_usd": money(one.usd), "expected_seconds": _seconds(one.seconds),
        "scaled": one.scaled, "against": list(one.against), "source": one.source,
        "as_of": None if one.as_of is None else one.as_of.isoformat(),
    }  # fmt: skip


def _seconds(value: Fraction | None) -> float | None:
    return None if value is None else round(float(value), 3)
