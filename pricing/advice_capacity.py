"""Capacity blocks: for a need with dates, whether a block is cheaper than on demand (or what is reserved).

Invariant: a block is paid as a whole, up front, and gives nothing back: its cost is that of its whole length, however little
of it is needed. A need whose other price is not known gets no advice.

AWS's rules (EC2 user guide, Capacity Blocks for ML): a block ends at 11:30 UTC and has whole days, each up to 14, then in steps
of 7 up to 182; up to 64 instances a block and 256 in all; it can be bought up to 8 weeks ahead.
"""

from __future__ import annotations

from datetime import datetime, time, timedelta
from fractions import Fraction
from math import ceil
from typing import NamedTuple

from pricing.advice import HOURS_PER_MONTH, Action, Call, Case, Need, cents
from pricing.calendar import milliseconds
from pricing.commitment_mix_owned import active, cloud_of, covers
from pricing.rate_card import Rate

ENDS_AT = time(11, 30)
DAILY, WEEKLY, LONGEST = 14, 7, 182
MOST_OF_ONE, MOST_IN_ALL = 64, 256
AHEAD = timedelta(weeks=8)


class Block(NamedTuple):
    """The shortest block that holds a need."""

    starts_at: datetime
    days: int

    @property
    def hours(self) -> int:
        return self.days * 24

    @property
    def ends_at(self) -> datetime:
        return self.starts_at + timedelta(days=self.days)


