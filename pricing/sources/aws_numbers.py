"""Numbers and dates of AWS answers: strings and shortest floats into exact decimals, names of payments into words.

Invariant: a number that is missing, empty, zero or below is never an amount: `BadRow` tells which, for `Skipped`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Any

from pricing.errors import BadMoney
from pricing.money import parse_decimal

PAYMENTS = {"No Upfront": "no_upfront", "Partial Upfront": "partial_upfront", "All Upfront": "all_upfront"}
HOURS = frozenset({"hrs", "hours", "hour"})
YEAR_HOURS = 8760
HOUR_SECONDS = 3600
PLACES = Decimal("1e-10")
_wide = Context(prec=60, rounding=ROUND_HALF_EVEN)


class BadRow(Exception):
    """A row that cannot be a price; `str()` is the sentence for `Skipped`."""


def amount(text: object, what: str) -> Decimal:
    """A price above zero. BadRow: it is missing, empty, zero, below zero or no number."""
    found = number(text, what)
    if found <= 0:
        raise BadRow(f"The {what} is {found}, which is no price: it counts as not known.")
    return found


def number(text: object, what: str) -> Decimal:
    """A number of zero or more. BadRow: it is missing, empty, negative or none."""
    if text is None or text == "":
        raise BadRow(f"The {what} is missing.")
    try:
        found = parse_decimal(repr(text) if isinstance(text, float) else text, what)
    except BadMoney as fault:
        raise BadRow(str(fault)) from None
    if found < 0:
        raise BadRow(f"The {what} is {found}, below zero.")
    return found


def per_hour(upfront: Decimal, hours: Decimal | int, hourly: Decimal = Decimal(0)) -> Decimal:
    """Upfront payment spread over the hours, plus the hourly part, rounded to 10 places, half to even."""
    whole = _wide.add(_wide.divide(upfront, Decimal(hours)), hourly)
    return whole.quantize(PLACES, context=_wide)


def moment(value: Any, what: str) -> datetime:
    """A UTC moment, from what boto3 parsed or from ISO text with a zone. BadRow otherwise."""
    try:
        found = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise BadRow(f"The {what} is {str(value)[:40]!r}, which is no date.") from None
    if found.tzinfo is None:
        raise BadRow(f"The {what} {found} has no time zone.")
    return found.astimezone(UTC)


def payment(name: object) -> str:
    """`no_upfront`, `partial_upfront` or `all_upfront`. BadRow: another word."""
    if name not in PAYMENTS:
        raise BadRow(f"The payment option is {str(name)[:40]!r}, which is not known.")
    return PAYMENTS[str(name)]


def hourly_unit(unit: object) -> None:
    """BadRow when the unit is not an hour."""
    if str(unit or "").lower() not in HOURS:
        raise BadRow(f"The unit is {str(unit)[:40]!r}, not an hour.")


def only_currency(prices: dict[str, object], expected: str) -> object:
    """The one price of `pricePerUnit`. BadRow: it has none in the expected currency, or more than one."""
    if len(prices) > 1:
        raise BadRow(f"It has prices in several currencies ({', '.join(sorted(prices))[:60]}): none is taken.")
    if expected not in prices:
        raise BadRow(f"It has no price in {expected}, only in {', '.join(prices) or 'none'}.")
    return prices[expected]
