"""The spot prices that a price book keeps, as the advice asks for them: means over time per type and zone.

Invariant: a stretch before the first price that is known is unknown; the mean is over what is known, with how much that is.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from fractions import Fraction
from typing import NamedTuple

from pricing.catalog import Catalog
from pricing.market_steps import Mean


class Series(NamedTuple):
    """One type in one zone."""

    instance_type: str
    zone: str


class ZoneHistory(NamedTuple):
    catalog: Catalog
    series: Series

    def mean(self, start: datetime, end: datetime) -> Mean:
        """Time-weighted, over what is known of [start, end)."""
        steps = self.catalog.steps(
            "aws", None, self.series.zone, self.series.instance_type, "spot", start, end, estimates=False
        )
        ends = [at for at, _ in steps[1:]] + [end]
        total, known = Fraction(0), Fraction(0)
        for (at, price), until in zip(steps, ends, strict=True):
            length = Fraction((until - at).total_seconds()).limit_denominator(1000)
            if price is not None and length > 0:
                total, known = total + price.fraction * length, known + length
        whole = Fraction((end - start).total_seconds()).limit_denominator(1000)
        return Mean(total / known if known else None, known / whole if whole else Fraction(0))


class CatalogHistory:
    """What `pricing.market.Market` is for files, over a catalog with a price book. AWS alone has prices per zone."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def find(self, instance_type: str | None = None, zone: str | None = None, product: str | None = None) -> Sequence[Series]:
        return [Series(instance_type, zone)] if instance_type is not None and zone is not None else []

    def __getitem__(self, series: Series) -> ZoneHistory:
        return ZoneHistory(self._catalog, series)
