"""Reconciles a report with a cloud's bill: what matches, what is missing or surplus there, and why amounts differ.

Invariant: the parts of the difference sum to bill total minus our total, exactly. Lines are matched by UTC day, region,
instance type and, where the bill's resource is called like one of our nodes, by node; a line that covers several days is
spread over them, and cut where the range ends. The bill's total is what was invoiced for the range (unblended or
BilledCost); compared is what was used (amortised, EffectiveCost), and what the two differ by is a part of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta
from fractions import Fraction
from typing import NamedTuple

from pricing import compare_read as bills
from pricing import grouping
from pricing.compare_read import Line
from pricing.errors import BillError
from pricing.instances import name_key
from pricing.report import Report, Row

OUR_KEYS = ("day", "cloud", "region", "instance_type", "node")
"""By what our side has to be grouped, in days of UTC."""
UNUSED, ADJUSTMENT, STORAGE, EGRESS = "(unused commitment)", "(adjustment)", "(storage)", "(egress)"
PARTS = {
    "rate_differs": "the price per hour differs",
    "hours_differ": "the hours differ",
    "discount": "discounts differ",
    "missing_in_bill": "measured here, not in the bill",
    "not_measured": "compute in the bill that no agent measured",
    "other_account": "lines of other accounts",
    "unused_commitment": "unused commitments",
    "storage": "storage",
    "network": "data transfer",
    "tax": "tax",
    "credit": "credits and refunds",
    "other": "other services",
    "adjustment": "our corrections of closed months",
    "amortisation": "fees of commitments: billed now, used at other times",
}
_ZERO = Fraction(0)


class Key(NamedTuple):
    day: str
    region: str
    instance_type: str
    node: str
    """Empty where the bill does not name one of our nodes."""


@dataclass(slots=True)
class Side:
    """What one side says of a key. `hours`: of whole instances; None if some are not told."""

    cost: Fraction = _ZERO
    listed: Fraction | None = _ZERO
    hours: Fraction | None = _ZERO
    lines: int = 0

    def add(self, cost: Fraction, listed: Fraction | None, hours: Fraction | None) -> None:
        self.cost += cost
        self.listed = None if listed is None or self.listed is None else self.listed + listed
        self.hours = None if hours is None or self.hours is None else self.hours + hours
        self.lines += 1


class Repeated(NamedTuple):
    """`row` is the first that repeats one, that of `original`."""

    lines: int
    cost: Fraction
    row: int
    original: int


@dataclass(frozen=True, slots=True)
class Match:
    """One key that at least one side has, and what its difference consists of."""

    key: Key
    ours: Side | None
    bill: Side | None
    parts: Mapping[str, Fraction]

    @property
    def state(self) -> str:
        """`matched`, `missing` (in the bill), `surplus`."""
        return "missing" if self.bill is None else "surplus" if self.ours is None else "matched"

    @property
    def difference(self) -> Fraction:
        return sum(self.parts.values(), _ZERO)


@dataclass(frozen=True, slots=True)
class Comparison:
    """`parts` sum to `bill_total` - `our_total`. Lines outside the range are in no sum."""

    currency: str
    start: datetime
    end: datetime
    our_total: Fraction
    bill_total: Fraction
    matched: Fraction
    """What the bill says of what both have."""
    parts: Mapping[str, Fraction]
    matches: tuple[Match, ...]
    lines: int
    outside_lines: int
    outside_cost: Fraction
    accounts: tuple[str, ...]
    repeated: Repeated | None = None
    """Lines that say in every cell what another one says; they are counted like all others."""

    @property
    def difference(self) -> Fraction:
        return self.bill_total - self.our_total


@dataclass(slots=True)
class _Bill:
    cells: defaultdict[Key, Side] = field(default_factory=lambda: defaultdict(Side))
    parts: defaultdict[str, Fraction] = field(default_factory=lambda: defaultdict(Fraction))
    total: Fraction = _ZERO
    lines: int = 0
    own_lines: int = 0
    outside_lines: int = 0
    outside_cost: Fraction = _ZERO
    accounts: set[str] = field(default_factory=set)
    repeated: Repeated | None = None

    def repeats(self, line: Line) -> None:
        if line.repeats is not None:
            before = self.repeated or Repeated(0, _ZERO, line.row, line.repeats)
            self.repeated = before._replace(lines=before.lines + 1, cost=before.cost + line.billed)


def compare(
    ours: Report, gpu_counts: Mapping[str, int | None], lines: Iterable[Line], name: str, *, account: str | None = None
) -> Comparison:
    """`ours` is by `OUR_KEYS` with days of UTC; `gpu_counts` of each node; `name` of the bill for faults.

    `account`: only lines of this account are ours. BillError: another currency or several, none of the account, none of
    the range.
    """
    sides, aside = _ours(ours, gpu_counts)
    nodes = {key.node for key in sides}
    types = {name_key("aws", key.instance_type) for key in sides}
    bill = _read(ours, lines, name, nodes, account)
    named = {key.node for key in bill.cells if key.node}
    folded = _folded(sides, named)
    matches = tuple(sorted(_matches(folded, bill.cells, types), key=lambda match: match.key))
    parts: defaultdict[str, Fraction] = defaultdict(Fraction, bill.parts)
    for match in matches:
        for part, amount in match.parts.items():
            parts[part] += amount
    for part, amount in aside.items():
        parts[part] -= amount
    our_total = sum((side.cost for side in sides.values()), _ZERO) + sum(aside.values(), _ZERO)
    return Comparison(
        ours.currency, ours.start, ours.end, our_total, bill.total,
        sum((match.bill.cost for match in matches if match.ours and match.bill), _ZERO),
        {part: parts[part] for part in PARTS if parts[part]}, matches, bill.lines, bill.outside_lines, bill.outside_cost,
        tuple(sorted(bill.accounts)), bill.repeated,
    )  # fmt: skip


def _ours(ours: Report, gpu_counts: Mapping[str, int | None]) -> tuple[dict[Key, Side], dict[str, Fraction]]:
    """(what ran, by key; what is no node's time, by part)."""
    sides: defaultdict[Key, Side] = defaultdict(Side)
    aside: defaultdict[str, Fraction] = defaultdict(Fraction)
    own = {UNUSED: "unused_commitment", ADJUSTMENT: "adjustment", STORAGE: "storage", EGRESS: "network"}
    for row in ours.rows:
        if row.total_cost is None:
            continue
        day, _, region, instance_type, node = row.keys
        if node in own:
            aside[own[node]] += row.total_cost
            continue
        aside["unused_commitment"] += row.unused_commitment_cost or _ZERO
        aside["adjustment"] += row.adjustment_cost or _ZERO
        cost = row.total_cost - (row.unused_commitment_cost or _ZERO) - (row.adjustment_cost or _ZERO)
        key = Key(day, _plain(region), _plain(instance_type), node)
        sides[key].add(cost, row.list_cost, _node_hours(row, gpu_counts.get(node)))
    return dict(sides), dict(aside)


def _node_hours(row: Row, gpu_count: int | None) -> Fraction | None:
    if row.host_share_ms:
        return Fraction(row.host_share_ms, 3_600_000 * 1_000_000)
    return (row.gpu_hours + row.idle_gpu_hours) / gpu_count if gpu_count else None


def _plain(label: str | None) -> str:
    return "" if label is None or label in grouping.LABELS else label


def _read(ours: Report, lines: Iterable[Line], name: str, nodes: set[str], account: str | None) -> _Bill:
    """All lines of the bill, added up as they come."""
    bill, first, foreign = _Bill(), None, None
    for line in lines:
        first = first or line
        _check_currency(line, first, ours.currency, name)
        if line.starts >= ours.end or max(line.ends, line.starts + timedelta(microseconds=1)) <= ours.start:
            bill.outside_lines += 1
            bill.outside_cost += line.billed
            continue
        line = _within(bill, line, ours)
        bill.lines += 1
        bill.total += line.billed
        bill.accounts.update(line.accounts[:1])
        bill.repeats(line)
        if account is not None and account not in line.accounts:
            foreign = foreign or line
            bill.parts["other_account"] += line.billed
            continue
        bill.own_lines += 1
        _add(bill, line, nodes)
    if first is None or not bill.lines:
        raise BillError(_none_in_range(first, ours, name))
    if foreign is not None and not bill.own_lines:
        raise BillError(
            f"{name}, row {foreign.row}, column line_item_usage_account_id / SubAccountId: the bill is of account "
            f"{' / '.join(foreign.accounts) or '(none)'}, no line is of {account}: give the right file, or another --account."
        )
    return bill


def _within(bill: _Bill, line: Line, ours: Report) -> Line:
    """A line of use that crosses the range's start or end, cut to it; a fee is of the moment at which it was billed."""
    starts, ends = max(line.starts, ours.start), min(line.ends, ours.end)
    if (
        line.kind not in (bills.COMPUTE, bills.STORAGE, bills.NETWORK)
        or (starts, ends) == (line.starts, line.ends)
        or ends <= starts
    ):
        return line
    tick = timedelta(microseconds=1)
    share = Fraction((ends - starts) // tick, (line.ends - line.starts) // tick)
    bill.outside_cost += line.billed * (1 - share)
    listed, hours = (None if part is None else part * share for part in (line.listed, line.hours))
    return line._replace(
        starts=starts, ends=ends, billed=line.billed * share, cost=line.cost * share, listed=listed, hours=hours
    )


def _check_currency(line: Line, first: Line, wanted: str, name: str) -> None:
    column = "line_item_currency_code / BillingCurrency"
    if not line.currency:
        raise BillError(f"{name}, row {line.row}, column {column}: it is empty; an amount without a currency says nothing.")
    if line.currency != first.currency:
        raise BillError(
            f"{name}, row {line.row}, column {column}: {line.currency} after {first.currency}: currencies are mixed; "
            "compare the accounts of each currency on their own."
        )
    if line.currency != wanted:
        raise BillError(
            f"{name}, row {line.row}, column {column}: the bill is in {line.currency}, the report in {wanted}: "
            f"use --currency {line.currency}."
        )


def _none_in_range(first: Line | None, ours: Report, name: str) -> str:
    if first is None:
        return f"{name}: there is no line in it."
    column = "line_item_usage_start_date / ChargePeriodStart"
    return (
        f"{name}, row {first.row}, column {column}: {first.starts:%Y-%m-%dT%H:%M:%SZ} and all other lines lie outside the "
        f"report's range, {ours.start:%Y-%m-%dT%H:%M:%SZ} to {ours.end:%Y-%m-%dT%H:%M:%SZ}: is it the bill of another month?"
    )


def _add(bill: _Bill, line: Line, nodes: set[str]) -> None:
    kinds = {
        bills.STORAGE: "storage", bills.NETWORK: "network", bills.TAX: "tax", bills.CREDIT: "credit", bills.OTHER: "other",
        bills.DISCOUNT: "discount", bills.COMMITMENT: "unused_commitment",
    }  # fmt: skip
    bill.parts["amortisation"] += line.billed - line.cost
    if line.kind in kinds:
        bill.parts[kinds[line.kind]] += line.cost
        return
    node = line.resource if line.resource in nodes else ""
    for day, share in _days(line):
        key = Key(day, line.region or "", line.instance_type or "", node or "")
        bill.cells[key].add(
            line.cost * share,
            None if line.listed is None else line.listed * share,
            None if line.hours is None else line.hours * share,
        )


def _days(line: Line) -> Iterator[tuple[str, Fraction]]:
    """The UTC days of a line with their share of it."""
    length = line.ends - line.starts
    if length <= timedelta(days=1) and (line.ends - timedelta(microseconds=1)).date() <= line.starts.date():
        yield line.starts.date().isoformat(), Fraction(1)
        return
    at = line.starts
    while at < line.ends:
        until = min(line.ends, datetime.combine(at.date() + timedelta(days=1), time(), UTC))
        yield at.date().isoformat(), Fraction((until - at) // timedelta(microseconds=1), length // timedelta(microseconds=1))
        at = until


def _folded(sides: Mapping[Key, Side], named: set[str]) -> dict[Key, Side]:
    """Our nodes that the bill does not know by name, together by region and type."""
    found: defaultdict[Key, Side] = defaultdict(Side)
    for key, side in sides.items():
        found[key if key.node in named else key._replace(node="")].add(side.cost, side.listed, side.hours)
    return dict(found)


def _matches(ours: dict[Key, Side], bill: Mapping[Key, Side], types: set[str]) -> Iterator[Match]:
    """Keys of both sides; where the bill tells no region or type of a line, those of the node that it names."""
    spelled = {_loose(key): key for key in ours}
    joined: dict[Key, Side] = {}
    for key, side in bill.items():
        known = spelled.get(_loose(key)) or _by_node(ours, key) or key
        into = joined.setdefault(known, Side())
        into.cost, into.lines = into.cost + side.cost, into.lines + side.lines
        into.listed = None if into.listed is None or side.listed is None else into.listed + side.listed
        into.hours = None if into.hours is None or side.hours is None else into.hours + side.hours
    for key in {*ours, *joined}:
        mine, theirs = ours.get(key), joined.get(key)
        if mine is None and theirs is not None:
            yield Match(key, None, theirs, {"not_measured": theirs.cost})
        elif theirs is None and mine is not None:
            yield Match(key, mine, None, {"missing_in_bill": -mine.cost})
        elif mine is not None and theirs is not None:
            yield Match(key, mine, theirs, explained(mine, theirs))


def _loose(key: Key) -> tuple[str, str, str, str]:
    return key.day, key.region.lower(), name_key("aws", key.instance_type), key.node


def _by_node(ours: Mapping[Key, Side], key: Key) -> Key | None:
    """Of a line that names one of our nodes: that node's key, though region or type are spelled otherwise or missing."""
    if not key.node:
        return None
    found = [one for one in ours if one.day == key.day and one.node == key.node]
    return found[0] if len(found) == 1 else None


def explained(ours: Side, bill: Side) -> dict[str, Fraction]:
    """Why two costs of the same thing differ; the parts sum to the difference, exactly."""
    if not ours.hours or not bill.hours:
        return _known({"rate_differs": bill.cost - ours.cost})
    rate = ours.cost / ours.hours
    discount = _ZERO
    if bill.listed is not None and ours.listed is not None:
        list_rate = ours.listed / ours.hours
        discount = (bill.cost - bill.listed) - bill.hours * (rate - list_rate)
    hours = (bill.hours - ours.hours) * rate
    return _known({"hours_differ": hours, "discount": discount, "rate_differs": bill.cost - ours.cost - hours - discount})


def _known(parts: Mapping[str, Fraction]) -> dict[str, Fraction]:
    return {name: amount for name, amount in parts.items() if amount}
