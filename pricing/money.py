"""Exact decimal money with its currency; money per hour is a type of its own.

Invariant: no float ever becomes money, and no operation rounds: what has no exact decimal is a `Fraction` (`cost`) or
an error. Rounding happens only where a name asks for it (`rounded`, `text`, `round_largest_remainder`), half to even.
Currencies never mix silently: only a dated `Rate` turns one into another.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import (
    MAX_EMAX,
    MIN_EMIN,
    ROUND_HALF_EVEN,
    Context,
    Decimal,
    Inexact,
    InvalidOperation,
    Overflow,
)
from fractions import Fraction
from typing import Self, TypeVar

from pricing.errors import BadMoney, CurrencyMismatch

Exact = int | Decimal | Fraction
"""Numbers without rounding of their own; a float is none of them."""

SYMBOLS = {"USD": "$"}
LARGEST_EXPONENT = 15
SMALLEST_EXPONENT = -30

_exact = Context(prec=200, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[Inexact, InvalidOperation, Overflow])
_rounding = Context(prec=200, Emax=MAX_EMAX, Emin=MIN_EMIN, rounding=ROUND_HALF_EVEN, traps=[InvalidOperation])
_CURRENCY = re.compile(r"[A-Z]{3}")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)


def parse_decimal(text: object, what: str = "amount") -> Decimal:
    """The number that `text` writes out. BadMoney names it as `what`, and says what is wrong and how to write it."""
    if isinstance(text, bool | float):
        kind = type(text).__name__
        raise BadMoney(f"The {what} {text!r} is a {kind}, which is not exact: write it as text, like '3.06'.")
    if isinstance(text, int | Decimal):
        return _checked(Decimal(text), what)
    if not isinstance(text, str):
        raise BadMoney(f"The {what} must be a decimal number like '3.06', not {type(text).__name__}.")
    stripped = text.strip()
    if not _NUMBER.fullmatch(stripped):
        raise BadMoney(_complaint(stripped, what))
    return _checked(Decimal(stripped), what)


def _complaint(text: str, what: str) -> str:
    """Why `text` is no number, in one sentence."""
    shown = repr(text[:40])
    if not text:
        return f"The {what} is empty: write a decimal number like '3.06', or leave the key out."
    if re.fullmatch(r"[+-]?s?nan\d*", text, re.IGNORECASE):
        return f"The {what} is {shown}, which is not a number: leave it out if it is not known."
    if re.fullmatch(r"[+-]?inf(inity)?", text, re.IGNORECASE):
        return f"The {what} is {shown}, which is infinite: write a decimal number like '3.06'."
    if re.search(r"[$€£¥₩₹]|\b[A-Z]{3}\b", text):
        return f"The {what} {shown} carries a currency sign: write only the number, like '3.06'."
    if re.fullmatch(r"[+-]?\d+,(\d{1,2}|\d{4,})", text, re.ASCII):
        return f"The {what} {shown} has a decimal comma: write a point, like '{text.replace(',', '.')[:40]}'."
    if re.fullmatch(r"[+-]?[\d,_ ']+(\.\d+)?", text, re.ASCII):
        return f"The {what} {shown} has thousands separators: write only digits and a decimal point, like '1234.50'."
    return f"The {what} {shown} is not a decimal number: write one like '3.06'."


def _checked(value: Decimal, what: str) -> Decimal:
    if not value.is_finite():
        raise BadMoney(f"The {what} is {value}, which is not a finite number: leave it out if it is not known.")
    if value and value.adjusted() > LARGEST_EXPONENT:
        raise BadMoney(f"The {what} is too large: it must be below 1e{LARGEST_EXPONENT + 1}.")
    if value and int(value.as_tuple().exponent) < SMALLEST_EXPONENT:
        raise BadMoney(f"The {what} has more than {-SMALLEST_EXPONENT} decimal places.")
    return value


def to_decimal(value: Exact, places: int) -> Decimal:
    """`value` rounded to `places` decimals, half to even."""
    if isinstance(value, Decimal):
        return value.quantize(Decimal(1).scaleb(-places), context=_rounding)
    return Decimal(round(Fraction(value) * 10**places)).scaleb(-places, context=_exact)


def _exact_decimal(value: Exact) -> Decimal:
    """The decimal equal to `value`. BadMoney: a fraction that has none, like 1/3."""
    if isinstance(value, bool | float):
        raise BadMoney(f"{value!r} is a {type(value).__name__}, which is not exact: use a Decimal or a Fraction.")
    if not isinstance(value, Fraction):
        return Decimal(value)
    try:
        return _exact.divide(Decimal(value.numerator), Decimal(value.denominator))
    except Inexact:
        raise BadMoney(f"{value} has no exact decimal: use `cost`, which gives a Fraction, and round once.") from None


@dataclass(frozen=True, slots=True)
class _Amount:
    """What Money and PerHour share: exact sums and an order within one currency."""

    amount: Decimal
    currency: str = "USD"

    def __post_init__(self) -> None:
        object.__setattr__(self, "amount", parse_decimal(self.amount))
        if not isinstance(self.currency, str) or not _CURRENCY.fullmatch(self.currency):
            raise BadMoney(f"The currency {self.currency!r} is none: write its three capital letters, like 'USD'.")

    @classmethod
    def parse(cls, text: str, currency: str = "USD", what: str = "amount") -> Self:
        """From a decimal text. BadMoney: what is wrong with it; `what` names it."""
        return cls(parse_decimal(text, what), currency)

    @classmethod
    def of(cls, value: Exact, places: int, currency: str = "USD") -> Self:
        """From an exact number, rounded to `places`, half to even."""
        return cls(to_decimal(value, places), currency)

    @property
    def fraction(self) -> Fraction:
        return Fraction(self.amount)

    def rounded(self, places: int) -> Self:
        """To `places` decimals, half to even."""
        return type(self)(to_decimal(self.amount, places), self.currency)

    def __add__(self, other: Self) -> Self:
        if type(other) is not type(self):
            return NotImplemented
        return type(self)(_exact.add(self.amount, self._amount_of(other)), self.currency)

    def __sub__(self, other: Self) -> Self:
        if type(other) is not type(self):
            return NotImplemented
        return type(self)(_exact.subtract(self.amount, self._amount_of(other)), self.currency)

    def __mul__(self, factor: Exact) -> Self:
        """Exact; BadMoney when the result has no exact decimal."""
        return type(self)(_exact_decimal(self.fraction * Fraction(_refuse_float(factor))), self.currency)

    __rmul__ = __mul__

    def __neg__(self) -> Self:
        return type(self)(self.amount.copy_negate(), self.currency)

    def __bool__(self) -> bool:
        return bool(self.amount)

    def __lt__(self, other: Self) -> bool:
        return self._comparable(other) and self.amount < other.amount

    def __le__(self, other: Self) -> bool:
        return self._comparable(other) and self.amount <= other.amount

    def __gt__(self, other: Self) -> bool:
        return self._comparable(other) and self.amount > other.amount

    def __ge__(self, other: Self) -> bool:
        return self._comparable(other) and self.amount >= other.amount

    def _comparable(self, other: object) -> bool:
        if type(other) is not type(self):
            raise TypeError(f"{type(self).__name__} cannot be compared with {type(other).__name__}")
        self._amount_of(other)
        return True

    def _amount_of(self, other: Self) -> Decimal:
        if other.currency != self.currency:
            raise CurrencyMismatch(
                f"{self.currency} and {other.currency} cannot be added or compared: convert one with a dated rate."
            )
        return other.amount

    def text(self, places: int | None = None) -> str:
        """`$1,234.50`, `CNY 26.46`, `-$3.06`. `places` None: every digit, at least two; else rounded half to even."""
        value = to_decimal(self.amount, places) if places is not None else _at_least_two_places(self.amount)
        symbol = SYMBOLS.get(self.currency, f"{self.currency} ")
        sign = "-" if value < 0 else ""
        return f"{sign}{symbol}{value.copy_abs():,f}"

    def __str__(self) -> str:
        return self.text()


def _refuse_float(factor: Exact) -> Exact:
    if isinstance(factor, bool | float) or not isinstance(factor, int | Decimal | Fraction):
        raise BadMoney(f"Money cannot be multiplied by {factor!r}: use an int, a Decimal or a Fraction.")
    if isinstance(factor, Decimal) and not factor.is_finite():
        raise BadMoney(f"Money cannot be multiplied by {factor}: it is not a finite number.")
    return factor


def _at_least_two_places(amount: Decimal) -> Decimal:
    amount = amount.normalize(_rounding)
    return to_decimal(amount, 2) if int(amount.as_tuple().exponent) > -2 else amount


@dataclass(frozen=True, slots=True, eq=True)
class Money(_Amount):
    """An amount of one currency; may be negative (a credit)."""


@dataclass(frozen=True, slots=True, eq=True)
class PerHour(_Amount):
    """An amount of one currency per hour."""

    def cost(self, hours: Exact) -> Fraction:
        """What `hours` cost, exactly, in units of the currency."""
        return self.fraction * Fraction(_refuse_float(hours))

    def text(self, places: int | None = None) -> str:
        """`$3.06/h`, `CNY 26.46/h`."""
        return f"{_Amount.text(self, places)}/h"


A = TypeVar("A", Money, PerHour)


@dataclass(frozen=True, slots=True)
class Rate:
    """One `from_currency` is `value` of `to_currency`, as it stood on `as_of`. No inverse: it would not be exact."""

    from_currency: str
    to_currency: str
    value: Decimal
    as_of: date

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", parse_decimal(self.value, "exchange rate"))
        if self.value <= 0:
            raise BadMoney(f"The exchange rate {self.value} is none: it must be above 0.")
        for currency in (self.from_currency, self.to_currency):
            Money(Decimal(0), currency)

    def convert(self, amount: A) -> A:
        """`amount` in the other currency, exactly. CurrencyMismatch when it is not of `from_currency`."""
        if amount.currency != self.from_currency:
            raise CurrencyMismatch(
                f"A rate from {self.from_currency} to {self.to_currency} cannot convert {amount.currency}."
            )
        return type(amount)(_exact.multiply(amount.amount, self.value), self.to_currency)


def round_largest_remainder(parts: Sequence[Fraction | Decimal], places: int) -> list[Decimal]:
    """Each part rounded to `places` so that the results sum to the rounded total (half to even).

    Each result is less than one unit of the last place away from its part; a part that is exact stays.
    The units left over go to the largest remainders; equal remainders are served in order of position.
    """
    scaled = [Fraction(_refuse_float(part)) * 10**places for part in parts]
    units = largest_remainder(scaled, round(sum(scaled, Fraction(0))))
    return [Decimal(unit).scaleb(-places, context=_exact) for unit in units]


def largest_remainder(parts: Sequence[Fraction], goal: int) -> list[int]:
    """Whole units that sum to `goal`: each part rounded down, the units left over to the largest remainders, first of equals.

    `goal` is between the sum of the parts rounded down and that of the parts rounded up.
    """
    units: list[int] = []
    remainders: list[int] = []
    for part in parts:
        unit, rest = divmod(part.numerator, part.denominator)
        units.append(unit)
        remainders.append((rest << 64) // part.denominator)  # integers sort some 20 times faster than fractions
    left = goal - sum(units)
    for place in sorted(range(len(units)), key=lambda place: (-remainders[place], place))[:left] if left else ():
        units[place] += 1
    return units
