"""What a plan costs: nodes by the second, storage and checkpoints while the job runs, data that leaves its cloud or region.

Invariant: money is exact (fractions of whole billed seconds and listed prices). A part whose price is not known makes the
whole unknown and is named; currencies are never added without a rate that the user gave.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date
from fractions import Fraction
from math import ceil
from typing import NamedTuple

from pricing import price_steps
from pricing.contracts import Discount, factors, type_matches
from pricing.currency import Exchange
from pricing.offers import Offer
from pricing.planner_storage import GB, Storage, Tier, row_of
from pricing.planner_workload import PriceChange, Workload

HOURS_PER_MONTH = 730


class Rate(NamedTuple):
    """One offer as this user pays it, per node and hour."""

    cloud: str
    region: str
    zone: str | None
    instance_type: str
    purchase: str
    per_hour: Fraction | None
    """In `currency`; None: not known."""
    currency: str | None
    as_of: date
    source: str
    changed: str = ""
    """What a discount or a what-if did to the listed price."""


class Cost(NamedTuple):
    """In US dollars; None: not known. `native` is the whole in the currency of the offer, where that alone is known."""

    compute: Fraction | None
    storage: Fraction | None
    egress: Fraction | None
    unknown: tuple[str, ...]
    """The parts whose price is not known, and why."""
    native: Fraction | None = None
    currency: str | None = None

    @property
    def total(self) -> Fraction | None:
        if self.compute is None or self.storage is None or self.egress is None:
            return None
        return self.compute + self.storage + self.egress


class Prices(NamedTuple):
    """Everything that turns time into money. `now_ms`: UTC milliseconds, for discounts and exchange rates."""

    storage: Sequence[Tier]
    exchange: Exchange
    discounts: Sequence[Discount]
    changes: Sequence[PriceChange]
    now_ms: int

    def in_usd(self, amount: Fraction | None, currency: str | None) -> Fraction | None:
        if amount is None or currency is None:
            return None
        if currency == "USD" or not amount:
            return amount
        steps = self.exchange.steps(currency, "USD")
        rate = None if steps is None else price_steps.value_at(steps, self.now_ms)
        return None if rate is None else amount * rate

    def rate(self, offer: Offer) -> Rate:
        """The offer's price after the contract's discount and the changes of a what-if."""
        price = None if offer.price is None else offer.price.fraction
        currency = None if offer.price is None else offer.price.currency
        words = []
        if price is not None and self.discounts:
            steps = factors(self.discounts, offer.cloud, offer.region, offer.instance_type, offer.purchase)
            factor = price_steps.value_at(steps, self.now_ms)
            if factor is not None and factor != 1:
                price *= factor
                words.append(f"less {float((1 - factor) * 100):g} % by terms.toml")
        for change in self.changes:
            if not _matches(change, offer):
                continue
            if change.usd_per_hour is not None:
                price, currency = change.usd_per_hour, "USD"
                words.append(f"set to ${float(price):g}/h")
            elif price is not None and change.factor is not None:
                price *= change.factor
                words.append(f"times {float(change.factor):g}")
        source = offer.source
        return Rate(
            offer.cloud, offer.region, offer.zone, offer.instance_type, offer.purchase, price, currency, offer.as_of, source,
            "; ".join(words),
        )  # fmt: skip


def _matches(change: PriceChange, offer: Offer) -> bool:
    return (
        change.cloud in (None, offer.cloud)
        and change.purchase in (None, offer.purchase)
        and (change.region is None or "".join(change.region.lower().split()) == offer.region)
        and type_matches(offer.cloud, change.instance_type, offer.instance_type)
    )


def billed_seconds(seconds: float) -> int:
    """Whole seconds, the last one begun counts."""
    return ceil(seconds - 1e-9)


def cost_of(
    workload: Workload, rate: Rate, nodes: int, billed: int, elapsed: int, storage: Storage | None, prices: Prices
) -> Cost:
    """`billed`: seconds of each node; `elapsed`: seconds from start to end, for what is paid by the month."""
    unknown: list[str] = []
    compute = None if rate.per_hour is None else rate.per_hour * nodes * Fraction(billed, 3600)
    if compute is None:
        unknown.append(f"no {rate.purchase} price of {rate.instance_type} in {rate.region}")
    compute_usd = prices.in_usd(compute, rate.currency)
    if compute is not None and compute_usd is None:
        unknown.append(f"its price is in {rate.currency}, and terms.toml gives no exchange rate")
    kept = _stored(workload, rate.cloud, elapsed, storage, prices, unknown)
    return Cost(compute_usd, kept, _egress(workload, rate, prices, unknown), tuple(unknown), compute, rate.currency)


def _stored(
    workload: Workload, cloud: str, elapsed: int, storage: Storage | None, prices: Prices, unknown: list[str]
) -> Fraction | None:
    months = Fraction(elapsed, 3600 * HOURS_PER_MONTH)
    total = Fraction(0)
    parts: list[tuple[Fraction | None, str, str]] = []
    if storage is not None:
        parts.append((storage.monthly, storage.currency, f"no price of {storage.name} ({cloud})"))
    if workload.checkpoint is not None:
        home = row_of(prices.storage, cloud, "object")
        size = Fraction(ceil(workload.checkpoint.size_bytes / GB)) * workload.checkpoint.keep
        monthly = None if home is None or home.price_per_gb_month is None else home.price_per_gb_month * size
        parts.append((monthly, home.currency if home else "USD", f"no price to keep checkpoints ({cloud})"))
    for monthly, currency, why in parts:
        usd = prices.in_usd(None if monthly is None else monthly * months, currency)
        if usd is None:
            unknown.append(
                why if monthly is None else f"storage is priced in {currency}, and terms.toml gives no exchange rate"
            )
            return None
        total += usd
    return total


def _egress(workload: Workload, rate: Rate, prices: Prices, unknown: list[str]) -> Fraction | None:
    data = workload.data
    if data is None or data.cloud is None:
        return Fraction(0)
    if data.cloud != rate.cloud:
        kind, where = "egress_internet", "out of " + data.cloud
    elif data.region is not None and "".join(data.region.lower().split()) != rate.region:
        kind, where = "egress_region", f"out of {data.region}"
    else:
        return Fraction(0)
    row = row_of(prices.storage, data.cloud, kind)
    each = None if row is None else row.price_per_gb_month
    found = prices.in_usd(None if each is None else each * Fraction(ceil(data.size_bytes / GB)), row.currency if row else None)
    if found is None:
        unknown.append(f"no price of data {where}")
    return found


def cheapest(rates: Iterable[Rate], prices: Prices) -> Rate | None:
    """Of offers of one type and purchase: known prices first, in US dollars; then by place."""

    def order(rate: Rate) -> tuple[object, ...]:
        usd = prices.in_usd(rate.per_hour, rate.currency)
        return (usd is None, usd or 0, rate.per_hour is None, rate.per_hour or 0, rate.region, rate.zone or "")

    return min(rates, key=order, default=None)