def block_for(starts_at: datetime, ends_at: datetime) -> Block | None:
    """From the last 11:30 UTC at or before the start, for as few days as there are blocks of; None: longer than the longest."""
    begin = starts_at.replace(hour=ENDS_AT.hour, minute=ENDS_AT.minute, second=0, microsecond=0)
    if begin > starts_at:
        begin -= timedelta(days=1)
    days = max(1, ceil((ends_at - begin) / timedelta(days=1)))
    if days > DAILY:
        days = -(-days // WEEKLY) * WEEKLY
    return Block(begin, days) if days <= LONGEST else None


def actions(case: Case) -> list[Action]:
    """One per need for which a block is the cheaper way."""
    found = []
    for need in case.needs:
        action = _for(case, need)
        if action is not None and action.saving_per_month > 0:
            found.append(action)
    return found


def notes(case: Case) -> list[str]:
    """Needs for which nothing can be told, and why."""
    found = []
    for need in case.needs:
        name = need.name or f"{need.nodes} x {need.key}"
        if need.ends_at <= max(need.starts_at, case.now):
            found.append(f"{name}: it ends before it starts, or is past.")
        elif block_for(need.starts_at, need.ends_at) is None:
            found.append(
                f"{name}: longer than the longest capacity block ({LONGEST} days): buy blocks one after the other, or reserve."
            )
        elif not case.card.rates(need.key, "capacity_block"):
            found.append(f"{name}: no capacity block price is known for {need.key} (`rackrate prices refresh` fetches them).")
        elif case.card.on_demand(need.key) is None:
            found.append(
                f"{name}: {need.key} has no known on-demand rate to compare with; a capacity block may be the only way to get it."
            )
    return found


def _for(case: Case, need: Need) -> Action | None:
    block, on_demand = block_for(need.starts_at, need.ends_at), case.card.on_demand(need.key)
    rate = min(case.card.rates(need.key, "capacity_block"), key=lambda one: one.usd_per_hour, default=None)
    if block is None or on_demand is None or rate is None or need.nodes < 1 or need.ends_at <= max(need.starts_at, case.now):
        return None
    nodes = max(0, need.nodes - _owned(case, need))
    if not nodes or cloud_of(case, need.key) not in ("aws", None):
        return None
    fee = nodes * block.hours * rate.usd_per_hour
    needed = nodes * Fraction(int((need.ends_at - need.starts_at).total_seconds()), 3600)
    saved = needed * on_demand.usd_per_hour - fee
    months = max(Fraction(1), needed / nodes / HOURS_PER_MONTH)
    return Action(
        kind="capacity_block",
        what=f"a capacity block of {nodes} {need.key} for {block.days} days from {block.starts_at:%Y-%m-%d %H:%M} UTC",
        saving_per_month=saved / months,
        saving_range=(saved / months, saved / months),
        evidence=_evidence(need, block, nodes, fee, needed, on_demand, rate, saved),
        break_even={
            "utilization_ratio": round(float(rate.usd_per_hour / on_demand.usd_per_hour), 4),
            "hours": round(float(fee / nodes / on_demand.usd_per_hour), 1),
            "hours_per_month": None,
            "date": f"{need.starts_at + timedelta(hours=float(fee / nodes / on_demand.usd_per_hour)):%Y-%m-%d}",
            "text": "Each node has to be needed for at least so many hours of the block.",
        },
        risks=_risks(case, need, block, rate, nodes),
        how=_how(need, block, nodes),
        partial=rate.estimated or on_demand.estimated,
        group=f"need {need.name or need.key} {need.starts_at:%Y-%m-%dT%H:%M}",
        calls=_calls(need, block, nodes),
    )


def _owned(case: Case, need: Need) -> int:
    """Reserved nodes of the type that run through the need and are not in use by the evidence's newest day."""
    through = [
        one for one in active(case)
        if one.kind == "reservation" and covers(case, one, need.key) and one.ends_ms >= milliseconds(need.ends_at)
    ]  # fmt: skip
    counts = case.demand.counts.get(need.key)
    used = ceil(float(counts[-24:].max())) if counts is not None and len(counts) else 0
    return max(0, sum(one.count for one in through) - used)


def _evidence(
    need: Need, block: Block, nodes: int, fee: Fraction, needed: Fraction, on_demand: Rate, rate: Rate, saved: Fraction
) -> dict[str, object]:
    return {
        "need": need.name,
        "nodes": nodes,
        "needed_hours": round(float(needed / nodes), 2),
        "block_hours": block.hours,
        "block_starts_at": f"{block.starts_at:%Y-%m-%dT%H:%MZ}",
        "block_ends_at": f"{block.ends_at:%Y-%m-%dT%H:%MZ}",
        "fee_usd": str(cents(fee)),
        "on_demand_usd": str(cents(needed * on_demand.usd_per_hour)),
        "saving_once_usd": str(cents(saved)),
        "block_usd_per_hour": f"{float(rate.usd_per_hour):.4f}",
        "on_demand_usd_per_hour": f"{float(on_demand.usd_per_hour):.4f}",
        "rate_source": rate.source,
        "rate_as_of": None if rate.as_of is None else rate.as_of.isoformat(),
    }


def _risks(case: Case, need: Need, block: Block, rate: Rate, nodes: int) -> tuple[str, ...]:
    found = ["It is paid up front and not refunded: a need that falls away or is late loses all of it.",
             f"It ends at {block.ends_at:%Y-%m-%d %H:%M} UTC whatever runs then; instances stop 30 minutes before."]  # fmt: skip
    if nodes > MOST_OF_ONE:
        found.append(
            f"One block has at most {MOST_OF_ONE} instances ({MOST_IN_ALL} in all): it takes {ceil(nodes / MOST_OF_ONE)} blocks."
        )
    if nodes > MOST_IN_ALL:
        found.append(f"{nodes} are more than the {MOST_IN_ALL} that an account may hold in blocks.")
    if block.starts_at > case.now + AHEAD:
        found.append(f"Blocks can be bought {AHEAD.days // 7} weeks ahead: not before {block.starts_at - AHEAD:%Y-%m-%d}.")
    if block.starts_at < case.now:
        found.append("Its day has begun: a block that starts at once is shorter and priced by its minutes.")
    found.append(
        f"The price is that of the block on offer when it was read ({rate.source or 'no source'}); each date has its own."
    )
    return tuple(found)


def _how(need: Need, block: Block, nodes: int) -> tuple[str, ...]:
    least = min(nodes, MOST_OF_ONE)
    return (
        f"aws ec2 describe-capacity-block-offerings --region {need.key.region} --instance-type {need.key.instance_type} "
        f"--instance-count {least} --capacity-duration-hours {block.hours} "
        f"--start-date-range {block.starts_at:%Y-%m-%dT%H:%M:%SZ} "
        f"--end-date-range {block.ends_at:%Y-%m-%dT%H:%M:%SZ}",
        f"aws ec2 purchase-capacity-block --region {need.key.region} --capacity-block-offering-id ID "
        "--instance-platform Linux/UNIX",
    )


def _calls(need: Need, block: Block, nodes: int) -> tuple[Call, ...]:
    asked = {
        "InstanceType": need.key.instance_type, "InstanceCount": min(nodes, MOST_OF_ONE), "CapacityDurationHours": block.hours,
        "StartDateRange": block.starts_at, "EndDateRange": block.ends_at,
    }  # fmt: skip
    bought = {
        "CapacityBlockOfferingId": "<the offering's id from the call before>",
        "InstancePlatform": "Linux/UNIX",
        "DryRun": True,
    }
    return (
        Call("ec2", need.key.region, "describe_capacity_block_offerings", asked, "Finds the offering."),
        Call("ec2", need.key.region, "purchase_capacity_block", bought, "Paid at once, not refunded."),
    )
