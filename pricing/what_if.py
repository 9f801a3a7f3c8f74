"""What if: the same advice with other prices, demand, deadline or commitments, from a TOML file.

Invariant: a file is read wholly or not at all (TermsError names file and key); what it does not name stays as it is, and a
price that is not known stays unknown under a factor.

    [demand]
    factor = "1.5"                                 # everything; or
    [[demand.types]]                               # only what matches
    instance_type = "p4d.*"                        # also: region
    factor = "2"
    [[prices]]
    purchase = "spot"                              # also: instance_type (a pattern), region
    factor = "1.3"                                 # or usd_per_hour = "11.50"
    [deadline]
    hours = "72"
    [[commitments]]                                # instead of those owned, as in terms.toml; [] with `own = "none"`
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pricing.advice import Action, Advice, Case
from pricing.contracts import type_matches
from pricing.demand import Demand, DemandKey
from pricing.errors import TermsError
from pricing.instances import InstanceType
from pricing.lookup import region_key
from pricing.offers import PURCHASES
from pricing.owned import Commitment
from pricing.rate_card import TERM_MONTHS, Rate, RateCard, ordered
from pricing.terms import parse
from pricing.terms_reader import TableReader, tables
from pricing.toml_file import read_toml

DAY_MS = 86_400_000


class Scope(NamedTuple):
    """What a line of the file is about; None: everything."""

    instance_type: str | None = None
    region: str | None = None
    purchase: str | None = None

    def matches(self, key: DemandKey, purchase: str | None = None) -> bool:
        return (
            (self.instance_type is None or type_matches(key.cloud or "", self.instance_type, key.instance_type))
            and self.region in (None, key.region)
            and self.purchase in (None, purchase)
        )


class PriceChange(NamedTuple):
    scope: Scope
    factor: Fraction | None
    usd_per_hour: Fraction | None


@dataclass(frozen=True)
class WhatIf:
    """Changes, in the order of the file; the last that matches counts."""

    demand: tuple[tuple[Scope, Fraction], ...] = ()
    prices: tuple[PriceChange, ...] = ()
    deadline_hours: float | None = None
    commitments: tuple[Commitment, ...] | None = None
    """Instead of those owned; None: as they are."""

    def applied(self, case: Case) -> Case:
        """The case as it would be."""
        terms = case.terms if self.commitments is None else replace(case.terms, commitments=self.commitments)
        deadline = case.deadline_hours if self.deadline_hours is None else self.deadline_hours
        return replace(
            case,
            demand=self._demand(case.demand),
            card=ChangedCard(case.card, self.prices) if self.prices else case.card,
            terms=terms,
            deadline_hours=deadline,
        )

    def _demand(self, demand: Demand) -> Demand:
        factors = {key: self._factor(key) for key in demand.counts}

        def scaled(key: DemandKey, counts: np.ndarray) -> np.ndarray:
            return counts if factors[key] == 1 else counts * float(factors[key])

        return replace(
            demand,
            counts={key: scaled(key, counts) for key, counts in demand.counts.items()},
            bought={key: {buy: scaled(key, part) for buy, part in parts.items()} for key, parts in demand.bought.items()},
        )

    def _factor(self, key: DemandKey) -> Fraction:
        return next((factor for scope, factor in reversed(self.demand) if scope.matches(key)), Fraction(1))

    def unmatched(self, case: Case) -> list[str]:
        """A sentence about each line that nothing in the case is about."""
        ran, priced = list(case.demand.counts), {*case.demand.counts, *case.card.keys()}
        scopes = [("demand", scope, ran) for scope, _ in self.demand] + [("price", one.scope, priced) for one in self.prices]
        return [
            f"The {what} of {_told(scope)} changes nothing: no such type is in the evidence{' or the prices' * (what == 'price')}."
            for what, scope, keys in scopes
            if not any(scope._replace(purchase=None).matches(key) for key in keys)
        ]

    def told(self) -> list[str]:
        """What is changed, one line each."""
        lines = [f"demand of {_told(scope)} x {float(factor):g}" for scope, factor in self.demand]
        for change in self.prices:
            amount = (
                f"x {float(change.factor):g}"
                if change.factor is not None
                else f"= ${float(change.usd_per_hour or 0):g} an hour"
            )
            lines.append(f"{change.scope.purchase or 'all'} prices of {_told(change.scope)} {amount}")
        if self.deadline_hours is not None:
            lines.append(f"deadline {self.deadline_hours:g} h")
        if self.commitments is not None:
            lines.append(f"{len(self.commitments)} owned commitments instead of those of the terms")
        return lines


def _told(scope: Scope) -> str:
    return (scope.instance_type or "everything") + (f" in {scope.region}" if scope.region else "")


class ChangedCard:
    """A rate card under changed prices. A rate that is not known is not made up by a factor; a price in dollars tells it."""

    def __init__(self, card: RateCard, changes: Sequence[PriceChange]) -> None:
        self._card = card
        self._changes = changes

    def rates(self, key: DemandKey, purchase: str | None = None) -> Sequence[Rate]:
        known = self._card.rates(key)
        found = ordered([*(self._changed(key, rate) for rate in known), *self._told(key, {rate.purchase for rate in known})])
        return found if purchase is None else [rate for rate in found if rate.purchase == purchase]

    def on_demand(self, key: DemandKey) -> Rate | None:
        rate = self._card.on_demand(key)
        told = self._told(key, {"on_demand"} if rate is not None else set())
        return next((one for one in told if one.purchase == "on_demand"), None) if rate is None else self._changed(key, rate)

    def _told(self, key: DemandKey, known: set[str]) -> list[Rate]:
        """Rates that only the changes tell."""
        found: dict[str, Rate] = {}
        for change in self._changes:
            purchase, usd = change.scope.purchase, change.usd_per_hour
            if usd is not None and purchase is not None and purchase not in known and change.scope.matches(key, purchase):
                months = TERM_MONTHS.get(purchase)
                paid = None if months is None else "no_upfront"
                found[purchase] = Rate(purchase, usd, usd, Fraction(0), months, paid, "what-if; was not known")
        return list(found.values())

    def _changed(self, key: DemandKey, rate: Rate) -> Rate:
        for change in reversed(self._changes):
            if change.scope.matches(key, rate.purchase):
                factor = change.factor
                if factor is None:
                    assert change.usd_per_hour is not None  # noqa: S101 - one of the two is always given
                    factor = change.usd_per_hour / rate.usd_per_hour
                return rate._replace(
                    usd_per_hour=rate.usd_per_hour * factor, hourly=rate.hourly * factor, upfront=rate.upfront * factor,
                    source=f"what-if; was {float(rate.usd_per_hour):.4f}",
                )  # fmt: skip
        return rate

    def shape(self, key: DemandKey) -> InstanceType | None:
        return self._card.shape(key)

    def keys(self) -> Sequence[DemandKey]:
        return self._card.keys()

    @property
    def notes(self) -> tuple[str, ...]:
        return self._card.notes


def load(path: Path) -> WhatIf:
    """Reads the file. TermsError names it, and the key that is wrong."""
    return _parse(read_toml(path, TermsError), str(path))


def _parse(raw: Mapping[str, object], file: str) -> WhatIf:
    top = TableReader(file, "", raw)
    found = WhatIf(
        demand=tuple(_demand(TableReader(file, "demand", top.raw("demand") or {}))),
        prices=tuple(_price(table) for table in tables(file, "prices", top.raw("prices"))),
        deadline_hours=_deadline(TableReader(file, "deadline", top.raw("deadline") or {})),
        commitments=_commitments(file, top),
    )
    top.done()
    if found == WhatIf():
        raise TermsError(f"{file}: it changes nothing; write [demand], [[prices]], [deadline] or [[commitments]].")
    return found


def _demand(table: TableReader) -> list[tuple[Scope, Fraction]]:
    factor = table.money("factor")
    found = [] if factor is None else [(Scope(), factor)]
    for one in tables(table.file, "demand.types", table.raw("types")):
        one.needed("instance_type", "factor")
        found.append((_scope(one), one.money("factor") or Fraction(0)))
        one.done()
    table.done()
    return found


def _scope(table: TableReader, purchase: str | None = None) -> Scope:
    region = table.text("region")
    return Scope(table.text("instance_type"), None if region is None else region_key(region), purchase)


def _price(table: TableReader) -> PriceChange:
    factor, usd = table.money("factor", above_zero=True), table.money("usd_per_hour", above_zero=True)
    if (factor is None) == (usd is None):
        raise table.fault("factor", "is to be given, or else `usd_per_hour`, and not both")
    scope = _scope(table, table.lower("purchase", PURCHASES))
    if usd is not None and (scope.purchase is None or scope.instance_type is None):
        raise table.fault("usd_per_hour", "is of one `instance_type` and one `purchase`: name both, or give a `factor`")
    table.done()
    return PriceChange(scope, factor, usd)


def _deadline(table: TableReader) -> float | None:
    hours = table.money("hours", above_zero=True)
    table.done()
    return None if hours is None else float(hours)


def _commitments(file: str, top: TableReader) -> tuple[Commitment, ...] | None:
    if top.has("own") and top.text("own", ("none",)) == "none":
        top.raw("commitments")
        return ()
    raw = top.raw("commitments")
    return None if raw is None else parse({"commitments": raw}, file).commitments


# --- side by side ------------------------------------------------------------------------------------------------------


class Pair(NamedTuple):
    """One piece of advice as it is and as it would be; None where it is not given."""

    now: Action | None
    then: Action | None

    @property
    def change(self) -> Fraction:
        return (self.then.saving_per_month if self.then else Fraction(0)) - (
            self.now.saving_per_month if self.now else Fraction(0)
        )


def side_by_side(now: Advice, then: Advice) -> list[Pair]:
    """Actions of the same kind about the same thing beside each other, in the order of what they save at most."""
    left: dict[tuple[object, ...], list[Action]] = {}
    for action in then.actions:
        left.setdefault(_about(action), []).append(action)
    pairs = []
    for action in now.actions:
        same = left.get(_about(action))
        pairs.append(Pair(action, same.pop(0) if same else None))
    pairs += [Pair(None, action) for same in left.values() for action in same]
    return sorted(pairs, key=_most)


FIGURE = re.compile(r"[\d.,$%]*\d[\d.,$%]*")


def _about(action: Action) -> tuple[object, ...]:
    """Its kind, what it is about and how: not how many, and not what it saves."""
    terms = {(one.kind, round((one.ends_ms - one.starts_ms) / DAY_MS), bool(one.upfront)) for one in action.buys}
    words = "" if action.buys else FIGURE.sub("#", action.what).split(":")[0]
    return (action.kind, *sorted(map(str, action.claims)), *sorted(map(str, terms)), words)


def _most(pair: Pair) -> tuple[Fraction, str]:
    best = max((one.saving_per_month for one in pair if one is not None), default=Fraction(0))
    return -best, (pair.now or pair.then).what  # type: ignore[union-attr]
