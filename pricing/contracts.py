"""Discounts of a contract: list price x (1 - discount) is the contracted price.

Invariant: discounts never stack. Where several hold at a moment, the largest counts; the order in the file does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from fractions import Fraction

from pricing import price_steps
from pricing.instances import name_key
from pricing.price_steps import ALWAYS, Steps


@dataclass(frozen=True, slots=True)
class Discount:
    """`percent` off the list price of what matches, from `starts_ms` until `ends_ms` (None: without end)."""

    cloud: str
    percent: Fraction
    instance_type: str = "*"
    """A type or a pattern like `p4d.*`; case does not matter."""
    purchase: str | None = None
    """None: every purchase option."""
    region: str | None = None
    starts_ms: int = ALWAYS
    ends_ms: int | None = None

    def matches(self, cloud: str | None, region: str | None, instance_type: str | None, purchase: str | None) -> bool:
        return (
            cloud is not None
            and instance_type is not None
            and cloud.strip().lower() == self.cloud
            and (self.region is None or (region or "").strip().lower() == self.region)
            and (self.purchase is None or (purchase or "on_demand").strip().lower() == self.purchase)
            and type_matches(self.cloud, self.instance_type, instance_type)
        )


def type_matches(cloud: str, pattern: str, instance_type: str) -> bool:
    """Whether an instance type is of a pattern, however each is spelt (`Standard_`, `ecs.` may be left out)."""
    return fnmatchcase(name_key(cloud, instance_type), name_key(cloud, pattern))


def factors(
    discounts: Sequence[Discount], cloud: str | None, region: str | None, instance_type: str | None, purchase: str | None
) -> Steps:
    """What the list price is multiplied with over time: 1 - the largest discount of each moment."""
    held = [one for one in discounts if one.matches(cloud, region, instance_type, purchase)]
    if not held:
        return price_steps.constant(Fraction(1))
    points = sorted({at for one in held for at in (one.starts_ms, one.ends_ms) if at is not None and at != ALWAYS})
    return price_steps.made([(at, _factor(held, at)) for at in points], _factor(held, ALWAYS))


def _factor(held: Sequence[Discount], at: int) -> Fraction:
    percents = [one.percent for one in held if one.starts_ms <= at and (one.ends_ms is None or at < one.ends_ms)]
    return 1 - max(percents, default=Fraction(0)) / 100
