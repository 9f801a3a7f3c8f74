"""Move: another type, region or cloud for the same work, with the data that has to move along.

Invariant: only known on-demand rates are compared; the same GPU model, memory and count is the same work, another model counts
by its peak figures and is partial; data of unknown size counts with a stated size, never with none.

What is saved is the on-demand hours that no commitment covers, less the data that goes out of the old place each month, less
a twelfth of what the move itself costs (all data once, and a month of keeping it in both places).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from pricing.advice import HOURS_PER_MONTH, Action, Case, about, cents
from pricing.calendar import milliseconds
from pricing.commitment_mix_owned import cloud_of, uncovered
from pricing.demand import DemandKey
from pricing.gpu_speed import speed_of
from pricing.instances import InstanceType
from pricing.rate_card import Rate

HOST_SHARE = Fraction(1, 2)
"""Of the vCPUs and the memory: a host with less is another machine, one with a little less is told."""
GB_ACROSS_REGIONS, GB_ACROSS_FAR_REGIONS, GB_OUT = Fraction(2, 100), Fraction(9, 100), Fraction(12, 100)
"""$ per GB that leaves: to another region of the cloud (from the US, Canada and Europe, or from elsewhere), and to the internet:
at or above the list prices of AWS, Azure and Google Cloud for the first 10 TB (2025; general knowledge)."""
NEAR = ("us", "ca", "eu", "north", "west", "east", "central", "uk", "france", "germany", "sweden", "northamerica", "europe")
STORED_GB = 1000
"""Of each type's work, where nobody tells."""
MONTHLY_SHARE = Fraction(1, 10)
"""Of the stored data, that goes back each month, where nobody tells."""
STORAGE_GB_MONTH = Fraction(23, 1000)
"""$: object storage, standard class (AWS S3, us-east-1): turns a bill for storage into GB, and prices a month twice."""
MONTHS = 12
LEAST_DAYS = 7
"""Of evidence; less is partial."""
ROUNDED = 1e-6
REACHES = ("type", "region", "cloud")
PEAK_DOUBT = Fraction(7, 10)
"""How much less than by its peak figures another model may do, for the low end of the range."""


class Data(NamedTuple):
    """What moves along. GB."""

    stored: Fraction
    monthly: Fraction
    """That goes out of the old place each month."""
    source: str
    assumed: bool


class Target(NamedTuple):
    """Somewhere else for the work of a key."""

    key: DemandKey
    rate: Rate
    nodes: Fraction
    """That it takes there: with another GPU whole ones in each hour."""
    speed: Fraction
    """Work per hour against now; 1 for the same GPUs."""
    speed_source: str
    reach: str
    """`type` (same region), `region` (same cloud), `cloud`."""
    once: Fraction
    monthly: Fraction
    saving: Fraction
    """USD a month, with `monthly` and a twelfth of `once` taken off."""


def actions(case: Case) -> list[Action]:
    """Of each key the best other type, region and cloud; only one of them can be done."""
    from pricing import advice_move_spot

    left = uncovered(case)
    shapes = {
        key: shape
        for key in case.demand.counts
        if (shape := case.card.shape(key)) is not None and shape.gpu_count and shape.gpu_model
    }
    if not shapes or not case.demand.known_hours:
        return []
    index = _by_model(case)
    found = advice_move_spot.actions(case, shapes, index)
    for key, shape in shapes.items():
        if key not in left:
            continue
        targets = list(_targets(case, key, shape, left[key], index))
        nodes = Fraction(float(left[key].mean()))
        best = [_best(targets, reach, same) for reach, same in (*((reach, True) for reach in REACHES), (None, False))]
        found += [_action(case, key, shape, nodes, one) for one in best if one is not None]
    return found


def _best(targets: Sequence[Target], reach: str | None, same: bool) -> Target | None:
    """With the same GPUs one of each reach; with other ones the best of all."""
    fit = [one for one in targets if reach in (None, one.reach) and (one.speed_source == "") == same and one.saving > 0]
    return min(fit, key=lambda one: (-one.saving, one.key), default=None)


def data_of(case: Case, key: DemandKey) -> Data:
    """As told (`stored_gb`, `transfer_gb_per_month`), else by the bill for storage and egress, else assumed."""
    told, monthly = case.options.get("stored_gb"), case.options.get("transfer_gb_per_month")
    if told is not None:
        stored = Fraction(str(told))
        return Data(stored, stored * MONTHLY_SHARE if monthly is None else Fraction(str(monthly)), "as given", monthly is None)
    now = milliseconds(case.now)
    cloud = cloud_of(case, key)
    paid = {"storage": Fraction(0), "egress": Fraction(0)}
    for item in case.terms.items:
        here = item.cloud in (None, cloud) and item.region in (None, key.region)
        running = item.starts_ms <= now and (item.ends_ms is None or now < item.ends_ms)
        if here and running and item.currency == "USD" and item.kind in paid:
            paid[item.kind] += item.per_month
    if any(paid.values()):
        stored = paid["storage"] / STORAGE_GB_MONTH
        out = paid["egress"] / GB_ACROSS_REGIONS if paid["egress"] else stored * MONTHLY_SHARE
        return Data(stored, out, f"storage and egress of the terms, at ${float(STORAGE_GB_MONTH)} per GB-month", False)
    stored = Fraction(STORED_GB)
    return Data(stored, stored * MONTHLY_SHARE, f"assumed: {STORED_GB:,} GB, a tenth of it each month", True)


