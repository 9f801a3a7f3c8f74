"""What Cost Explorer says of EC2 instances, as the lines of a bill (pricing/compare_read.py), a day at a time.

Two requests: the use by instance type and region, and all charges of the services that instances are billed under, by the
kind of charge. Invariant: the lines sum to the second answer, exactly: what it tells beyond the first is a line of its own.
AWS: https://docs.aws.amazon.com/aws-cost-management/latest/APIReference/API_GetCostAndUsage.html
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime, time
from fractions import Fraction
from typing import Any, NamedTuple

from pricing import compare_read as bills
from pricing.compare_read import Line
from pricing.sources import BadAnswer
from pricing.sources.aws_costs import Budget, currency_of, days_of, money_of, pages_of
from pricing.sources.aws_session import AwsSession

REQUESTS = 2
"""As many as are expected; each further page is one more."""
COMPUTE_SERVICE, PLAN_SERVICE = "Amazon Elastic Compute Cloud - Compute", "Savings Plans for AWS Compute usage"
RUNNING = "EC2: Running Hours"
BILLED, USED, HOURS = "UnblendedCost", "AmortizedCost", "UsageQuantity"
NAMED = {
    bills.COMPUTE: ("Usage", "DiscountedUsage", "Reservation applied usage", "SavingsPlanCoveredUsage"),
    bills.COMMITMENT: (
        "RIFee", "Recurring reservation fee", "Upfront reservation fee", "SavingsPlanRecurringFee", "SavingsPlanUpfrontFee",
        "SavingsPlanNegation",
    ),
    bills.TAX: ("Tax",),
    bills.CREDIT: ("Credit", "Refund"),
    bills.DISCOUNT: (
        "Discount", "EdpDiscount", "Enterprise Discount Program Discount", "PrivateRateDiscount", "BundledDiscount",
        "RiVolumeDiscount", "SppDiscount",
    ),
}  # fmt: skip
"""Kinds of charge as the API and the console name them; case and spaces do not count."""


class Told(NamedTuple):
    """What Cost Explorer told."""

    lines: list[Line]
    estimated: tuple[date, ...]
    """Days of which AWS may still change the amounts."""


class _Charge(NamedTuple):
    day: date
    until: date
    keys: tuple[str, ...]
    billed: Fraction
    used: Fraction
    hours: Fraction | None
    currency: str
    estimated: bool


def instance_bill(
    session: AwsSession, budget: Budget, start: date, end: date, account: str | None = None,
    tell: Callable[[str], None] = lambda what: None,
) -> Told:  # fmt: skip
    """Charges for instances from `start` to `end` (exclusive; UTC days), of one linked account or of all.

    SourceFault: also RequestsRefused, before a request is sent that nobody allowed.
    """
    budget.plan(REQUESTS)
    tell("use by instance type and region")
    running = {"Not": _dimension("RECORD_TYPE", sorted({*_spelt(bills.COMMITMENT, bills.TAX, bills.CREDIT, bills.DISCOUNT)}))}
    filters = [_dimension("SERVICE", [COMPUTE_SERVICE]), _dimension("USAGE_TYPE_GROUP", [RUNNING]), running]
    use = list(_charges(session, budget, start, end, ("INSTANCE_TYPE", "REGION"), _all_of(filters, account)))
    tell("all charges by kind")
    services = [_dimension("SERVICE", [COMPUTE_SERVICE, PLAN_SERVICE])]
    charges = list(_charges(session, budget, start, end, ("RECORD_TYPE",), _all_of(services, account)))
    lines = [_line(number, one, bills.COMPUTE, account) for number, one in enumerate(use, 1)]
    lines += _others(use, charges, account, len(lines) + 1)
    return Told(lines, tuple(sorted({one.day for one in (*use, *charges) if one.estimated})))


def _others(use: list[_Charge], charges: list[_Charge], account: str | None, number: int) -> Iterator[Line]:
    """What is no running instance: fees, taxes, credits, and the rest of the service's use."""
    rest: dict[date, _Charge] = {}
    for one in charges:
        kind = kind_of(one.keys[0])
        if kind == bills.COMPUTE:
            known = rest.get(one.day, one._replace(billed=Fraction(0), used=Fraction(0)))
            rest[one.day] = known._replace(billed=known.billed + one.billed, used=known.used + one.used)
        elif one.billed or one.used:
            yield _line(number, one, kind, account)
            number += 1
    for day, (billed, used) in _sums(use).items():
        known = rest.get(day) or next(one for one in use if one.day == day)._replace(billed=Fraction(0), used=Fraction(0))
        rest[day] = known._replace(billed=known.billed - billed, used=known.used - used)
    for one in rest.values():
        if one.billed or one.used:
            yield _line(number, one, bills.OTHER, account)
            number += 1


