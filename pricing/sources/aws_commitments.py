"""What an AWS account owns, read place by place into readings of owned.toml (pricing/owned_file.py).

Invariant: what counts is what AWS lets cover instances: active, queued from its start on, and what has ended for the time
that it held. What is being paid, failed to be paid or is being given back is shown and covers nothing. A place that could
not be read gives no reading, so that the one that is kept stays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import NamedTuple

from pricing.contracts import type_matches
from pricing.errors import TermsError
from pricing.money import to_decimal
from pricing.owned import Commitment
from pricing.owned_file import RESERVATIONS, SAVINGS_PLANS, Reading, Value, reading
from pricing.sources import (
    BadAnswer,
    NoPermission,
    RefusedCredentials,
    Skipped,
    SourceFault,
    Throttled,
    UnknownRegion,
    Unreachable,
)
from pricing.sources.aws_owned import (
    Account,
    OwnedRate,
    OwnedReservation,
    OwnedSavingsPlan,
    owned_rates,
    owned_reservations,
    owned_savings_plans,
)
from pricing.sources.aws_session import AwsSession
from pricing.sources.aws_zones import read_zones

LOST: tuple[type[SourceFault], ...] = (NoPermission, RefusedCredentials, UnknownRegion, Unreachable, Throttled, BadAnswer)
"""Faults that one place has, and others may not."""
KEPT = timedelta(days=400)
"""For so long after its end a commitment is kept, for reports of the time in which it held."""
WHY_NOT = {
    "payment-pending": "its payment is not through: it covers nothing until AWS says active",
    "payment-failed": "its payment failed: it covers nothing",
    "pending-return": "it is being given back: it covers nothing",
}
YEAR_HOURS = 8760
Tell = Callable[[str, int, int], None]
"""Called with what is read next, how many places are done, and how many there are."""


class Owned(NamedTuple):
    """One commitment of the account."""

    id: str
    state: str
    payment: str
    commitment: Commitment
    why_not: str | None
    """Why it covers nothing, in words; None: it counts, from its start to its end."""
    offering_class: str | None = None


class Found(NamedTuple):
    """What a reading of the account gave."""

    account: str
    owned: tuple[Owned, ...]
    readings: tuple[Reading, ...]
    """Of the places that were read."""
    skipped: tuple[Skipped, ...]
    lost: tuple[Skipped, ...]
    """Places that could not be read."""


def read_commitments(
    session: AwsSession, account: Account, regions: Sequence[str], now: datetime,
    types: Sequence[str], tell: Tell = lambda what, done, total: None,
) -> Found:  # fmt: skip
    """Reservations of each region, and the savings plans with their rates of `types`.

    SourceFault: no key or an expired one, or no place at all could be read.
    """
    state = _Reading(session, account.id, now, regions[0] if regions else "us-east-1", types)
    places: list[str | None] = [*dict.fromkeys(regions), None]
    for done, region in enumerate(places):
        words = "savings plans" if region is None else f"reservations of {region}"
        tell(words, done, len(places))
        state.read(region, words)
    if len(state.faults) == len(places):
        raise state.faults[0]
    tell("", len(places), len(places))
    return Found(account.id, tuple(state.owned), tuple(state.readings), tuple(state.skipped), tuple(state.lost))


class _Reading:
    """Gathers what is found."""

    def __init__(self, session: AwsSession, account: str, now: datetime, partition: str, types: Sequence[str]) -> None:
        self._session = session
        self._account = account
        self._now = now
        self._partition = partition
        self._types = types
        self._zones = cache(lambda region: read_zones(session, region))
        self.owned: list[Owned] = []
        self.readings: list[Reading] = []
        self.skipped: list[Skipped] = []
        self.lost: list[Skipped] = []
        self.faults: list[SourceFault] = []

    def read(self, region: str | None, words: str) -> None:
        """One place, whole or not at all."""
        try:
            found = self._plans() if region is None else self._reservations(region)
        except LOST as fault:
            self.faults.append(fault)
            self.lost.append(Skipped(words, str(fault)))
            return
        of, counted = SAVINGS_PLANS if region is None else RESERVATIONS, []
        for one, table in found:
            if (taken := self._taken(one, table)) is not None:
                self.owned.append(taken)
                counted += [table] if taken.why_not is None else []
        self.readings.append(reading("aws", self._account, of, region, self._now, counted))

    def _reservations(self, region: str) -> list[tuple[OwnedReservation, dict[str, Value]]]:
        rows, skipped = owned_reservations(self._session, region, self._zones)
        self.skipped += skipped
        return [(one, reservation_table(one)) for one in rows if self._is_recent(one)]

    def _plans(self) -> list[tuple[OwnedSavingsPlan, dict[str, Value]]]:
        rows, skipped = owned_savings_plans(self._session, self._partition)
        self.skipped += skipped
        return [(one, plan_table(one, self._rates(one))) for one in rows if self._is_recent(one)]

    def _rates(self, plan: OwnedSavingsPlan) -> Sequence[OwnedRate]:
        types = self._types if plan.family is None else [
            name for name in self._types if type_matches("aws", f"{plan.family}.*", name)
        ]  # fmt: skip
        try:
            rates, skipped = owned_rates(self._session, plan, self._partition, types or None)
        except LOST as fault:
            rates, skipped = [], [Skipped(f"rates of savings plan {plan.id}", f"The catalog's rates count instead. {fault}")]
        foreign = [rate for rate in rates if rate.currency != plan.currency]
        if foreign:
            reason = f"{len(foreign)} of its rates are in {foreign[0].currency}, and the plan is in {plan.currency}."
            skipped.append(Skipped(f"aws savings plan {plan.id}", reason))
        self.skipped += skipped
        return [rate for rate in rates if rate.currency == plan.currency]

    def _is_recent(self, one: OwnedReservation | OwnedSavingsPlan) -> bool:
        return one.ends_at > self._now - KEPT

    def _taken(self, one: OwnedReservation | OwnedSavingsPlan, table: Mapping[str, Value]) -> Owned | None:
        """None, and a sentence: it is not understood, so that nothing is to be counted for it."""
        if one.state == "retired" and one.ends_at > self._now:
            reason = f"AWS calls it retired, though it ends on {one.ends_at:%Y-%m-%d} only: it is not counted."
            self.skipped.append(Skipped(f"commitment {one.id}", reason))
            return None
        try:
            (made,) = reading("aws", self._account, RESERVATIONS, None, self._now, [table]).commitments
        except TermsError as fault:
            self.skipped.append(Skipped(f"commitment {one.id}", str(fault)))
            return None
        offering = one.offering_class if isinstance(one, OwnedReservation) else None
        return Owned(one.id, one.state, one.payment, made, WHY_NOT.get(one.state), offering)


def reservation_table(one: OwnedReservation) -> dict[str, Value]:
    """As it stands in owned.toml. Of a reservation that was changed in its term, the part of the upfront payment."""
    found: dict[str, Value] = {
        "id": one.id, "kind": "reservation", "cloud": "aws", "region": one.region, "instance_type": one.instance_type,
        "count": one.count, "upfront": _text(_part(one)), "hourly": _text(one.hourly), "currency": one.currency,
        "from": one.starts_at, "to": one.ends_at,
    }  # fmt: skip
    return found if one.zone is None else {**found, "zone": one.zone}


def _part(one: OwnedReservation) -> Decimal:
    held, whole = one.ends_at - one.starts_at, timedelta(hours=one.term_hours)
    if held >= whole:
        return one.upfront
    return to_decimal(Fraction(one.upfront) * Fraction(held // timedelta(seconds=1), whole // timedelta(seconds=1)), 10)


def plan_table(one: OwnedSavingsPlan, rates: Sequence[OwnedRate]) -> dict[str, Value]:
    """As it stands in owned.toml; without rates those of the catalog count."""
    found: dict[str, Value] = {
        "id": one.id, "kind": "savings_plan", "cloud": "aws", "per_hour": _text(one.per_hour), "currency": one.currency,
        "upfront": _text(one.upfront), "from": one.starts_at, "to": one.ends_at,
    }  # fmt: skip
    place = {key: value for key, value in (("region", one.region), ("family", one.family)) if value is not None}
    if not rates:
        return {**found, **place, "purchase": "savings_plan_3y" if one.term_hours > 2 * YEAR_HOURS else "savings_plan_1y"}
    named = {
        rate.instance_type if one.region == rate.region else f"{rate.region}/{rate.instance_type}": _text(rate.rate)
        for rate in rates
    }
    return {**found, **place, "rates": dict(sorted(named.items()))}


def _text(amount: Decimal) -> str:
    text = format(amount, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text
