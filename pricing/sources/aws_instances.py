"""Instances that run in an AWS account: what could be nodes.

Invariant: only what runs now is listed, and an instance that has no address is listed without one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from pricing.sources.aws_session import AwsSession

PAGE = 1000


class Instance(NamedTuple):
    """One running instance. `name` is its tag `Name`; `purchase` None: AWS tells of a kind that is not known here."""

    ident: str
    name: str | None
    instance_type: str
    region: str
    zone: str | None
    purchase: str | None
    private_address: str | None
    public_address: str | None
    launched_at: datetime | None
    tags: Mapping[str, str]


PURCHASES = {None: "on_demand", "spot": "spot", "capacity-block": "capacity_block"}
"""By EC2's `InstanceLifecycle`; whether a reservation covers it is a matter of the bill."""


def running_instances(
    session: AwsSession, region: str, tags: Mapping[str, str], wants: Callable[[str], bool] = lambda name: True
) -> list[Instance]:
    """What runs in a region with all these tags and a type that is wanted, by name. SourceFault: see the tree."""
    filters = [{"Name": "instance-state-name", "Values": ["running"]}]
    filters += [{"Name": f"tag:{key}", "Values": [value]} for key, value in tags.items()]
    found = [
        _instance(raw, region)
        for page in session.pages(session.client("ec2", region), "describe_instances", {"Filters": filters, "MaxResults": PAGE})
        for reservation in page.answer.get("Reservations", [])
        for raw in reservation.get("Instances", [])
        if raw.get("InstanceId") and wants(raw.get("InstanceType", ""))
    ]
    return sorted(found, key=lambda one: (one.name or "", one.ident))


def _instance(raw: dict[str, Any], region: str) -> Instance:
    tags = {tag["Key"]: tag.get("Value", "") for tag in raw.get("Tags", []) if tag.get("Key")}
    return Instance(
        ident=raw["InstanceId"],
        name=tags.get("Name") or None,
        instance_type=raw.get("InstanceType", ""),
        region=region,
        zone=raw.get("Placement", {}).get("AvailabilityZone"),
        purchase=PURCHASES.get(raw.get("InstanceLifecycle")),
        private_address=raw.get("PrivateIpAddress") or None,
        public_address=raw.get("PublicIpAddress") or None,
        launched_at=raw.get("LaunchTime"),
        tags=tags,
    )
