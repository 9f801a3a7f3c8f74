"""Whether a published price can be right: what is wrong with it in a sentence, or nothing.

Invariant: a price that cannot be right is refused, and one that may be right but changed too much is held back until it is
seen again; neither ever replaces a good one. The rules are numbers in this file and the prices that ship; none is a guess
about one offer's price.

Rules: a known currency, unit and purchase option, aware times; above 0 and finite; within the bounds of its GPU model (per
GPU and hour); spot at most on-demand, and (a warning) at least a tenth of it; a committed price at most on-demand (held
back above it); not more than `LARGEST_CHANGE` times the last good price, nor less than one such part of it, nor changed by
just the number of its GPUs (held back). Where the book has no price yet, the one that ships is the last good one.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Literal, NamedTuple, Self

from pricing.currencies import CURRENCIES
from pricing.money import to_decimal
from pricing.offers import PURCHASES
from pricing.pricebook_rows import PAYMENTS
from pricing.prices import INSTANCE_HOUR, LINUX, SHARED, UNITS, Price
from pricing.zones import is_aws_id, is_local

if TYPE_CHECKING:
    from pricing.catalog import Catalog
    from pricing.instances import InstanceType

LARGEST_CHANGE = 3
"""Prices were cut to 0.56 of what they were, and spot doubled in three months; three times is no market."""
BOUND_FACTOR = 3
"""A price per GPU-hour may be this many times above the dearest on-demand price that ships for the model, or below the
cheapest."""
EXACTLY = Fraction(1, 200)
"""How near to the number of its GPUs a change must be to look like a price per GPU."""
SPOT_FLOOR = Fraction(1, 10)
"""Of on-demand: the floor that AWS keeps."""
SPOT_PLACES = 4
"""Clouds publish spot at four decimals and on-demand at up to six."""
COMMITTED_FLOOR = Fraction(1, 5)
"""Of the model's cheapest on-demand price: the deepest three-year discounts are about 70 %."""
HOURS_PER_MONTH = 730
FUTURE = timedelta(days=366)
"""How far ahead a price may be announced."""


class Verdict(NamedTuple):
    """What to do with a price."""

    kind: Literal["good", "warned", "held", "refused"]
    sentence: str = ""


GOOD = Verdict("good")


class Known(NamedTuple):
    """What is known already of the offer."""

    last: Price | None = None
    """The good price before it (else after it) in time."""
    on_demand: Price | None = None
    """The on-demand price that held at its moment."""


class Bounds(NamedTuple):
    """The lowest and highest on-demand price per GPU and hour that ships for a GPU model, in its currency."""

    low: Fraction
    high: Fraction


