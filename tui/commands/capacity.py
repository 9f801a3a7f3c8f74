"""`prices scores` and `prices blocks`: where AWS has room just now, and what of it can be bought for a time.

Invariant: a score is never shown as a price, and a block's price per hour never without the fee that is paid up front.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from tui import format as fmt
from tui.commands.context import Context
from tui.errors import WrongUsage
from tui.exit_codes import ExitCode
from tui.output import print_json, print_table, say
from tui.progress import live_line

if TYPE_CHECKING:
    from pricing.catalog import Catalog
    from pricing.sources import Skipped
    from pricing.sources.aws_capacity import CapacityBlock, Score
    from pricing.sources.aws_session import AwsSession

ENDS_AT = (11, 30)
"""The UTC time of day at which every capacity block ends."""
T = TypeVar("T")


def scores_(context: Context, arguments: argparse.Namespace) -> ExitCode:
    """Prints placement scores, best first."""
    from pricing.sources import Wanted
    from pricing.sources.aws_capacity import placement_scores
    from tui.price_sources import aws_session

    names = [_type(context.catalog(), name) for name in arguments.types]
    regions, now = regions_of(arguments.region), datetime.now(UTC)
    with aws_session() as session, live_line() as line:
        line.tell(f"aws: placement scores of {fmt.counted(len(regions), 'region')}")
        wanted = Wanted(tuple(regions), frozenset(names))
        scores = placement_scores(session, wanted, arguments.count, now, single_zone=not arguments.regions_only)
    if arguments.json:
        print_json(
            {
                "asked_at": _utc(now), "instance_types": sorted(names), "count": arguments.count,
                "scores": [{"region": one.region, "zone": one.zone, "score": one.score} for one in scores],
                "few_types": len(set(names)) < 3,
            }
        )  # fmt: skip
        return ExitCode.DONE
    _print_scores(scores)
    what = f"{arguments.count} x {' or '.join(sorted(set(names)))}"
    say(f"(of {now:%Y-%m-%d %H:%M} UTC and for {what} on spot: 10 is likely, 1 is not. No price, and no promise of an hour)")
    if len(set(names)) < 3:
        say("(fewer than three types were named, which alone makes scores low: name all that will do)")
    return ExitCode.DONE


def _print_scores(scores: list[Score]) -> None:
    if not scores:
        print("AWS gives no score there: it has no zone that could take so many at once")
        return
    rows = [(fmt.clean(one.region), fmt.clean(one.zone or "any"), str(one.score)) for one in scores]
    print_table(("REGION", "ZONE", "SCORE"), rows, ("left", "left", "right"))


def blocks_(context: Context, arguments: argparse.Namespace) -> ExitCode:
    """Prints capacity blocks on offer, soonest first."""
    from pricing.sources.aws_capacity import capacity_blocks
    from pricing.sources.aws_zones import read_zones
    from tui.price_sources import aws_session

    name, now = _type(context.catalog(), arguments.type), datetime.now(UTC)

    def read(session: AwsSession, region: str) -> tuple[list[CapacityBlock], list[Skipped]]:
        zones = read_zones(session, region)
        return capacity_blocks(session, zones, name, now, instances=arguments.count, hours=arguments.hours)

    with aws_session() as session:
        found = of_each(session, regions_of(arguments.region), f"capacity blocks of {name}", read)
    blocks = sorted((one for part, _ in found.values() for one in part), key=lambda one: (one.starts_at, one.fee, one.zone))
    skipped = [f"{one.where}: {one.reason}" for _, left in found.values() for one in left]
    lost = len(regions_of(arguments.region)) - len(found)
    if arguments.json:
        print_json({"asked_at": _utc(now), "blocks": [_record(one, context.catalog()) for one in blocks], "skipped": skipped})
    else:
        _print_blocks(blocks, context.catalog(), f"{arguments.count} x {name} for {arguments.hours} h")
    for sentence in skipped:
        say(f"rackrate: {fmt.clean(sentence)}")
    return ExitCode.PARTLY if lost or skipped else ExitCode.DONE


def of_each(session: AwsSession, regions: list[str], what: str, read: Callable[[AwsSession, str], T]) -> dict[str, T]:
    """What each region answers; those that cannot be read are told. The first fault is raised where none can."""
    from pricing.sources.aws_commitments import LOST

    found: dict[str, T] = {}
    faults: list[Exception] = []
    with live_line() as line:
        for done, region in enumerate(regions):
            line.tell(f"aws: {what} in {region}", f", {done} of {len(regions)}")
            try:
                found[region] = read(session, region)
            except LOST as fault:
                faults.append(fault)
                line.clear()
                if len(faults) == len(regions):
                    raise faults[0] from None
                say(f"rackrate: {fmt.clean(str(fault))}")
    return found


def _print_blocks(blocks: list[CapacityBlock], catalog: Catalog, what: str) -> None:
    if not blocks:
        print(f"no capacity block of {what} is on offer there within the next 8 weeks")
        return
    rows = []
    for one in blocks:
        record = _record(one, catalog)
        rows.append(
            (
                fmt.clean(one.zone), f"{one.starts_at:%Y-%m-%d %H:%M}", f"{one.ends_at:%Y-%m-%d %H:%M}", str(one.instances),
                f"{float(one.hours):g}", _money(str(one.fee), one.currency, 2), _money(record["per_instance_hour"], one.currency, 4),
                _than_on_demand(record),
            )
        )  # fmt: skip
    titles = ("ZONE", "STARTS (UTC)", "ENDS (UTC)", "N", "HOURS", "UP FRONT", "EACH/H", "ON-DEMAND")
    print_table(titles, rows, ("left", "left", "left", *["right"] * 5))
    say("(the whole fee is paid up front and not given back; buy with `aws ec2 purchase-capacity-block`, ids: --json)")
    odd = [one for one in blocks if (one.ends_at.hour, one.ends_at.minute) != ENDS_AT]
    if odd:
        say(f"({len(odd)} do not end at 11:30 UTC as blocks usually do: instances stop about 30 minutes before the end)")
    else:
        say("(all end at 11:30 UTC; AWS begins to stop the instances 30 minutes before)")


def _record(one: CapacityBlock, catalog: Catalog) -> dict[str, Any]:
    quote = catalog.quote("aws", one.region, one.zone, one.instance_type, "on_demand")
    same = quote.price is not None and quote.price.currency == one.currency
    return {
        "id": one.id, "region": one.region, "zone": one.zone, "instance_type": one.instance_type, "count": one.instances,
        "starts_at": _utc(one.starts_at), "ends_at": _utc(one.ends_at), "hours": float(one.hours), "upfront": str(one.fee),
        "currency": one.currency, "per_instance_hour": str(one.per_instance_hour),
        "on_demand_per_hour": str(quote.price.amount) if same and quote.price is not None else None,
    }  # fmt: skip


def _than_on_demand(record: dict[str, Any]) -> str:
    from decimal import Decimal

    listed = record["on_demand_per_hour"]
    if listed is None or not Decimal(listed):
        return fmt.UNKNOWN
    return f"{float(Decimal(record['per_instance_hour']) / Decimal(listed) - 1):+.0%}"


def _type(catalog: Catalog, name: str) -> str:
    """As AWS writes it; a type that is not known here is asked for as it was written."""
    from pricing.lookup import did_you_mean

    plain = name.strip()
    shape = catalog.instance("aws", plain)
    if shape is not None:
        return shape.instance_type
    if "." not in plain or any(sign in plain for sign in "*? "):
        near = did_you_mean(plain, [one.instance_type for one in catalog.instances("aws")])
        raise WrongUsage(f"{fmt.clean(plain)} is no instance type of AWS{near}; write one like p5.48xlarge.")
    return plain.lower()


def regions_of(named: list[str]) -> list[str]:
    found = list(dict.fromkeys(region.strip().lower() for region in named if region.strip()))
    if not found:
        raise WrongUsage("--region is empty: name one like us-east-1.")
    return found


def _money(amount: str, currency: str, places: int) -> str:
    from pricing.money import Money

    return Money.parse(amount, currency).text(places)


def _utc(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
