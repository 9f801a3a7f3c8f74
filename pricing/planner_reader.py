"""One table of a workload's TOML, read strictly: every key is asked for by its type and unit, what nobody asked for is an error.

Invariant: a fault is one WorkloadError that names the file and the key and says what to do.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from pricing import planner_units as units
from pricing.errors import WorkloadError

Read = Callable[[object], Fraction]


class Table:
    """One table of the file; every key is asked for by its type, and what nobody asked for is an error."""

    def __init__(self, file: str, place: str, table: object) -> None:
        self.file, self.place = file, place
        if not isinstance(table, Mapping):
            raise WorkloadError(f"{file}: `{place}` must be a table, written as [{place}].")
        self._table = dict(table)
        self._asked: list[str] = []

    def fault(self, key: str, what: str) -> WorkloadError:
        return WorkloadError(f"{self.file}: `{self._where(key)}` {what}.")

    def _where(self, key: str) -> str:
        return f"{self.place}.{key}" if self.place and key else key or self.place

    def has(self, key: str) -> bool:
        return key in self._table

    def raw(self, key: str) -> Any:
        self._asked.append(key)
        return self._table.get(key)

    def table(self, key: str, *, needed: bool = False) -> Table:
        if needed and key not in self._table:
            raise WorkloadError(f"{self.file}: the table [{key}] is missing.")
        return Table(self.file, key, self.raw(key) if key in self._table else {})

    def tables(self, key: str) -> list[Table]:
        found = self.raw(key) or []
        if not isinstance(found, list):
            raise WorkloadError(f"{self.file}: `{key}` must be written as [[{key}]].")
        return [Table(self.file, f"{key}[{number}]", one) for number, one in enumerate(found, 1)]

    def done(self) -> None:
        """Raises for the first key that nobody asked for."""
        for key in self._table:
            if key not in self._asked:
                near = difflib.get_close_matches(key, self._asked, 1)
                allowed = f"did you mean `{near[0]}`?" if near else f"allowed here: {', '.join(sorted(set(self._asked)))}."
                raise WorkloadError(f"{self.file}: unknown key `{self._where(key)}`; {allowed}")

    def get(self, key: str, read: Read) -> Fraction | None:
        value = self.raw(key)
        if value is None:
            return None
        try:
            return read(value)
        except ValueError as error:
            raise self.fault(key, str(error)) from None

    def need(self, key: str, read: Read) -> Fraction:
        found = self.get(key, read)
        if found is None:
            raise self.fault(key, "is missing")
        return found

    def whole(self, key: str, *, least: int = 1, most: int = 10**9) -> int | None:
        found = self.get(key, units.number)
        if found is None:
            return None
        if found.denominator != 1 or not least <= found <= most:
            raise self.fault(key, f"is {float(found):g}: it must be a whole number from {least} to {most}")
        return int(found)

    def flag(self, key: str) -> bool:
        value = self.raw(key)
        if value is not None and not isinstance(value, bool):
            raise self.fault(key, f"must be true or false, not {value!r}")
        return bool(value)

    def text(self, key: str) -> str | None:
        value = self.raw(key)
        if value is not None and (not isinstance(value, str) or not value.strip()):
            raise self.fault(key, "must be a text that is not empty")
        return None if value is None else value.strip()

    def word(self, key: str, allowed: Sequence[str]) -> str | None:
        value = self.text(key)
        return None if value is None else self.one_of(key, value, allowed)

    def words(self, key: str, allowed: Sequence[str] = ()) -> tuple[str, ...]:
        value = self.raw(key)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(one, str) and one.strip() for one in value):
            raise self.fault(key, 'must be a list of texts, like ["aws", "gcp"]')
        return tuple(self.one_of(key, one.strip(), allowed) if allowed else one.strip() for one in value)

    def one_of(self, key: str, value: str, allowed: Sequence[str]) -> str:
        spelt = {one.lower(): one for one in allowed}
        if value.lower() in spelt:
            return spelt[value.lower()]
        near = difflib.get_close_matches(value.lower(), spelt, 1)
        if near:
            raise WorkloadError(
                f"{self.file}: `{self._where(key)}` is '{value[:40]}', which is none: did you mean '{spelt[near[0]]}'?"
            )
        raise self.fault(key, f"is '{value[:40]}', which is none: use one of {', '.join(allowed)}")

    def either(self, one: str, other: str) -> None:
        if self.has(one) and self.has(other):
            raise self.fault(other, f"contradicts `{one}`: give only one of them")
