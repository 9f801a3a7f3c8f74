"""Demand: how many nodes of which type ran where in each UTC hour, from a usage file or from the ledger.

Invariant: an hour that the evidence does not tell of is unknown (`known` is False there), never 0; a type that is missing in an
hour in which others are told did not run then. Counts are time-weighted nodes: 2.5 is two and a half nodes on average.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pricing.calendar import EPOCH

if TYPE_CHECKING:
    from pricing.catalog import Catalog
    from pricing.ledger import Ledger

HOURS_PER_DAY = 24
SHOWN = 3


class DemandKey(NamedTuple):
    """What is counted. `cloud` None: the usage file does not tell it."""

    cloud: str | None
    region: str
    instance_type: str

    def __str__(self) -> str:
        return f"{self.instance_type} in {self.region}"

    def as_spot(self) -> DemandKey:
        """The key under which advice claims the hours that run on spot already: apart from those that do not."""
        return self._replace(instance_type=f"{self.instance_type} (spot)")


def _nothing() -> dict[DemandKey, dict[str, np.ndarray]]:
    return {}


@dataclass(frozen=True)
class Demand:
    """Hours `first_hour` .. `first_hour + hours - 1`, counted from 1970 in UTC."""

    first_hour: int
    known: np.ndarray
    """bool (hours,): the evidence tells of this hour."""
    counts: Mapping[DemandKey, np.ndarray]
    """float64 (hours,): nodes running, time-weighted; 0 where unknown."""
    bought: Mapping[DemandKey, Mapping[str, np.ndarray]] = field(default_factory=_nothing)
    """The same by purchase option, where the evidence tells it; the parts of a key never sum to more than its counts."""
    notes: tuple[str, ...] = ()
    """Sentences: what was left out, where it has gaps."""
    partial: bool = False
    """Something of the range is missing or not clear."""

    @property
    def hours(self) -> int:
        return len(self.known)

    @property
    def known_hours(self) -> int:
        return int(self.known.sum())

    @property
    def start(self) -> datetime:
        return EPOCH + timedelta(hours=self.first_hour)

    @property
    def end(self) -> datetime:
        """Exclusive."""
        return EPOCH + timedelta(hours=self.first_hour + self.hours)

    @property
    def days(self) -> float:
        """Known time, in days."""
        return self.known_hours / HOURS_PER_DAY

    def series(self, key: DemandKey) -> np.ndarray:
        """The counts of a key in the known hours only, in order: float64 (known_hours,)."""
        return self.counts[key][self.known]

    def of(self, key: DemandKey, purchase: str) -> np.ndarray:
        """float64 (hours,): nodes that are known to be bought so."""
        found = self.bought.get(key, {}).get(purchase)
        return np.zeros(self.hours) if found is None else found

    def on_spot(self, key: DemandKey) -> np.ndarray:
        return self.of(key, "spot")

    def committable(self, key: DemandKey) -> np.ndarray:
        """What a commitment could cover: all but what is known to run on spot or in a capacity block, in the known hours."""
        left = self.counts[key] - self.of(key, "spot") - self.of(key, "capacity_block")
        return np.maximum(left, 0.0)[self.known]

    def per_month(self, key: DemandKey) -> float:
        """Node-hours in an average month of 730 hours."""
        return 730 * float(self.series(key).mean()) if self.known_hours else 0.0

    def last(self, days: int) -> Demand:
        """The newest `days` of it (all where it is shorter)."""
        return self._cut(max(0, self.hours - days * HOURS_PER_DAY), self.hours)

    def between(self, start: datetime, end: datetime) -> Demand:
        """[start, end), whole hours."""
        first = -int((EPOCH - start) // timedelta(hours=1)) - self.first_hour
        last = int((end - EPOCH) // timedelta(hours=1)) - self.first_hour
        return self._cut(min(max(0, first), self.hours), min(max(0, last, first), self.hours))

    def _cut(self, first: int, last: int) -> Demand:
        return replace(
            self,
            first_hour=self.first_hour + first,
            known=self.known[first:last],
            counts={key: counts[first:last] for key, counts in self.counts.items()},
            bought={key: {buy: part[first:last] for buy, part in parts.items()} for key, parts in self.bought.items()},
        )


def hour_of(moment: datetime) -> int:
    """Hours since 1970 of an aware time, rounded down."""
    return int((moment - EPOCH) // timedelta(hours=1))


def hour_text(hour: int) -> str:
    return f"{EPOCH + timedelta(hours=hour):%Y-%m-%dT%H:00Z}"


def read_usage(path: Path) -> Demand:
    """From a CSV file: see `pricing.demand_file`. AdviceFileError names file, row and column."""
    from pricing import demand_file

    return demand_file.read_usage(path)


def from_ledger(ledger: Ledger, start_ms: int, end_ms: int) -> Demand:
    """From the ledger's whole hours within [start_ms, end_ms): see `pricing.demand_ledger`. LedgerError."""
    from pricing import demand_ledger

    return demand_ledger.from_ledger(ledger, start_ms, end_ms)


def with_clouds(demand: Demand, catalog: Catalog) -> Demand:
    """Keys without a cloud get the only cloud that has their type; others stay as they are."""
    from pricing.catalog import CLOUDS

    counts: dict[DemandKey, np.ndarray] = {}
    bought: dict[DemandKey, dict[str, np.ndarray]] = {}
    for key, part in demand.counts.items():
        having = [cloud for cloud in CLOUDS if catalog.instance(cloud, key.instance_type) is not None]
        told = key._replace(cloud=having[0]) if key.cloud is None and len(having) == 1 else key
        counts[told] = counts[told] + part if told in counts else part
        for buy, of in demand.bought.get(key, {}).items():
            before = bought.setdefault(told, {}).get(buy)
            bought[told][buy] = of if before is None else before + of
    return replace(demand, counts=counts, bought=bought)


def gap_notes(name: str, first: int, known: np.ndarray) -> list[str]:
    """A sentence about the hours that nobody tells of."""
    missing = int((~known).sum())
    if not missing:
        return []
    edges = np.flatnonzero(np.diff(np.concatenate(([True], known, [True])).astype(np.int8)))
    begins, lengths = edges[::2], edges[1::2] - edges[::2]
    where = ", ".join(
        f"{hour_text(first + int(begin))} for {int(length)} h"
        for begin, length in list(zip(begins, lengths, strict=True))[:SHOWN]
    )
    more = f" and {len(begins) - SHOWN} more" if len(begins) > SHOWN else ""
    share = 100 * missing / len(known)
    text = f"{missing:,} of {len(known):,} hours ({share:.1f} %) are not told ({where}{more}): they count as unknown, not as 0."
    return [f"{name}: {text}"]
