"""What a zone's name says: an AWS zone id, an account's own letter for one, a local zone, a zone of another cloud.

Invariant: an AWS zone name (us-east-1a) is never taken for a zone id; each account has its own mapping.
"""

from __future__ import annotations

import re

_AWS_ID = re.compile(r"(?P<region>[a-z]+\d+)(?P<local>(-[a-z]+\d*)+)?-(az|wlz)\d+")
_AWS_NAME = re.compile(r"(?P<region>[a-z]+(-[a-z]+)+-\d+)((?P<local>(-[a-z]+\d*)+-\d+)[a-z]?|[a-z])")
_GCP_NAME = re.compile(r"(?P<region>[a-z]+-[a-z]+\d+)-[a-z]")


def is_aws_id(zone: str) -> bool:
    """`use1-az1`, `use1-atl2-az1`: the same place in every account."""
    return _AWS_ID.fullmatch(zone) is not None


def is_local(zone: str) -> bool:
    """A local or wavelength zone of AWS (`usw2-lax1-az2`, `us-west-2-lax-1a`): a place with prices of its own."""
    found = _AWS_ID.fullmatch(zone) or _AWS_NAME.fullmatch(zone)
    return found is not None and found["local"] is not None


def aws_region_code(zone_id: str) -> str:
    """`use1` of `use1-az1`."""
    return zone_id.partition("-")[0]


def region_in_name(cloud: str, zone: str) -> str | None:
    """The region that a zone's name starts with, where it does; an AWS id has only a short form of it."""
    pattern = {"aws": _AWS_NAME, "gcp": _GCP_NAME}.get(cloud)
    found = pattern.fullmatch(zone) if pattern else None
    return found["region"] if found else None
