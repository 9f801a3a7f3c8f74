"""A report's rows as charges in the words of FOCUS: who was charged, for what, at which of its four prices.

Invariant: the effective costs of a row's charges sum to its total cost, exactly. Where a commitment pays, billed is 0 and
effective is the amortised part; what it left unused is a charge of its own; a purchase is billed and its effective cost
is 0. A discount that holds for a part of a row is a charge of its own, as the specification wants.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from pricing import calendar, grouping
from pricing.ledger_merge import HOUR_MS
from pricing.owned import Commitment
from pricing.report import Committed, Row
from pricing.reports.focus_columns import PROVIDERS

KEYS = ("node", "instance_type", "gpu_model", "cloud", "region", "purchase", "project", "user", "job")
"""By what the report is grouped; tags come after them."""
UNUSED, ADJUSTMENT, STORAGE, EGRESS = "(unused commitment)", "(adjustment)", "(storage)", "(egress)"
_NOTHING = Fraction(0)


class NodeFacts(NamedTuple):
    """What a report does not group by, where a node had one value of it."""

    zone: str | None = None
    gpu_count: int | None = None


@dataclass(frozen=True, slots=True)
class Charge:
    """One row of the file before rounding. Times are UTC; None is NULL."""

    start: datetime
    end: datetime
    names: Mapping[str, str | None]
    """The group keys' values, without our own labels."""
    kind: str
    """`allocated`, `idle`, `host`, `storage`, `egress`, `unused commitment`, `purchase`, `adjustment`."""
    effective: Fraction
    billed: Fraction
    contracted: Fraction
    listed: Fraction
    quantity: Fraction | None = None
    unit: str | None = None
    gpu_hours: Fraction | None = None
    utilization_ratio: float | None = None
    commitment: Commitment | None = None
    status: str | None = None
    """`Used`, `Unused`."""
    once: bool = False
    """A purchase that is paid once."""
    tags: str | None = None
    node: NodeFacts = NodeFacts()


