"""What is paid by the month beside the nodes: storage and egress.

Invariant: a month's amount is spread evenly over the hours of its UTC calendar month, so that any parts of a range add
up to it exactly. It is allocated cost of the project and user that the item names, never part of a node's price.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction

from pricing.calendar import instant, milliseconds
from pricing.price_steps import ALWAYS


@dataclass(frozen=True, slots=True)
class Item:
    """`kind`: `storage` or `egress`; `per_month` in `currency`. It costs from `starts_ms` on, whatever the ledger holds."""

    kind: str
    name: str
    per_month: Fraction
    currency: str = "USD"
    cloud: str | None = None
    region: str | None = None
    project: str | None = None
    user: str | None = None
    starts_ms: int = ALWAYS
    ends_ms: int | None = None

    def pieces(self, starts_ms: int, ends_ms: int) -> Iterator[tuple[int, int, Fraction]]:
        """(from, to, cost) of each calendar month within [starts_ms, ends_ms)."""
        at = max(starts_ms, self.starts_ms)
        end = ends_ms if self.ends_ms is None else min(ends_ms, self.ends_ms)
        while at < end:
            first, following = _month(instant(at))
            until = min(end, following)
            yield at, until, self.per_month * (until - at) / (following - first)
            at = until


def _month(moment: datetime) -> tuple[int, int]:
    """The calendar month (of UTC) that holds `moment`."""
    first = datetime(moment.year, moment.month, 1, tzinfo=UTC)
    following = datetime(moment.year + moment.month // 12, moment.month % 12 + 1, 1, tzinfo=UTC)
    return milliseconds(first), milliseconds(following)