def _by_model(case: Case) -> Mapping[int | Fraction, list[tuple[DemandKey, InstanceType]]]:
    """GPU count -> the types on offer with so many."""
    found: dict[int | Fraction, list[tuple[DemandKey, InstanceType]]] = {}
    for key in case.card.keys():
        shape = case.card.shape(key)
        if shape is not None and shape.kind == "gpu" and shape.gpu_count and shape.gpu_model:
            found.setdefault(shape.gpu_count, []).append((key, shape))
    return found


def _targets(
    case: Case,
    key: DemandKey,
    shape: InstanceType,
    left: np.ndarray,
    index: Mapping[int | Fraction, list[tuple[DemandKey, InstanceType]]],
) -> Iterator[Target]:
    here = case.card.on_demand(key)
    assert here is not None and shape.gpu_count is not None  # noqa: S101 - only priced keys with GPUs are asked for
    data, nodes = data_of(case, key), Fraction(float(left.mean()))
    for other, other_shape in index.get(shape.gpu_count, ()):
        rate = case.card.on_demand(other)
        if rate is None or rate.estimated or (other[1:] == key[1:] and cloud_of(case, other) == cloud_of(case, key)):
            continue
        work = speed_of(shape, other_shape)
        if work is None or not _fits(shape, other_shape):
            continue
        speed, source = work
        if rate.usd_per_hour / speed >= here.usd_per_hour:
            continue
        reach, once, monthly = moving(case, key, other, data)
        there = nodes if speed == 1 else Fraction(float(np.ceil(left / float(speed) - ROUNDED).mean()))
        saving = HOURS_PER_MONTH * (nodes * here.usd_per_hour - there * rate.usd_per_hour) - monthly - once / MONTHS
        yield Target(other, rate, there, speed, source, reach, once, monthly, saving)


def same_work(case: Case, key: DemandKey, shape: InstanceType, other: DemandKey, other_shape: InstanceType) -> bool:
    """Another place with the same GPUs and a host that is not much smaller."""
    same_place = other[1:] == key[1:] and cloud_of(case, other) == cloud_of(case, key)
    work = speed_of(shape, other_shape)
    return not same_place and work is not None and not work[1] and _fits(shape, other_shape)


def _fits(now: InstanceType, other: InstanceType) -> bool:
    """The host is not much smaller; what is not known is not held against it, but told."""
    pairs = ((now.vcpus, other.vcpus), (now.memory_bytes, other.memory_bytes))
    return all(have is None or get is None or get >= have * HOST_SHARE for have, get in pairs)


def moving(case: Case, key: DemandKey, other: DemandKey, data: Data) -> tuple[str, Fraction, Fraction]:
    """(reach, $ once, $ a month)."""
    same_cloud = cloud_of(case, key) == cloud_of(case, other)
    if same_cloud and key.region == other.region:
        return "type", Fraction(0), Fraction(0)
    near = key.region.partition("-")[0].rstrip("0123456789").lower().startswith(NEAR)
    per_gb = GB_OUT if not same_cloud else GB_ACROSS_REGIONS if near else GB_ACROSS_FAR_REGIONS
    return ("region" if same_cloud else "cloud"), data.stored * (per_gb + STORAGE_GB_MONTH), data.monthly * per_gb


# --- the advice ----------------------------------------------------------------------------------------------------------


def _action(case: Case, key: DemandKey, shape: InstanceType, nodes: Fraction, to: Target) -> Action:
    here, data = case.card.on_demand(key), data_of(case, key)
    assert here is not None  # noqa: S101 - asked before
    hours = nodes * HOURS_PER_MONTH
    far = to.reach != "type"
    doubled = to.monthly + to.once / MONTHS if far else Fraction(0)
    paid_there = to.nodes * HOURS_PER_MONTH * to.rate.usd_per_hour
    slower = paid_there * (1 / PEAK_DOUBT - 1) if to.speed_source else Fraction(0)
    place = str(to.key) if to.reach != "cloud" else f"{to.key} of {cloud_of(case, to.key)}"
    return Action(
        kind="move",
        what=f"run the work of {about(nodes)} {key} on {about(to.nodes)} {place}",
        saving_per_month=to.saving,
        saving_range=(
            max(Fraction(0), to.saving - doubled - slower),
            hours * (here.usd_per_hour - to.rate.usd_per_hour / to.speed),
        ),
        evidence=_evidence(case, nodes, here, to, data, shape),
        break_even=_break_even(case, hours, here, to),
        risks=_risks(case, shape, to, data),
        how=_how(case, key, to),
        partial=bool(to.speed_source) or (far and data.assumed) or case.demand.partial or case.demand.days < LEAST_DAYS,
        claims={key: hours},
        group=f"move {key.cloud or ''} {key}",
    )


