"""What else a job could run on: the same node on spot, another instance type, half of a GPU.

Invariant: each is priced by the catalog, exactly; one whose price is not known is left out, and one that is given says what
speaks against it. Times of other GPUs are scaled by peak figures and marked so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from agent import wire
from tui import format as fmt
from tui.quote import Alternative, Basis, Place, cost_of

if TYPE_CHECKING:
    from pricing.catalog import Catalog, InstanceType, Offer

TYPES = 3
"""Other instance types that are named."""
MEMORY_SLACK = Fraction(95, 100)
"""A driver tells a little less memory than the data sheet."""
HALF = Fraction(1, 2)
GIB = 1 << 30


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """The job where it would run."""

    spec: wire.JobSpec
    place: Place
    catalog: Catalog
    seconds: Fraction | None
    basis: Basis | None
    usd_per_hour: Fraction | None
    shape: InstanceType | None
    gpu_memory_seen: int | None
    share_refused: str | None
    of_types: Mapping[tuple[str, str], str] = {}
    """(cloud, instance type) -> a node of the fleet."""

    @property
    def part(self) -> Fraction | None:
        """The job's part of the node's price."""
        held = Fraction(self.spec.gpu_share) if self.spec.gpu_share is not None else Fraction(self.spec.gpus)
        return held / self.place.gpu_count if held and self.place.gpu_count else None

    def cost(self, usd_per_hour: Fraction, slower: Fraction = Fraction(1)) -> Fraction | None:
        return cost_of(usd_per_hour, None if self.seconds is None else self.seconds * slower)


def alternatives(at: Situation) -> Iterator[Alternative]:
    """Of a job that holds no GPU there is none."""
    if at.part is None:
        return
    yield from _other_purchase(at)
    yield from _types(at)
    yield from _half(at)


# -- the same machine, paid otherwise ------------------------------------------------------------------------------------


def _other_purchase(at: Situation) -> Iterator[Alternative]:
    info = at.place.info
    if info is None or info.cloud in (None, "on_premises") or not info.region or not info.instance_type:
        return
    other = "on_demand" if info.purchase == "spot" else "spot"
    found = at.catalog.quote(info.cloud, info.region, info.zone, info.instance_type, other)
    if found.price is None or found.price.currency != "USD" or at.part is None:
        return
    price = found.price.fraction
    if other == "on_demand":
        yield Alternative(
            kind="on_demand", what="the same on demand", usd_per_hour=price * at.part, usd=at.cost(price * at.part),
            seconds=at.seconds, against=_estimated(found), instance_type=info.instance_type, cloud=info.cloud, region=info.region,
            source=found.source, as_of=found.as_of,
        )  # fmt: skip
        return
    yield _spot(at, info, price, found)


def _spot(at: Situation, info: wire.NodeInfo, price: Fraction, found: object) -> Alternative:
    """Expected as the advice reckons it: with interruptions, what each loses, and the hours without spot on demand."""
    from pricing.advice_spot import CHANGEOVER_HOURS, CHECKPOINT_HOURS, cost_of_work
    from pricing.advice_spot_risk import bucket_of, bucket_risk

    assert at.part is not None
    risk = bucket_risk(bucket_of(info.cloud, info.region or "", info.instance_type or ""))
    lost = CHANGEOVER_HOURS + CHECKPOINT_HOURS / 2
    normal = at.catalog.quote(info.cloud, info.region, info.zone, info.instance_type, "on_demand")
    known = normal.price is not None and normal.price.currency == "USD"
    on_demand = normal.price.fraction if known and normal.price is not None else None
    work = None if on_demand is None else cost_of_work(price, on_demand, risk, lost)
    more = Fraction(1 + risk.per_hour * lost).limit_denominator(10_000)
    often = f"every {1 / risk.per_hour:.0f} h" if risk.per_hour <= 0.5 else f"{risk.per_hour:.1f} times an hour"
    saves = f"if it saves every {CHECKPOINT_HOURS * 60:.0f} min (assumed); without checkpoints everything is lost"
    against = [f"It is taken away about {often} ({risk.source}).", f"Each time loses about {lost * 60:.0f} min, {saves}."]
    if not at.spec.interruptible:
        against.append("The job is not marked as interruptible.")
    return Alternative(
        kind="spot", what="the same on spot", usd_per_hour=price * at.part,
        usd=None if work is None else at.cost(work * at.part), seconds=None if at.seconds is None else at.seconds * more,
        against=(*against, *_estimated(found)), instance_type=info.instance_type, cloud=info.cloud, region=info.region,
        source=found.source, as_of=found.as_of,  # type: ignore[attr-defined]
    )  # fmt: skip


def _estimated(found: object) -> tuple[str, ...]:
    return (f"Its price is an estimate: {found.source}.",) if found.estimated else ()  # type: ignore[attr-defined]


# -- another machine ---------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _cheapest(catalog: Catalog) -> tuple[tuple[InstanceType, Offer], ...]:
    """Of each type with GPUs its cheapest known on-demand offer in US dollars."""
    found: dict[tuple[str, str], tuple[InstanceType, Offer]] = {}
    for offer in catalog.offers(purchase="on_demand"):
        if offer.price is None or offer.price.currency != "USD" or offer.estimated:
            continue
        shape = catalog.instance(offer.cloud, offer.instance_type)
        if shape is None or shape.kind != "gpu" or not shape.gpu_count or shape.gpu_count < 1 or not shape.gpu_model:
            continue
        found.setdefault((shape.cloud, shape.instance_type), (shape, offer))  # cheapest first
    return tuple(found.values())


def _types(at: Situation) -> Iterator[Alternative]:
    """The three that are expected to cost least for the same work."""
    from pricing.gpu_speed import speed_of

    here, info = at.shape, at.place.info
    if here is None:
        return
    wanted = max(1, at.spec.gpus)
    need = at.spec.gpu_memory_bytes or at.place.gpu_memory_bytes or here.gpu_memory_bytes
    ranked = []
    for shape, offer in _cheapest(at.catalog):
        if (shape.cloud, shape.instance_type) == (here.cloud, here.instance_type) or (shape.gpu_count or 0) < wanted:
            continue
        if need is None or (shape.gpu_memory_bytes or 0) < need * MEMORY_SLACK:
            continue
        speed = speed_of(here, shape)
        if speed is not None and offer.price is not None:
            ranked.append((offer.price.fraction / speed[0], shape.cloud, shape.instance_type, shape, offer, *speed))
    for _, _, _, shape, offer, speed, source in sorted(ranked, key=lambda one: one[:3])[:TYPES]:
        yield _type(at, info, wanted, shape, offer, speed, source)


def _type(
    at: Situation, info: wire.NodeInfo | None, wanted: int, shape: InstanceType, offer: Offer, speed: Fraction, source: str
) -> Alternative:
    assert offer.price is not None
    count = shape.gpu_count or 0
    against = []
    if source:
        against.append(f"Another GPU, not measured: {float(speed):.2f} x as fast by {source}.")
    if count > wanted:
        against.append(f"All {count} GPUs are paid, and {wanted} {'is' if wanted == 1 else 'are'} used.")
    if info is None or info.cloud != offer.cloud:
        against.append(f"It is in another cloud ({offer.cloud} {offer.region}): the data has to get there.")
    elif info.region != offer.region:
        against.append(f"It is in another region ({offer.region}): the data has to get there.")
    node = at.of_types.get((shape.cloud, shape.instance_type))
    against.append(
        f"{fmt.clean(node)} in the fleet is of this type: there it pays for its own GPUs alone."
        if node is not None and count > wanted
        else f"{fmt.clean(node)} in the fleet is of this type."
        if node is not None
        else "No node of the fleet is of this type: quota, capacity and its start are not reckoned with."
    )
    return Alternative(
        kind="type", what=f"{shape.instance_type} ({count} x {shape.gpu_model}, {offer.cloud} {offer.region})",
        usd_per_hour=offer.price.fraction, usd=at.cost(offer.price.fraction, 1 / speed),
        seconds=None if at.seconds is None else at.seconds / speed, against=tuple(against), scaled=bool(source),
        instance_type=shape.instance_type, cloud=offer.cloud, region=offer.region, source=offer.source, as_of=offer.as_of,
    )  # fmt: skip


# -- half of it ---------------------------------------------------------------------------------------------------------------


def _half(at: Situation) -> Iterator[Alternative]:
    """Of a job that holds one whole GPU, where it would fit."""
    memory = at.place.gpu_memory_bytes
    if at.spec.gpus != 1 or at.usd_per_hour is None or memory is None or at.share_refused is not None:
        return
    seen = at.gpu_memory_seen
    if seen is not None and seen > memory // 2:
        return
    fits = (
        f"It may hold {fmt.size(memory // 2)} of GPU memory; the same command holds {fmt.size(seen)} now."
        if seen is not None
        else f"It may hold {fmt.size(memory // 2)} of GPU memory; what it needs is not known."
    )
    yield Alternative(
        kind="share", what="half of the GPU (--gpu-share 0.5)", usd_per_hour=at.usd_per_hour * HALF,
        usd=at.cost(at.usd_per_hour * HALF), seconds=at.seconds,
        against=(fits, "Expected if it takes as long as alone; one that keeps the GPU busy takes up to twice as long and saves nothing."),
        source="half of the price here",
    )  # fmt: skip
