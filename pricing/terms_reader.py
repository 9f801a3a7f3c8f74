"""Reads tables of a TOML file strictly: every key is asked for by its type, and what nobody asked for is an error.

Invariant: a fault is one TermsError that names the file and the key and says how to write it. Money is text, never a
float or a whole number: `usd = "0.14"`.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time
from fractions import Fraction

from pricing.calendar import milliseconds
from pricing.errors import BadMoney, TermsError
from pricing.money import parse_decimal

CURRENCIES = frozenset(
    "AED AUD BRL CAD CHF CLP CNY CZK DKK EUR GBP HKD HUF IDR ILS INR JPY KRW MXN MYR NOK NZD PHP PLN RON SAR SEK SGD THB"
    " TRY TWD USD VND ZAR".split()
)
"""What clouds bill in, by ISO 4217; a currency with exchange rates of its own in the file may be any other."""


class TableReader:
    """One table, at `place` (`commitments[2]`) of `file`."""

    def __init__(self, file: str, place: str, table: object) -> None:
        self.file = file
        self.place = place
        if not isinstance(table, Mapping):
            raise TermsError(f"{file}: `{place}` must be a table, not {_kind(table)}.")
        self._table = dict(table)
        self._asked: list[str] = []

    def fault(self, key: str, what: str) -> TermsError:
        where = f"{self.place}.{key}" if self.place and key else key or self.place
        return TermsError(f"{self.file}: `{where}` {what}.")

    def keys(self) -> list[str]:
        return list(self._table)

    def has(self, key: str) -> bool:
        return key in self._table

    def raw(self, key: str) -> object:
        self._asked.append(key)
        return self._table.get(key)

    def done(self) -> None:
        """Raises for the first key that nobody asked for."""
        for key in self._table:
            if key not in self._asked:
                near = difflib.get_close_matches(key, self._asked, 1)
                allowed = f"did you mean `{near[0]}`?" if near else f"allowed here: {', '.join(sorted(set(self._asked)))}."
                where = f"{self.place}.{key}" if self.place else key
                raise TermsError(f"{self.file}: unknown key `{where}`; {allowed}")

    def needed(self, *keys: str) -> None:
        for key in keys:
            if key not in self._table:
                raise self.fault(key, "is missing")

    def text(self, key: str, allowed: Sequence[str] = ()) -> str | None:
        value = self.raw(key)
        if value is None:
            return None
        if not isinstance(value, str) or not value.strip():
            raise self.fault(key, f"must be a text, not {_kind(value)}")
        if allowed and value.strip().lower() not in allowed:
            near = difflib.get_close_matches(value.strip().lower(), allowed, 1)
            hint = f"did you mean '{near[0]}'?" if near else f"use one of {', '.join(allowed)}"
            raise self.fault(key, f"is '{value[:40]}', which is none: {hint}".rstrip("?") + ("?" if near else ""))
        return value.strip()

    def lower(self, key: str, allowed: Sequence[str] = ()) -> str | None:
        value = self.text(key, allowed)
        return None if value is None else value.lower()

    def flag(self, key: str) -> bool:
        value = self.raw(key)
        if value is not None and not isinstance(value, bool):
            raise self.fault(key, f"must be true or false, not {_kind(value)}")
        return bool(value)

    def whole(self, key: str, default: int, *, least: int = 0) -> int:
        value = self.raw(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise self.fault(key, f"must be a whole number of at least {least}, not {value!r}")
        return value

    def money(self, key: str, *, above_zero: bool = False) -> Fraction | None:
        """An amount written as text; never negative."""
        value = self.raw(key)
        if value is None:
            return None
        return self.amount(key, value, above_zero=above_zero)

    def amount(self, key: str, value: object, *, above_zero: bool = False) -> Fraction:
        if not isinstance(value, str):
            raise self.fault(key, f'must be a decimal number as text, like "3.06", not {_kind(value)}')
        try:
            number = Fraction(parse_decimal(value, "amount"))
        except BadMoney as error:
            raise self.fault(key, f"is wrong: {str(error).rstrip('.')}") from None
        if number < 0 or (above_zero and not number):
            raise self.fault(key, f"is {value.strip()}: it must be {'above 0' if above_zero else 'at least 0'}")
        return number

    def percent(self, key: str) -> Fraction | None:
        number = self.money(key, above_zero=True)
        if number is not None and number > 100:
            raise self.fault(key, f"is {float(number):g}: a percentage is at most 100")
        return number

    def currency(self, key: str, known: frozenset[str]) -> str:
        value = self.text(key)
        name = "USD" if value is None else value.upper()
        if name not in CURRENCIES and name not in known:
            raise self.fault(key, f"is '{(value or '')[:20]}', an unknown currency: write its three letters, like USD")
        return name

    def moment(self, key: str) -> int | None:
        """UTC milliseconds of a date (its midnight in UTC) or of a time with an offset."""
        value = self.raw(key)
        return None if value is None else self.moment_of(key, value)

    def moment_of(self, key: str, value: object) -> int:
        if isinstance(value, str):
            try:
                value = datetime.fromisoformat(value) if len(value) > 10 else date.fromisoformat(value)
            except ValueError:
                raise self.fault(key, f"is '{value[:40]}', which is no date: write one like 2026-01-01") from None
        if isinstance(value, datetime):
            if value.tzinfo is None:
                raise self.fault(key, f"is {value.isoformat()}, a local time: give its offset, like {value.isoformat()}Z")
            return milliseconds(value)
        if isinstance(value, date):
            return milliseconds(datetime.combine(value, time(), UTC))
        raise self.fault(key, f"must be a date like 2026-01-01, not {_kind(value)}")

    def span(self) -> tuple[int | None, int | None]:
        """`from` and `to`, the second exclusive."""
        starts_ms, ends_ms = self.moment("from"), self.moment("to")
        if starts_ms is not None and ends_ms is not None and ends_ms <= starts_ms:
            raise self.fault("to", "is not after `from`; it is exclusive")
        return starts_ms, ends_ms


def tables(file: str, place: str, value: object) -> list[TableReader]:
    """The tables of `[[place]]`."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise TermsError(f"{file}: `{place}` must be written as [[{place}]], not as {_kind(value)}.")
    return [TableReader(file, f"{place}[{number}]", table) for number, table in enumerate(value, 1)]


def _kind(value: object) -> str:
    names = {
        bool: "true or false", int: "a whole number", float: "a float, which is not exact", str: "a text",
        list: "a list", dict: "a table",
    }  # fmt: skip
    return names.get(type(value), type(value).__name__)
