"""Prices as they are published: one value with its unit, currency, place, terms, dates and source.

Invariant: a price is never without its unit, currency, dates and source; one that was not told is None, never 0.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import NamedTuple

INSTANCE_HOUR = "instance_hour"
UNITS = (INSTANCE_HOUR, "gpu_hour", "month", "gb_month", "gb")
"""Units that prices come in. Only `instance_hour` prices a node; nothing else is turned into it silently."""
LINUX = "linux"
SHARED = "shared"


class Price(NamedTuple):
    """One published price, as its source said it."""

    cloud: str
    region: str
    zone: str | None
    """AWS zone id; None: the price holds in the whole region."""
    instance_type: str
    purchase: str
    """A purchase option of `pricing.offers.PURCHASES`."""
    amount: Decimal | None
    """Per unit; None: it is offered, and its price is not told."""
    currency: str
    unit: str
    """`instance_hour`, `gpu_hour`, `month`, `gb_month`, `gb`, ..."""
    valid_from: datetime
    """UTC: since when the source says that it holds."""
    fetched_at: datetime
    """UTC: when the source said so."""
    source: str
    """`aws price list api 2026-11-29`, ..."""
    sku: str | None = None
    payment: str | None = None
    """`no_upfront`, `partial_upfront` or `all_upfront`."""
    upfront: Decimal | None = None
    """Per instance, for the whole term."""
    hourly: Decimal | None = None
    """The recurring part; `amount` is upfront / term_hours + hourly, rounded to 10 places."""
    term_hours: int | None = None
    os: str = LINUX
    tenancy: str = SHARED
