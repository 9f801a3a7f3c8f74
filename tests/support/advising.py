"""Small demands, rate cards and ledgers for tests of advice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from fractions import Fraction

import numpy as np

from pricing.advice import Action
from pricing.calendar import EPOCH
from pricing.catalog import Catalog
from pricing.demand import Demand, DemandKey
from pricing.ledger import Ledger
from pricing.ledger_merge import HOUR_MS
from pricing.owned import Commitment
from pricing.rate_card import TERM_MONTHS, FileCard, Rate
from pricing.usage import WHOLE_SHARE, Placed, Usage

START = datetime(2026, 10, 1, tzinfo=UTC)
P4D = DemandKey("aws", "us-east-1", "p4d.24xlarge")
P5 = DemandKey("aws", "us-east-1", "p5.48xlarge")


def demand_of(
    counts: Mapping[DemandKey, Sequence[float]], start: datetime = START, known: Sequence[bool] | None = None
) -> Demand:
    arrays = {key: np.asarray(values, dtype=float) for key, values in counts.items()}
    hours = len(next(iter(arrays.values())))
    seen = np.ones(hours, dtype=bool) if known is None else np.asarray(known, dtype=bool)
    return Demand(
        int((start - EPOCH) // timedelta(hours=1)), seen, {key: np.where(seen, part, 0.0) for key, part in arrays.items()}
    )


def card_of(rates: Mapping[DemandKey, Mapping[str, object]], factor: Fraction = Fraction(1)) -> FileCard:  # noqa: B008
    """Purchase option -> price per hour without upfront."""
    found = {
        key: [
            Rate(purchase, Fraction(str(price)) * factor, Fraction(str(price)) * factor, Fraction(0), TERM_MONTHS.get(purchase),
                 "no_upfront" if purchase in TERM_MONTHS else None, "test")
            for purchase, price in of.items()
        ]
        for key, of in rates.items()
    }  # fmt: skip
    return FileCard(found, (), Catalog.embedded())


def reservation(
    count: int, usd: str, start: datetime = START, days: int = 365, key: DemandKey = P4D, id: str = "r"
) -> Commitment:
    begin = round(start.timestamp() * 1000)
    return Commitment(
        id, "reservation", "aws", begin, begin + days * 24 * HOUR_MS, Fraction(usd), region=key.region,
        instance_type=key.instance_type, count=count,
    )  # fmt: skip


def action(saving: object, **more: object) -> Action:
    amount = Fraction(str(saving))
    plain: dict[str, object] = {
        "kind": "stop", "what": f"stop {saving}", "saving_per_month": amount, "saving_range": (amount / 2, amount), "evidence": {},
        "break_even": None, "risks": (), "how": (),
    }  # fmt: skip
    return Action(**{**plain, **more})  # type: ignore[arg-type]


Use = tuple[str | None, float | None]
"""Holder or None, utilisation or None."""


class Node:
    """One node of a ledger: `use` is that of all GPUs and hours, or by GPU, or a function of (hour, GPU)."""

    def __init__(self, name: str, use: Use | Mapping[int, Use] | Callable[[int, int], Use], **placed: object) -> None:
        self.name, self._use = name, use
        plain: dict[str, object] = {
            "cloud": "aws", "region": "us-east-1", "instance_type": "p4d.24xlarge", "purchase": "on_demand", "gpu_count": 8,
            "gpu_model": "A100",
        }  # fmt: skip
        self.placed = Placed(1, name, **{**plain, **placed})  # type: ignore[arg-type]

    def use(self, hour: int, gpu: int) -> Use:
        if callable(self._use):
            return self._use(hour, gpu)
        return self._use if isinstance(self._use, tuple) else self._use.get(gpu, (None, 0.0))

    def put(self, ledger: Ledger, hours: int, start: datetime = START) -> None:
        rows = []
        for hour in range(hours):
            begin = round(start.timestamp() * 1000) + hour * HOUR_MS
            for gpu in range(self.placed.gpu_count):
                holder, ratio = self.use(hour, gpu)
                row = Usage(
                    len(rows) + 1, begin, begin + HOUR_MS, f"{self.name}-{gpu}", "held" if holder else "idle", None, WHOLE_SHARE,
                    holder, "vision" if holder else None, f"job-{holder}" if holder else None, ratio, None, None, 1,
                )  # fmt: skip
                rows.append(row)
        ledger.take(self.name, self.name, rows, [self.placed], 1)


def ledger_with(nodes: Sequence[Node], hours: int = 24 * 8) -> Ledger:
    ledger = Ledger.open(":memory:")
    for node in nodes:
        node.put(ledger, hours)
    return ledger
