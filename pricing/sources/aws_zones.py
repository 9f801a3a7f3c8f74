"""The zones of an AWS region: name to id, and the local zones beside them.

Invariant: a zone name (us-east-1a) means another place in every account, so nothing leaves the sources under one: it is
replaced by the zone's id (use1-az1), or the row is left out.
"""

from __future__ import annotations

from typing import NamedTuple

from pricing.sources import BadAnswer
from pricing.sources.aws_session import AwsSession
from pricing.zones import is_aws_id


class Zone(NamedTuple):
    """One zone as this account sees it."""

    name: str
    id: str
    group: str
    """The region of a usual zone; `us-west-2-lax-1` of a local zone, under which the price list has it."""
    kind: str
    """`availability-zone`, `local-zone` or `wavelength-zone`."""


class Zones(NamedTuple):
    """All zones of a region, also those that the account has not opted into."""

    region: str
    zones: tuple[Zone, ...]

    def id_of(self, zone: str) -> str | None:
        """The id of a zone's name (or of an id); None when there is no such zone."""
        return next((known.id for known in self.zones if zone in (known.name, known.id)), None)

    def local_groups(self) -> dict[str, tuple[str, ...]]:
        """Local zones by the name that the price list has for them: `us-west-2-lax-1` -> zone ids."""
        found: dict[str, tuple[str, ...]] = {}
        for zone in self.zones:
            if zone.kind == "local-zone":
                found[zone.group] = (*found.get(zone.group, ()), zone.id)
        return dict(sorted(found.items()))


def read_zones(session: AwsSession, region: str) -> Zones:
    """All zones of `region`, in one call. BadAnswer when a zone comes without name or id."""
    client = session.client("ec2", region)
    answer = session.call(client, "describe_availability_zones", {"AllAvailabilityZones": True})
    return Zones(region, tuple(_zone(raw, region) for raw in answer.get("AvailabilityZones", [])))


def _zone(raw: dict[str, str], region: str) -> Zone:
    name, zone_id = raw.get("ZoneName", ""), raw.get("ZoneId", "")
    if not name or not is_aws_id(zone_id):
        raise BadAnswer(f"AWS names a zone of {region} {name[:40]!r} with the id {zone_id[:40]!r}, which is none.")
    return Zone(name, zone_id, raw.get("GroupName") or region, raw.get("ZoneType") or "availability-zone")
