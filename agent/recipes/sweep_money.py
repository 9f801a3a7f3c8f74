"""What a sweep has cost so far, and whether another trial would go beyond its budget.

Invariant: money is exact; what has no price costs None, and then there is no budget to keep.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path

FILE = "money.json"
_HOUR = Decimal(3600)
_PLACES = Decimal("0.000001")


def cost(usd_per_hour: str | Decimal | None, seconds: float) -> Decimal | None:
    """Of a trial, to a millionth of a dollar."""
    if not usd_per_hour:
        return None
    return (Decimal(usd_per_hour) * Decimal(str(round(seconds, 3))) / _HOUR).quantize(_PLACES)


class Money:
    """Of the whole sweep, over all its nodes and all times that it was started."""

    def __init__(
        self, budget: Decimal | None, rate: Callable[[], Decimal | None], folder: Path, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.budget, self._rate, self._file, self._clock = budget, rate, folder / FILE, clock
        kept = _kept(self._file)
        self._before, self._seconds_before = Decimal(str(kept.get("usd", "0"))), float(kept.get("seconds", 0.0))
        self._at, self._sum, self._began = clock(), Decimal(0), clock()
        self._trials: list[Decimal] = []
        self.running: dict[str, Decimal] = {}
        """Trial -> what it has cost so far."""

    @property
    def seconds(self) -> float:
        return self._seconds_before + self._clock() - self._began

    def spent(self) -> Decimal | None:
        """Wall time by the price of the nodes that are there."""
        now, rate = self._clock(), self._rate()
        if rate is None:
            return None
        self._sum += rate * Decimal(str(now - self._at)) / _HOUR
        self._at = now
        return (self._before + self._sum).quantize(_PLACES)

    def ended(self, trial: str, cost: Decimal | None) -> None:
        self.running.pop(trial, None)
        if cost is not None:
            self._trials.append(cost)
        self.keep()

    def expected(self) -> Decimal | None:
        """Of a trial: the mean of those that ended."""
        return sum(self._trials, Decimal(0)) / len(self._trials) if self._trials else None

    def may_start(self) -> bool:
        """Whether another trial fits, with what the running ones may still cost."""
        spent = self.spent()
        if self.budget is None or spent is None:
            return True
        expected = self.expected()
        if expected is None:
            return spent < self.budget
        still = sum((max(Decimal(0), expected - so_far) for so_far in self.running.values()), Decimal(0))
        return spent + still + expected <= self.budget

    def keep(self) -> None:
        """For a start after a stop."""
        spent = self.spent()
        part = self._file.with_suffix(".part")
        part.write_text(json.dumps({"usd": str(spent or 0), "seconds": round(self.seconds, 3)}))
        part.replace(self._file)


def _kept(path: Path) -> Mapping[str, object]:
    try:
        kept = json.loads(path.read_text())
        return kept if isinstance(kept, dict) else {}
    except (OSError, ValueError):
        return {}