def _evidence(case: Case, nodes: Fraction, here: Rate, to: Target, data: Data, shape: InstanceType) -> dict[str, object]:
    return {
        "hours": case.demand.known_hours,
        "days": round(case.demand.days, 1),
        "nodes_on_demand": round(float(nodes), 3),
        "gpus": f"{shape.gpu_count} x {shape.gpu_model}",
        "usd_per_hour": f"{float(here.usd_per_hour):.4f}",
        "rate_source": here.source,
        "to_usd_per_hour": f"{float(to.rate.usd_per_hour):.4f}",
        "to_rate_source": to.rate.source,
        "to_rate_as_of": None if to.rate.as_of is None else to.rate.as_of.isoformat(),
        "speed_ratio": round(float(to.speed), 3),
        "speed_source": to.speed_source or "the same GPU model, memory and count",
        "move_once_usd": str(cents(to.once)),
        "transfer_usd_per_month": str(cents(to.monthly)),
        "data": "stays where it is"
        if to.reach == "type"
        else f"{float(data.stored):,.0f} GB, {float(data.monthly):,.0f} GB a month ({data.source})",
    }


def _break_even(case: Case, hours: Fraction, here: Rate, to: Target) -> dict[str, object] | None:
    """When it has paid the move, and how much data a month eats it up."""
    if to.reach == "type":
        return None
    gained = hours * here.usd_per_hour - to.nodes * HOURS_PER_MONTH * to.rate.usd_per_hour
    each = gained - to.monthly
    months = to.once / each if each > 0 else None
    until = None if months is None else case.now + timedelta(hours=float(months) * HOURS_PER_MONTH)
    per_gb = to.monthly / data.monthly if (data := data_of(case, to.key)).monthly and to.monthly else None
    return {
        "date": None if until is None else f"{until:%Y-%m-%d}",
        "hours_per_month": round(float((to.monthly + to.once / MONTHS) / (gained / hours)), 1),
        "transfer_usd_per_month": str(cents(gained - to.once / MONTHS)),
        "transfer_gb_per_month": round(float((gained - to.once / MONTHS) / per_gb)) if per_gb else None,
        "text": "By the date it has paid the move; with fewer node-hours or more data a month it saves nothing.",
    }


def _risks(case: Case, shape: InstanceType, to: Target, data: Data) -> tuple[str, ...]:
    found = []
    if to.reach != "type" and data.assumed:
        found.append(f"How much data moves along is not known ({data.source}); tell it and the saving is computed again.")
    if to.reach != "type":
        found.append("Quota, capacity, latency to the data and where the data may lie are not checked.")
    if case.demand.days < LEAST_DAYS:
        found.append(f"The evidence is {case.demand.days:.1f} days, too short to tell what a month is like.")
    if to.speed_source:
        found.append(f"It is another GPU: its speed is not measured, but taken from {to.speed_source}.")
    other = case.card.shape(to.key)
    if other is not None and shape.nvme_bytes and not other.nvme_bytes:
        found.append("The new type has no local disks, or none that are known; the old one has.")
    if other is not None and ((other.vcpus or 0) < (shape.vcpus or 0) or (other.memory_bytes or 0) < (shape.memory_bytes or 0)):
        found.append(f"The host is smaller: {_host(other)}, now {_host(shape)}.")
    if other is not None and (other.vcpus is None or other.memory_bytes is None):
        found.append("CPUs and memory of the new type are not known.")
    if to.rate.as_of is not None and (case.now.date() - to.rate.as_of).days > 90:
        found.append(f"Its price is of {to.rate.as_of.isoformat()}.")
    found.append("Prices of the two places change on their own.")
    return tuple(found)


def _host(shape: InstanceType) -> str:
    memory = "?" if shape.memory_bytes is None else f"{shape.memory_bytes / 2**30:.0f}"
    return f"{shape.vcpus or '?'} vCPUs and {memory} GiB"


def _how(case: Case, key: DemandKey, to: Target) -> tuple[str, ...]:
    steps: Sequence[str] = ()
    if to.reach != "type":
        steps = (f"copy the data from {key.region} to {to.key.region}, and keep both until the first run is through",)
    return (
        *steps,
        f"start {to.key.instance_type} in {to.key.region}, add it with `rackrate add URL`, run one job of each kind there first",
    )
