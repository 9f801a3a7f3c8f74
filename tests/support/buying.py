"""Evidence and rates for tests of what to buy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from fractions import Fraction

import numpy as np

from pricing.advice import Case
from pricing.catalog import Catalog
from pricing.demand import Demand, DemandKey
from pricing.rate_card import FileCard, Rate
from pricing.terms import Terms

F = Fraction
FIRST_HOUR = 490_000
P4D = DemandKey("aws", "us-east-1", "p4d.24xlarge")
G5 = DemandKey("aws", "us-east-1", "g5.xlarge")
G4DN = DemandKey("aws", "us-east-1", "g4dn.xlarge")
ON_DEMAND = {P4D: F("21.957642"), G5: F("1.006"), G4DN: F("0.526")}


def on_demand(amount: object) -> Rate:
    return Rate("on_demand", F(str(amount)), F(str(amount)), source="test")


def spot(amount: object, zone: str | None = "use1-az1") -> Rate:
    return Rate("spot", F(str(amount)), F(str(amount)), source="test", zone=zone)


def committed(purchase: str, amount: object, payment: str = "no_upfront", source: str = "test") -> Rate:
    months = 36 if purchase.endswith("3y") else 12
    price = F(str(amount))
    upfront = {"no_upfront": F(0), "partial_upfront": price * months * 730 / 2, "all_upfront": price * months * 730}[payment]
    return Rate(purchase, price, price - upfront / (months * 730), upfront, months, payment, source)


def card(rates: Mapping[DemandKey, Sequence[Rate]]) -> FileCard:
    return FileCard(rates, (), Catalog.embedded())


def usual(
    share: str = "0.63", keys: Sequence[DemandKey] = (P4D, G5, G4DN), scale: Fraction = F(1)
) -> dict[DemandKey, list[Rate]]:
    """On demand, and one year at a share of it."""
    return {key: [on_demand(ON_DEMAND[key] * scale), committed("reserved_1y", ON_DEMAND[key] * F(share) * scale)] for key in keys}


def demand(series: Mapping[DemandKey, object], **more: object) -> Demand:
    counts = {key: np.asarray(hours, float) for key, hours in series.items()}
    hours = len(next(iter(counts.values())))
    return Demand(FIRST_HOUR, np.ones(hours, bool), counts, **more)  # type: ignore[arg-type]


def waves(days: int, seed: int = 0) -> dict[DemandKey, np.ndarray]:
    """Three types that go up and down by the day."""
    rng = np.random.default_rng(seed)
    hours = np.arange(days * 24)
    return {
        key: np.maximum(0, np.rint(base + swing * np.sin(hours * 2 * np.pi / 24) + rng.normal(0, 1, len(hours))))
        for key, base, swing in ((P4D, 10, 2), (G5, 30, 15), (G4DN, 3, 2))
    }


def case(used: Demand, rates: Mapping[DemandKey, Sequence[Rate]], terms: Terms | None = None, **more: object) -> Case:
    return Case(used, card(rates), used.end, terms or Terms(), **more)  # type: ignore[arg-type]


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)
