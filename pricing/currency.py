"""Exchange rates that the user gives, each from a day on.

Invariant: no amount changes its currency without a rate that was given for its time; before the first rate of a
currency there is none. Products and quotients are exact fractions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from fractions import Fraction

from pricing import price_steps
from pricing.calendar import instant
from pricing.price_steps import ALWAYS, Steps

USD = "USD"


@dataclass(frozen=True, slots=True)
class Exchange:
    """`usd`: currency -> what one unit of it is in USD over time."""

    usd: Mapping[str, Steps] = field(default_factory=dict)

    def steps(self, source: str, target: str) -> Steps | None:
        """How much of `target` one unit of `source` is over time; None where no rate of either was given."""
        if source == target:
            return price_steps.constant(Fraction(1))
        one, other = self._in_usd(source), self._in_usd(target)
        if one is None or other is None:
            return None
        return price_steps.combined(lambda source_usd, target_usd: source_usd / target_usd, one, other)

    def why_not(self, source: str, target: str) -> str:
        """Why some or all of an amount in `source` cannot be told in `target`."""
        lacking = [name for name in (source, target) if self._in_usd(name) is None]
        if lacking:
            return f"Its price is in {source}, the report in {target}, and no exchange rate is given"
        first = max(self._first(name) for name in (source, target))
        return f"Its price is in {source}, the report in {target}, and no exchange rate is given for before {first}"

    def used(self, source: str, target: str) -> str:
        """Which rates turned `source` into `target`, as a sentence."""
        parts = [
            f"1 {name} = {float(value):g} USD from {_day(at)}"
            for name in (source, target)
            for at, value in (self._in_usd(name) or ())
            if name != USD and value is not None
        ]
        return f"Prices in {source} are told in {target} at {'; '.join(parts)}."

    def _in_usd(self, currency: str) -> Steps | None:
        return price_steps.constant(Fraction(1)) if currency == USD else self.usd.get(currency)

    def _first(self, currency: str) -> date:
        steps = self._in_usd(currency) or ()
        return next((_day(at) for at, value in steps if value is not None), date.min)


def _day(ms: int) -> date:
    return date.min if ms == ALWAYS else instant(ms).date()