class Charges:
    """Turns the rows of one stretch of time after the other into charges."""

    def __init__(self, commitments: Sequence[Commitment], nodes: Mapping[str, NodeFacts], tags: Sequence[str]) -> None:
        self._commitments = {one.id: one for one in commitments}
        self._nodes = nodes
        self._tags = tags
        self.rates: Mapping[str, Fraction | None] = {}
        """Currency of a commitment -> one unit of it in the report's."""

    def of(self, row: Row, start: datetime, end: datetime) -> Iterator[Charge]:
        """The charges of a row that has a price (another one has no cost, and no charge)."""
        if row.total_cost is None:
            return
        keys = row.keys[: len(KEYS)]
        names = {key: _name(label) for key, label in zip(KEYS, keys, strict=True)}
        found = {tag: _name(label) for tag, label in zip(self._tags, row.keys[len(KEYS) :], strict=True)}
        known = {tag: value for tag, value in sorted(found.items()) if value is not None}
        tags = json.dumps(known, ensure_ascii=False) if known else None
        node = self._nodes.get(names["node"] or "", NodeFacts())
        plain = Charge(
            start, end, names, _kind(row, keys), _NOTHING, _NOTHING, _NOTHING, _NOTHING, tags=tags, node=node,
            utilization_ratio=row.utilization_ratio,
        )  # fmt: skip
        yield from self._used(row, plain)
        for part in row.unused:
            yield self._unused(part, plain)
        left = (row.unused_commitment_cost or _NOTHING) - sum((part.cost for part in row.unused), _NOTHING)
        if left:  # of a closed month, which does not tell of which commitment it is
            yield replace(plain, kind="unused commitment", effective=left, quantity=Fraction(1), unit="Units")
        if row.adjustment_cost:
            cost = row.adjustment_cost
            yield replace(plain, kind="adjustment", effective=cost, billed=cost, contracted=cost, listed=cost)

    def _used(self, row: Row, plain: Charge) -> Iterator[Charge]:
        """What ran (and monthly items): a charge for each commitment that pays a part, and one for the rest."""
        cost = (row.allocated_cost or _NOTHING) + (row.idle_cost or _NOTHING)
        gpu_hours = row.gpu_hours + row.idle_gpu_hours
        hours = self._node_hours(row, plain, gpu_hours)
        if not cost and not hours:
            return
        paid = sum((part.cost for part in row.committed), _NOTHING) if row.committed else _NOTHING
        paid_hours = sum((part.node_hours or _NOTHING for part in row.committed), _NOTHING) if row.committed else _NOTHING
        contracted = cost if row.contracted_cost is None else row.contracted_cost
        listed = contracted if row.list_cost is None else row.list_cost
        rest = cost - paid if row.committed else cost
        rest_contracted = rest if row.committed else contracted
        rest_listed = listed * rest_contracted / contracted if contracted and row.committed else listed
        for part in row.committed:
            share = (part.node_hours or _NOTHING) / paid_hours if paid_hours else Fraction(1, len(row.committed))
            yield replace(
                plain, effective=part.cost, contracted=(contracted - rest_contracted) * share, quantity=part.node_hours,
                listed=(listed - rest_listed) * share, unit="Hours", commitment=self._commitment(part, plain), status="Used",
                gpu_hours=_scaled(gpu_hours, part.node_hours, hours),
            )  # fmt: skip
        rest_hours = None if hours is None else hours - paid_hours if row.committed else hours
        if rest or not row.committed or (rest_hours and rest_hours > 0):
            yield replace(
                plain, effective=rest, billed=rest, contracted=rest_contracted, listed=rest_listed,
                quantity=Fraction(1) if rest_hours is None else rest_hours, unit="Units" if rest_hours is None else "Hours",
                gpu_hours=_scaled(gpu_hours, rest_hours, hours),
            )  # fmt: skip

    def _node_hours(self, row: Row, plain: Charge, gpu_hours: Fraction) -> Fraction | None:
        """Hours of whole nodes; None for what is not counted in hours."""
        if row.host_share_ms:
            return Fraction(row.host_share_ms, HOUR_MS * 1_000_000) + row.moved_node_hours
        if not gpu_hours:
            return row.moved_node_hours or None
        return gpu_hours / (plain.node.gpu_count or 1) + row.moved_node_hours

    def _commitment(self, part: Committed, plain: Charge) -> Commitment:
        """A closed month may name one that the terms no longer have: then its type is not known, and taken to be the usual."""
        found = self._commitments.get(part.commitment)
        if found is None:
            rate = part.cost / part.node_hours if part.node_hours else part.cost or Fraction(1)
            found = Commitment(part.commitment, "reservation", plain.names["cloud"] or "", 0, 0, rate)
        return found

    def _unused(self, part: Committed, plain: Charge) -> Charge:
        """List and contracted cost are 0: nothing was used, so nothing would have been paid without the commitment."""
        owned = self._commitment(part, plain)
        hours = part.cost / (owned.cost_per_hour * (self.rates.get(owned.currency) or 1))
        return replace(
            plain, kind="unused commitment", effective=part.cost, quantity=hours, unit="Hours",
            commitment=owned, status="Unused",
        )  # fmt: skip

    def purchases(self, start: datetime, end: datetime) -> Iterator[Charge]:
        """What the commitments were billed in [start, end): what is paid at the start of the term, and by the hour.

        A commitment in a currency without a rate is left out, as it is of the report.
        """
        for one in self._commitments.values():
            factor = self.rates.get(one.currency)
            if factor is None:
                continue
            names = {
                **dict.fromkeys(KEYS), "cloud": one.cloud, "region": one.region, "instance_type": one.instance_type,
            }  # fmt: skip
            bought, over = calendar.instant(one.starts_ms), calendar.instant(one.ends_ms)
            plain = Charge(start, end, names, "purchase", _NOTHING, _NOTHING, _NOTHING, _NOTHING, commitment=one)
            count = one.count if one.kind == "reservation" else 1
            term = Fraction(one.ends_ms - one.starts_ms, HOUR_MS)
            if one.upfront and start <= bought < end:
                yield _bought(replace(plain, start=bought, end=over, once=True), one.upfront * count * factor, term * count)
            hourly = one.cost_per_hour - one.upfront / term
            since, until = max(start, bought), min(end, over)
            if hourly and since < until:
                hours = Fraction(calendar.milliseconds(until) - calendar.milliseconds(since), HOUR_MS) * count
                yield _bought(replace(plain, start=since, end=until), hourly * hours * factor, hours)


def _bought(plain: Charge, cost: Fraction, hours: Fraction) -> Charge:
    return replace(plain, billed=cost, contracted=cost, listed=cost, quantity=hours, unit="Hours")


def _scaled(amount: Fraction, part: Fraction | None, whole: Fraction | None) -> Fraction | None:
    """`amount` x `part` / `whole`; all of it where nothing is counted in hours."""
    if not amount or part is None or not whole or part is whole:
        return amount or None
    return amount * part / whole


def _kind(row: Row, labels: Sequence[str]) -> str:
    holder = labels[KEYS.index("job")]
    kinds = {
        grouping.IDLE: "idle", grouping.HOST: "host", STORAGE: "storage", EGRESS: "egress",
        UNUSED: "unused commitment", ADJUSTMENT: "adjustment",
    }  # fmt: skip
    for label in (holder, labels[KEYS.index("node")]):
        if label in kinds:
            return kinds[label]
    return "allocated"


def _name(label: str) -> str | None:
    """What stands behind a group's label: nothing behind our own, the text itself behind one in quotes."""
    if label in grouping.LABELS:
        return None
    inner = label[1:-1]
    return inner if label == f'"{inner}"' and inner in grouping.LABELS else label


def provider_of(cloud: str | None) -> tuple[str, str]:
    """(ProviderName, ServiceName)."""
    return PROVIDERS.get(cloud or "on_premises", (cloud or "", f"{cloud} compute"))


@lru_cache(64)
def billing_period(moment: datetime, tz: str) -> tuple[datetime, datetime]:
    """The calendar month of `tz` that holds a moment, as UTC instants."""
    start = calendar.month_start(moment, tz)
    return start, calendar.month_start(start + timedelta(days=40), tz)