def _sums(use: list[_Charge]) -> Mapping[date, tuple[Fraction, Fraction]]:
    found: defaultdict[date, tuple[Fraction, Fraction]] = defaultdict(lambda: (Fraction(0), Fraction(0)))
    for one in use:
        billed, used = found[one.day]
        found[one.day] = billed + one.billed, used + one.used
    return found


def kind_of(name: str) -> str:
    """The kind of charge that a RECORD_TYPE names; `other` for one that is not known."""
    plain = _plain(name)
    for kind, names in NAMED.items():
        if plain in {_plain(one) for one in names}:
            return kind
    return bills.DISCOUNT if plain.endswith("discount") else bills.OTHER


def _plain(name: str) -> str:
    return re.sub("[^a-z]", "", name.lower())


def _spelt(*kinds: str) -> Iterator[str]:
    """Each name in one word and in several: `RIFee`, `SavingsPlanNegation`, `Savings Plan Negation`, `Savings Plan negation`."""
    for kind in kinds:
        for name in NAMED[kind]:
            words = re.sub("(?<=[a-z])(?=[A-Z])", " ", name)
            yield from (name, words)
            if words.startswith("Savings Plan "):
                yield f"Savings Plan {words.removeprefix('Savings Plan ').lower()}"


def _dimension(key: str, values: list[str]) -> dict[str, Any]:
    return {"Dimensions": {"Key": key, "Values": values}}


def _all_of(filters: list[dict[str, Any]], account: str | None) -> dict[str, Any]:
    every = filters if account is None else [*filters, _dimension("LINKED_ACCOUNT", [account])]
    return every[0] if len(every) == 1 else {"And": every}


def _charges(
    session: AwsSession, budget: Budget, start: date, end: date, by: tuple[str, ...], wanted: dict[str, Any]
) -> Iterator[_Charge]:
    asked = {
        "TimePeriod": {"Start": start.isoformat(), "End": end.isoformat()}, "Granularity": "DAILY",
        "Metrics": [BILLED, USED, HOURS], "GroupBy": [{"Type": "DIMENSION", "Key": key} for key in by], "Filter": wanted,
    }  # fmt: skip
    for answer in pages_of(session, budget, "get_cost_and_usage", asked):
        for period in answer.get("ResultsByTime", []):
            day, until = days_of(period)
            for group in period.get("Groups", []):
                yield _charge(day, until, group, bool(period.get("Estimated")))


def _charge(day: date, until: date, group: dict[str, Any], estimated: bool) -> _Charge:
    metrics = group["Metrics"]
    billed, used, quantity = (metrics.get(name) or {} for name in (BILLED, USED, HOURS))
    currency = currency_of(billed.get("Unit"))
    if (other := currency_of(used.get("Unit"))) != currency:
        raise BadAnswer(f"Cost Explorer sent one charge of {day} in {currency} and in {other}: nothing is compared.")
    in_hours = str(quantity.get("Unit", "")).lower() in ("hrs", "hours", "hour")
    return _Charge(
        day, until, tuple(str(key) for key in group["Keys"]), Fraction(money_of(billed.get("Amount"), BILLED)),
        Fraction(money_of(used.get("Amount"), USED)),
        Fraction(money_of(quantity.get("Amount"), HOURS)) if in_hours else None, currency, estimated,
    )  # fmt: skip


def _line(number: int, one: _Charge, kind: str, account: str | None) -> Line:
    name, region = one.keys if kind == bills.COMPUTE else (None, None)
    return Line(
        number, *(datetime.combine(moment, time(), UTC) for moment in (one.day, one.until)), kind, one.billed, one.used, None,
        one.hours if kind == bills.COMPUTE else None, _told(region), _told(name), None, (account,) if account else (),
        one.currency,
    )  # fmt: skip


def _told(name: str | None) -> str | None:
    """None for `NoInstanceType`, `NoRegion` and `global`, which name nothing."""
    return None if name is None or name.startswith("No") or name == "global" else name