class Judge:
    """Judges prices by the shapes and prices of a catalog; use `shipped`."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._bounds = bounds_of(catalog)

    @classmethod
    @cache
    def shipped(cls) -> Self:
        """By the prices that ship with the program."""
        from pricing.catalog import Catalog

        return cls(Catalog.embedded())

    def name(self, price: Price) -> str:
        """`The spot price of p4d.24xlarge in use1-az1`."""
        return f"The {price.purchase} price of {price.instance_type} in {price.zone or price.region}"

    def malformed(self, price: Price) -> str | None:
        """What of it cannot be a price at all, whatever the offer costs."""
        what = self.name(price)
        if price.amount is not None and not price.amount.is_finite():
            return f"{what} is {price.amount}, which is not a number: a price is a number above 0."
        if price.amount is not None and price.amount <= 0:
            return f"{what} is {price.amount}: a price is above 0; one that is not known stays empty."
        if price.currency not in CURRENCIES:
            return f"{what} is in {price.currency!r}, which is no currency: expected an ISO 4217 code like USD."
        if price.unit not in UNITS:
            return f"{what} is per {price.unit!r}, which is no known unit: expected one of {', '.join(UNITS)}."
        if price.purchase not in PURCHASES:
            return f"{what}: there is no such purchase option; expected one of {', '.join(PURCHASES)}."
        if price.payment not in PAYMENTS:
            return f"{what}: {price.payment!r} is no way to pay; expected no_upfront, partial_upfront or all_upfront."
        return self._misplaced(price, what) or self._mistimed(price, what)

    def _misplaced(self, price: Price, what: str) -> str | None:
        if not (price.cloud and price.region and price.instance_type):
            return f"{what}: its cloud, region or instance type is empty."
        if price.cloud == "aws" and price.zone is not None and not is_aws_id(price.zone):
            return f"{what}: {price.zone} is a zone's name, which each account maps to another place; expected an id like use1-az1."
        return None

    def _mistimed(self, price: Price, what: str) -> str | None:
        for name, moment in (("valid_from", price.valid_from), ("fetched_at", price.fetched_at)):
            if moment.tzinfo is None:
                return f"{what}: its {name} {moment} has no time zone; expected UTC."
        if price.valid_from - price.fetched_at > FUTURE:
            return f"{what} holds from {price.valid_from:%Y-%m-%d} on, more than a year after it was published."
        return None

    def judge(self, price: Price, known: Known) -> Verdict:
        """A well-formed price against its GPU model's bounds, on-demand, and the last good one."""
        what, last = self.name(price), _comparable(known.last, price)
        if price.amount is None:
            return GOOD if last is None else Verdict("refused", f"{what} is no longer told; {_kept(last)}.")
        if known.last is not None and last is None and known.last.amount is not None:
            was = f"it was in {known.last.currency}, and is told in {price.currency}"
            return Verdict("held", f"{what}: {was}, expected one currency; {_held(known.last)}.")
        if price.unit not in (INSTANCE_HOUR, "gpu_hour"):
            return self._changed(price, what, last)
        verdict = self._out_of_bounds(price, what, last)
        if verdict is not None:
            return verdict
        if price.unit == INSTANCE_HOUR and price.purchase != "on_demand":
            verdict = self._against_on_demand(price, what, known, last)
            if verdict is not None:
                return verdict
        return self._changed(price, what, last or self._shipped(price))

    def _out_of_bounds(self, price: Price, what: str, last: Price | None) -> Verdict | None:
        each, bounds = self._per_gpu(price), self._bounds_for(price)
        if each is None or bounds is None or bounds.low <= each <= bounds.high:
            return None
        hint = self._likely_cause(price, each, bounds)
        expected = f"expected {_text(bounds.low)} to {_text(bounds.high)} {price.currency} per {self._model(price)} and hour"
        sentence = f"{what} is {_text(price.amount)} {price.currency}, {_text(each)} per GPU: {expected}{hint}; {_kept(last)}."
        return Verdict("refused", sentence)

    def _against_on_demand(self, price: Price, what: str, known: Known, last: Price | None) -> Verdict | None:
        rack, certain = self._on_demand(price, known)
        if rack is None or price.amount is None:
            return None
        ceiling, floor = to_decimal(rack, SPOT_PLACES), to_decimal(Fraction(rack) * SPOT_FLOOR, SPOT_PLACES)
        if price.amount > max(ceiling, rack):
            sentence = (
                f"{what} is {_text(price.amount)} {price.currency}, above on-demand ({_text(rack)}): expected at most that"
            )
            if price.purchase != "spot":
                return Verdict("held", f"{sentence}; {_held(last)}.")
            if certain:
                return Verdict("refused", f"{sentence}, the ceiling of spot; {_kept(last)}.")
            return Verdict("warned", f"{sentence}, but on-demand may have been higher then; it was kept.")
        if price.purchase == "spot" and price.amount < floor:
            low = f"below a tenth of on-demand ({_text(rack)}), the floor that spot has kept to"
            return Verdict("warned", f"{what} is {_text(price.amount)} {price.currency}, {low}; it was kept.")
        return GOOD if price.purchase == "spot" else None

    def _changed(self, price: Price, what: str, last: Price | None) -> Verdict:
        if last is None or last.amount is None or price.amount is None:
            return GOOD
        ratio = Fraction(price.amount) / Fraction(last.amount)
        if Fraction(1, LARGEST_CHANGE) <= ratio <= LARGEST_CHANGE and not self._is_per_gpu(price, ratio):
            return GOOD
        low, high = Fraction(last.amount) / LARGEST_CHANGE, Fraction(last.amount) * LARGEST_CHANGE
        change = f"{float(ratio):.3g} times the last good price ({_text(last.amount)})"
        hint = _cause(ratio, self._gpu_count(price))
        expected = f"expected {_text(low)} to {_text(high)}{f' ({hint})' if hint else ''}"
        return Verdict("held", f"{what} is {_text(price.amount)} {price.currency}, {change}: {expected}; {_held(last)}.")

    def _is_per_gpu(self, price: Price, ratio: Fraction) -> bool:
        """Whether a change is by just the number of GPUs, as of a price per GPU that is taken for the machine's."""
        count = self._gpu_count(price)
        if count is None or count <= 1 or price.unit != INSTANCE_HOUR:
            return False
        return any(abs(off - 1) <= EXACTLY for off in (ratio * count, ratio / count))

    def _shipped(self, price: Price) -> Price | None:
        """The price that ships for this very offer; none of spot, which moves more in a year than any error."""
        if (
            price.purchase == "spot"
            or price.unit != INSTANCE_HOUR
            or price.os != LINUX
            or price.tenancy != SHARED
            or price.payment is not None
        ):
            return None
        for offer in self._catalog.offers(price.cloud, price.region, None, price.instance_type, purchase=price.purchase):
            if offer.zone == price.zone and offer.price is not None and offer.price.currency == price.currency:
                seen = datetime.combine(offer.as_of, time(), UTC)
                return price._replace(amount=offer.price.amount, valid_from=seen, fetched_at=seen, source=offer.source)
        return None

    def _on_demand(self, price: Price, known: Known) -> tuple[Decimal | None, bool]:
        """The on-demand price, and whether it is certain that it held at the price's moment."""
        rack = known.on_demand
        if rack is not None and rack.currency == price.currency:
            return rack.amount, True
        if price.zone is not None and is_local(price.zone):
            return None, False
        found = self._catalog.offers(price.cloud, price.region, None, price.instance_type, purchase="on_demand")
        if not found or found[0].price is None or found[0].price.currency != price.currency:
            return None, False
        return found[0].price.amount, price.valid_from.date() >= found[0].as_of

    def _bounds_for(self, price: Price) -> Bounds | None:
        """The believable range per GPU and hour."""
        shipped = self._bounds.get((self._model(price), price.currency))
        if shipped is None:
            return None
        floor = {"on_demand": Fraction(1), "capacity_block": Fraction(1), "spot": SPOT_FLOOR}.get(
            price.purchase, COMMITTED_FLOOR
        )
        return Bounds(shipped.low * floor / BOUND_FACTOR, shipped.high * BOUND_FACTOR)

    def _per_gpu(self, price: Price) -> Fraction | None:
        if price.amount is None:
            return None
        if price.unit == "gpu_hour":
            return Fraction(price.amount)
        count = self._gpu_count(price)
        return Fraction(price.amount) / count if count else None

    def _likely_cause(self, price: Price, each: Fraction, bounds: Bounds) -> str:
        """What the value would be if it were right in another unit, where only that is believable."""
        count = self._gpu_count(price) or 0
        for factor, cause in (
            (Fraction(1, 100), "it looks like cents"),
            (Fraction(100), "it looks like hundreds of the currency"),
            (Fraction(1, HOURS_PER_MONTH), "it looks like a price per month"),
            (Fraction(HOURS_PER_MONTH), "it looks like an hourly price that was taken for a monthly one"),
            (Fraction(count), "it looks like the price of one GPU of the instance"),
            (Fraction(1, count) if count else Fraction(0), "it looks multiplied by the number of GPUs"),
        ):
            shipped = self._bounds.get((self._model(price), price.currency))
            usual = shipped or bounds
            if factor not in (0, 1) and usual.low * Fraction(4, 5) <= each * factor <= usual.high * Fraction(5, 4):
                return f" ({cause}: {_text(Fraction(price.amount or 0) * factor)} would be believable)"
        return ""

    def _shape(self, price: Price) -> InstanceType | None:
        return self._catalog.instance(price.cloud, price.instance_type)

    def _model(self, price: Price) -> str:
        shape = self._shape(price)
        return (shape.gpu_model if shape else None) or ""

    def _gpu_count(self, price: Price) -> Fraction | None:
        shape = self._shape(price)
        return Fraction(shape.gpu_count) if shape is not None and shape.gpu_count else None


