"""The price of each placement in a ledger, asked for once, as a rate per millisecond and millionth of a GPU.

Invariant: a price that is not known, or in another currency than the report's, has no rate but a reason.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Protocol

from pricing.grouping import Holder
from pricing.instances import InstanceType
from pricing.ledger_dictionary import read_placements
from pricing.money import PerHour
from pricing.quotes import OnPremises, Quote
from pricing.report import SHARE_MS_PER_HOUR
from pricing.usage import Placed


class Catalog(Protocol):
    """What attribution asks of a catalog; `pricing.catalog.Catalog` is one."""

    def instance(self, cloud: str, instance_type: str) -> InstanceType | None: ...

    def quote(
        self,
        cloud: str | None,
        region: str | None,
        zone: str | None,
        instance_type: str | None,
        purchase: str | None,
        configured_usd_per_hour: str | Decimal | None = None,
        on_premises: OnPremises | None = None,
    ) -> Quote: ...


class Rates:
    """Placements and holders of a ledger, and what each placement costs."""

    def __init__(
        self, catalog: Catalog, connection: sqlite3.Connection, prices: Mapping[str, PerHour], currency: str
    ) -> None:
        self.placements: dict[int, Placed] = read_placements(connection)
        self.holders = {
            id: Holder(*names) for id, *names in connection.execute("SELECT id, user, project, job FROM holders")
        }
        self._catalog = catalog
        self._prices = prices
        self._currency = currency
        self._quotes: dict[tuple[object, ...], tuple[PerHour | None, str]] = {}

    def per_share_ms(self, placement_id: int, *, host: bool) -> Fraction | None:
        """Price of one millisecond of a millionth of one GPU (of the whole node for a host row); None if not known."""
        placed = self.placements[placement_id]
        price, _ = self._price(placed, host)
        return None if price is None else price.fraction / (SHARE_MS_PER_HOUR * _parties(placed, host))

    def lacks_gpus(self, placed: Placed) -> bool:
        """Whether the instance type has GPUs, so that a node of it that shows none has lost its driver."""
        if placed.cloud is None or placed.instance_type is None:
            return False
        shape = self._catalog.instance(placed.cloud, placed.instance_type)
        return shape is not None and shape.kind == "gpu" and bool(shape.gpu_count)

    def sentences(self, unpriced: Mapping[tuple[int, bool], int]) -> tuple[str, ...]:
        """What has no price: one sentence per node and reason, with its node-hours."""
        hours: dict[tuple[str, str], Fraction] = {}
        for (placement_id, host), share_ms in unpriced.items():
            placed = self.placements[placement_id]
            key = (placed.node, self._price(placed, host)[1])
            part = Fraction(share_ms, SHARE_MS_PER_HOUR * _parties(placed, host))
            hours[key] = hours.get(key, Fraction(0)) + part
        return tuple(
            f"node {node}: {float(amount):,.2f} h have no price and are in no cost. {reason.rstrip('.')}."
            for (node, reason), amount in sorted(hours.items())
        )

    def _price(self, placed: Placed, host: bool) -> tuple[PerHour | None, str]:
        """The price per hour of the whole node, or None and why."""
        if not host and not placed.gpu_count:
            return None, "Its agent reports GPUs in use but says that it has none; is the agent of another version?"
        if placed.node in self._prices:
            return self._in_currency(self._prices[placed.node], "")
        key = placed[2:9]
        found = self._quotes.get(key)
        if found is None:
            found = self._quotes[key] = self._ask(placed)
        return found

    def _ask(self, placed: Placed) -> tuple[PerHour | None, str]:
        quote = self._catalog.quote(
            placed.cloud,
            placed.region,
            placed.zone,
            placed.instance_type,
            placed.purchase,
            configured_usd_per_hour=placed.usd_per_hour,
            on_premises=placed.on_premises,
        )
        return self._in_currency(quote.price, quote.reason or "Its price is not known")

    def _in_currency(self, price: PerHour | None, reason: str) -> tuple[PerHour | None, str]:
        if price is not None and price.currency != self._currency:
            return None, f"Its price is in {price.currency}, the report in {self._currency}, and no exchange rate is given"
        return price, reason


def _parties(placed: Placed, host: bool) -> int:
    """Among how many GPUs the node's price is divided."""
    return 1 if host else max(1, placed.gpu_count)
