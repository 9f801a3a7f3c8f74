"""Where AWS has room: capacity blocks on offer, and scores of how likely spot capacity is.

Invariant: a block's price is per instance-hour and derived from its fee; the fee, its hours and its zone's id stay beside it.
A placement score holds for this moment only; it is never a price.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

from pricing.prices import INSTANCE_HOUR, Price
from pricing.sources import BadAnswer, Skipped, Wanted
from pricing.sources.aws_numbers import BadRow, amount, moment, per_hour
from pricing.sources.aws_session import AwsSession
from pricing.sources.aws_steps import Batch, Mark
from pricing.sources.aws_zones import Zones

DAY_HOURS = 24
LOOK_AHEAD = timedelta(weeks=8)
MOST_REGIONS = 10
MOST_TYPES = 1000
FEWEST_TYPES = 3
"""Of fewer types the score is low whatever the capacity."""
PAGE = 1000


class CapacityBlock(NamedTuple):
    """One block that can be bought: paid up front, not refundable, ends by itself."""

    id: str
    region: str
    zone: str
    """Zone id."""
    instance_type: str
    instances: int
    starts_at: datetime
    ends_at: datetime
    hours: int | Decimal
    """Not whole where a block begins at once."""
    fee: Decimal
    """Of the whole block."""
    currency: str

    @property
    def per_instance_hour(self) -> Decimal:
        """Rounded to 10 places."""
        return per_hour(self.fee, self.hours * self.instances)


class Score(NamedTuple):
    """How likely a spot request of the asked capacity is to succeed now: 1 (unlikely) to 10."""

    region: str
    zone: str | None
    """Zone id; None: of the whole region."""
    score: int
    asked_at: datetime
    few_types: bool
    """Fewer than three types were asked for, which alone makes the score low."""


def capacity_blocks(
    session: AwsSession, zones: Zones, instance_type: str, now: datetime, *, instances: int = 1, hours: int = DAY_HOURS
) -> tuple[list[CapacityBlock], list[Skipped]]:
    """All blocks on offer for a type in a region, soonest first. BadAnswer: the region does not offer blocks of the type."""
    client = session.client("ec2", zones.region)
    asked = {
        "InstanceType": instance_type,
        "InstanceCount": instances,
        "CapacityDurationHours": hours,
        "StartDateRange": now,
        "EndDateRange": now + LOOK_AHEAD + timedelta(hours=hours),
    }
    blocks: list[CapacityBlock] = []
    skipped: list[Skipped] = []
    for page in session.pages(client, "describe_capacity_block_offerings", asked):
        for row in page.answer.get("CapacityBlockOfferings", []):
            try:
                blocks.append(_block(row, zones))
            except BadRow as bad:
                skipped.append(Skipped(f"aws capacity blocks {zones.region}, {instance_type}", str(bad)))
    return sorted(blocks, key=lambda block: (block.starts_at, block.zone, block.id)), skipped


def _block(row: dict[str, Any], zones: Zones) -> CapacityBlock:
    zone = zones.id_of(str(row.get("AvailabilityZone")))
    instances, hours = row.get("InstanceCount"), _hours(row)
    if zone is None:
        raise BadRow(f"The zone {str(row.get('AvailabilityZone'))[:40]!r} is none of {zones.region}: its id is not known.")
    if not instances or not hours or not row.get("CurrencyCode"):
        raise BadRow("It does not tell how many instances, for how many hours, or in which currency.")
    return CapacityBlock(
        id=str(row.get("CapacityBlockOfferingId")),
        region=zones.region,
        zone=zone,
        instance_type=row["InstanceType"],
        instances=instances,
        starts_at=moment(row.get("StartDate"), "start"),
        ends_at=moment(row.get("EndDate"), "end"),
        hours=hours,
        fee=amount(row.get("UpfrontFee"), "upfront fee"),
        currency=row["CurrencyCode"],
    )


def _hours(row: dict[str, Any]) -> int | Decimal | None:
    """By the minutes, where they are told and are no whole hours."""
    minutes = row.get("CapacityBlockDurationMinutes")
    return Decimal(minutes) / 60 if minutes and minutes % 60 else row.get("CapacityBlockDurationHours")


def capacity_block_prices(
    session: AwsSession, zones: Zones, instance_types: Sequence[str], now: datetime, mark: Mark
) -> Iterator[Batch]:
    """The soonest block of a day per zone and type, as a price. A mark is the position in `instance_types`."""
    for position in range(mark or 0, len(instance_types)):
        name = instance_types[position]
        prices: list[Price] = []
        try:
            blocks, skipped = capacity_blocks(session, zones, name, now)
            soonest = {block.zone: block for block in reversed(blocks)}
            prices = [_priced(soonest[zone], now) for zone in sorted(soonest)]
        except BadAnswer as fault:
            skipped = [Skipped(f"aws capacity blocks {zones.region}, {name}", str(fault))]
        yield Batch(prices, skipped, position + 1 if position + 1 < len(instance_types) else None)


def _priced(block: CapacityBlock, now: datetime) -> Price:
    return Price(
        cloud="aws",
        region=block.region,
        zone=block.zone,
        instance_type=block.instance_type,
        purchase="capacity_block",
        amount=block.per_instance_hour,
        currency=block.currency,
        unit=INSTANCE_HOUR,
        valid_from=now,
        fetched_at=now,
        source=f"aws capacity blocks {now:%Y-%m-%d}, starts {block.starts_at:%Y-%m-%dT%H:%MZ}",
        sku=block.id,
        payment="all_upfront",
        upfront=per_hour(block.fee, block.instances),
        hourly=Decimal(0),
        term_hours=int(block.hours),
    )


def placement_scores(
    session: AwsSession, wanted: Wanted, instances: int, now: datetime, *, single_zone: bool = True
) -> list[Score]:
    """Scores of the wanted regions (zones with `single_zone`) for so many instances, best first."""
    names = sorted(wanted.instance_types or ())[:MOST_TYPES]
    if not names:
        raise BadAnswer("Placement scores are of instance types: name at least one, better three.")
    scores: list[Score] = []
    for at in range(0, len(wanted.regions), MOST_REGIONS):
        regions = wanted.regions[at : at + MOST_REGIONS]
        asked = {
            "InstanceTypes": names,
            "TargetCapacity": instances,
            "RegionNames": list(regions),
            "SingleAvailabilityZone": single_zone,
            "MaxResults": PAGE,
        }
        for page in session.pages(session.client("ec2", regions[0]), "get_spot_placement_scores", asked):
            scores += [_score(row, now, len(names)) for row in page.answer.get("SpotPlacementScores", []) if row.get("Score")]
    return sorted(scores, key=lambda score: (-score.score, score.region, score.zone or ""))


def _score(row: dict[str, Any], now: datetime, types: int) -> Score:
    return Score(str(row.get("Region")), row.get("AvailabilityZoneId"), int(row["Score"]), now, types < FEWEST_TYPES)
