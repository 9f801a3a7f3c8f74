"""What a sweep and each of its trials have cost so far, and whether another trial would go beyond the budget.

Invariant: money is exact; what has no price costs None, and then there is no budget to keep. What was spent before a stop, or
on a node that was lost, is counted.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

FILE = "money.json"
_HOUR = Decimal(3600)
_PLACES = Decimal("0.000001")


def cost(usd_per_hour: str | Decimal | None, seconds: float) -> Decimal | None:
    """To a millionth of a dollar."""
    if not usd_per_hour:
        return None
    return (Decimal(usd_per_hour) * Decimal(str(round(seconds, 3))) / _HOUR).quantize(_PLACES)


class Paid(NamedTuple):
    """What a trial has taken."""

    seconds: float = 0.0
    usd: Decimal | None = None

    def with_run(self, seconds: float, usd: Decimal | None) -> Paid:
        return Paid(self.seconds + seconds, self.usd if usd is None else usd + (self.usd or 0))


class Money:
    """Of the whole sweep, over all its nodes and all times that it was started."""

    def __init__(
        self, budget: Decimal | None, rate: Callable[[], Decimal | None], folder: Path, clock: Callable[[], float] = time.monotonic,
        reserve_seconds: float = 0.0, job: str | None = None, began: float | None = None,
    ) -> None:  # fmt: skip
        self.budget, self._rate, self._file, self._clock = budget, rate, folder / FILE, clock
        kept = _kept(self._file)
        self._before, self._seconds_before = Decimal(str(kept.get("usd", "0"))), float(kept.get("seconds", 0.0))
        self._reserve = Decimal(str(reserve_seconds))
        self._began = self._at = clock() if began is None else began
        self._sum = Decimal(0)
        self._done = {int(number): _paid(one) for number, one in kept.get("trials", {}).items()}
        """Trial -> of its runs that are over."""
        self._running: dict[int, Paid] = {}
        """Trial -> of the run that goes on."""
        self._ended = set(kept.get("ended", ()))
        self._job = job
        self._earlier = {int(number): Decimal(usd) for number, usd in kept.get("earlier", {}).items()}
        if kept.get("job") != job:
            self._earlier = {number: paid.usd for number, paid in self._done.items() if paid.usd is not None}

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

    def runs(self, trial: int, seconds: float, usd: Decimal | None) -> None:
        """How far the trial's run is."""
        self._running[trial] = Paid(seconds, usd)

    def paid(self, trial: int) -> Paid:
        """Of all its runs."""
        return self._done.get(trial, Paid()).with_run(*self._running.get(trial, Paid()))

    def earlier(self, trial: int) -> Decimal | None:
        """What of it other jobs have cost, before the sweep was stopped; None: nothing."""
        return self._earlier.get(trial)

    def over(self, trial: int, *, ended: bool) -> Paid:
        """The trial's run is over; `ended`: there will be no other one."""
        self._done[trial] = paid = self.paid(trial)
        self._running.pop(trial, None)
        if ended:
            self._ended.add(trial)
        self.keep()
        return paid

    def expected(self) -> float | None:
        """Seconds of a trial: the mean of those that ended."""
        known = [self._done[trial].seconds for trial in self._ended]
        return sum(known) / len(known) if known else None

    def may_start(self) -> bool:
        """Whether another trial fits: all nodes are paid until it ends, also for GPUs that wait by then."""
        spent, rate = self.spent(), self._rate()
        if self.budget is None or spent is None or rate is None:
            return True
        limit = self.budget - min(rate * self._reserve / _HOUR, self.budget / 2)
        return spent < limit and spent + rate * Decimal(str(self.expected() or 0.0)) / _HOUR <= limit

    def keep(self) -> None:
        """For a start after a stop."""
        trials = {str(trial): {"seconds": paid.seconds, "usd": paid.usd and str(paid.usd)} for trial, paid in self._done.items()}
        data = {
            "usd": str(self.spent() or 0), "seconds": round(self.seconds, 3), "trials": trials, "ended": sorted(self._ended),
            "job": self._job, "earlier": {str(trial): str(usd) for trial, usd in self._earlier.items()},
        }  # fmt: skip
        part = self._file.with_suffix(".part")
        part.write_text(json.dumps(data))
        part.replace(self._file)


def _paid(one: Mapping[str, Any]) -> Paid:
    return Paid(float(one["seconds"]), None if one["usd"] is None else Decimal(one["usd"]))


def _kept(path: Path) -> Mapping[str, Any]:
    try:
        kept = json.loads(path.read_text())
        return kept if isinstance(kept, dict) else {}
    except (OSError, ValueError):
        return {}