def bounds_of(catalog: Catalog) -> Mapping[tuple[str, str], Bounds]:
    """(GPU model, currency) -> the range of the catalog's on-demand prices per GPU and hour."""
    found: dict[tuple[str, str], Bounds] = {}
    for offer in catalog.offers(purchase="on_demand"):
        each, shape = catalog.per_gpu(offer), catalog.instance(offer.cloud, offer.instance_type)
        if each is None or shape is None or shape.gpu_model is None or offer.price is None:
            continue
        key = (shape.gpu_model, offer.price.currency)
        low, high = found.get(key, (each, each))
        found[key] = Bounds(min(low, each), max(high, each))
    return found


def _cause(ratio: Fraction, gpus: Fraction | None) -> str:
    """What a change by this factor usually is: of cents, months, or GPUs."""
    causes = [(Fraction(100), "cents"), (Fraction(HOURS_PER_MONTH), "a month for an hour")]
    if gpus is not None and gpus > 1:
        causes.append((gpus, "one GPU for the instance"))
    for factor, cause in causes:
        if any(Fraction(9, 10) <= off <= Fraction(11, 10) for off in (ratio / factor, ratio * factor)):
            return f"a factor of {factor}: {cause}?"
    return ""


def _comparable(last: Price | None, price: Price) -> Price | None:
    return last if last is not None and last.amount is not None and last.currency == price.currency else None


def _kept(last: Price | None) -> str:
    if last is None:
        return "it was not taken"
    return f"the last good price, {_text(last.amount)} seen {last.fetched_at:%Y-%m-%d %H:%M} UTC, stays"


def _held(last: Price | None) -> str:
    return f"held back until it is seen again or accepted (--accept), {_kept(last)}"


def _text(amount: Decimal | Fraction | None) -> str:
    """At most six decimals, none that say nothing."""
    if amount is None:
        return "-"
    text = format(to_decimal(Fraction(amount), 6), "f").rstrip("0").rstrip(".")
    return text or "0"
