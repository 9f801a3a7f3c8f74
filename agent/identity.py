"""What this node is: configuration first, field by field, then the cloud's metadata service.

Invariant: a field is never guessed and fields of two clouds are never mixed; each has its source beside it. The answer
comes within the time limit whatever the network does, and a machine that is known to be no cloud's is not asked.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path

import msgspec

from agent import wire
from agent.config_file import NAME, NodeConfig
from agent.metadata import ask_all

METADATA_FIELDS = ("cloud", "region", "zone", "instance_type", "purchase")
CLOUDS = ("aws", "gcp", "azure")
_ENDPOINT = "http://169.254.169.254"
_ENVIRONMENT = {
    "aws": "RACKRATE_EC2_METADATA_URL",
    "gcp": "RACKRATE_GCP_METADATA_URL",
    "azure": "RACKRATE_AZURE_METADATA_URL",
}
_SOURCE = {"aws": "ec2 metadata", "gcp": "gcp metadata", "azure": "azure metadata"}
_AZURE_CHASSIS = "7783-7084-3265-9085-8269-3286-77"
_PLAIN_VENDORS = (
    "dell", "supermicro", "super micro", "hp", "hewlett", "lenovo", "asus", "gigabyte", "giga computing", "nvidia", "quanta",
    "inspur", "fujitsu", "cisco", "asrock", "micro-star", "tyan", "wiwynn", "foxconn", "framework", "apple", "acer",
)


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """A node's identity; None is not known. `sources` says of each known field where it came from."""

    name: str
    cloud: str | None = None
    region: str | None = None
    zone: str | None = None
    instance_type: str | None = None
    purchase: wire.Purchase | None = None
    usd_per_hour: str | None = None
    on_premises: wire.OnPremises | None = None
    tags: dict[str, str] = {}
    instance_id: str | None = None
    """The cloud's own id of the machine."""
    sources: dict[str, str] = {}

    def describe(self, info: wire.NodeInfo) -> wire.NodeInfo:
        """`info` with this identity in it."""
        fields = {name: getattr(self, name) for name in (*METADATA_FIELDS, "usd_per_hour", "on_premises", "tags")}
        return msgspec.structs.replace(info, node=self.name, identity_sources=self.sources, **fields)


def configured(config: NodeConfig, hostname: str | None = None) -> Identity:
    """The identity without asking anybody: what the file says, and the host's name. Takes no time."""
    name = config.name or clean_name(hostname or socket.gethostname())
    fields = {field: getattr(config, field) for field in (*METADATA_FIELDS, "usd_per_hour", "on_premises")}
    sources = {field: "configuration" for field, value in fields.items() if value is not None}
    if config.on_premises is not None and config.cloud is None:
        fields["cloud"], sources["cloud"] = "on_premises", "configuration"
    if config.tags:
        sources["tags"] = "configuration"
    sources["node"] = "configuration" if config.name else "hostname"
    return Identity(name=name, tags=config.tags, sources=sources, **fields)


def resolve(
    config: NodeConfig,
    *,
    endpoints: Mapping[str, str] | None = None,
    timeout_seconds: float = 1.0,
    environ: Mapping[str, str] = os.environ,
    root: Path = Path("/"),
) -> Identity:
    """The identity after the metadata services were asked, all at once, for at most `timeout_seconds`. Never raises.

    `endpoints` (cloud -> base URL; default: RACKRATE_EC2_METADATA_URL and its like) replace the real addresses, and only
    those are asked. It blocks its thread: call it in one of its own, and use `configured` until it answers.
    """
    known = configured(config)
    if not config.metadata or metadata_off(environ):
        return known
    hint = machine_hint(root)
    asked = _endpoints(known, hint, endpoints if endpoints is not None else _overridden(environ))
    answers = ask_all(asked, timeout_seconds) if asked else {}
    return _merged(known, answers, hint)


def metadata_off(environ: Mapping[str, str]) -> bool:
    """Whether RACKRATE_METADATA says that no metadata service is to be asked."""
    return environ.get("RACKRATE_METADATA", "").lower() in ("off", "0", "false", "no")


def metadata_urls(environ: Mapping[str, str]) -> Mapping[str, str]:
    """Cloud -> base URL: those in the environment and no others, or else the real ones."""
    return _overridden(environ) or dict.fromkeys(CLOUDS, _ENDPOINT)


def machine_hint(root: Path = Path("/")) -> str | None:
    """The cloud whose firmware this machine has (`aws`, `gcp`, `azure`, `alibaba`), `plain` for a known maker's, else None.

    Source: /sys/class/dmi/id, which every user can read; nothing is asked over the network.
    """
    vendor = _dmi(root, "sys_vendor").lower()
    if "amazon" in vendor or "amazon" in _dmi(root, "bios_version").lower():
        return "aws"
    if vendor == "google" or _dmi(root, "product_name") == "Google Compute Engine":
        return "gcp"
    if _dmi(root, "chassis_asset_tag") == _AZURE_CHASSIS:
        return "azure"
    if "alibaba" in vendor:
        return "alibaba"
    return "plain" if vendor.startswith(_PLAIN_VENDORS) else None


def clean_name(hostname: str) -> str:
    """A host's name as a node's name: what the wire's URLs and labels do not take becomes a dash."""
    name = re.sub(r"[^A-Za-z0-9._-]", "-", hostname.strip().rstrip(".")).lstrip("._-")[:64]
    return name if NAME.fullmatch(name) else "localhost"


def _dmi(root: Path, name: str) -> str:
    try:
        return (root / "sys/class/dmi/id" / name).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _overridden(environ: Mapping[str, str]) -> Mapping[str, str] | None:
    return {cloud: environ[name] for cloud, name in _ENVIRONMENT.items() if environ.get(name)} or None


def _endpoints(known: Identity, hint: str | None, given: Mapping[str, str] | None) -> dict[str, str]:
    """Cloud -> base URL of the services that may know something that is missing."""
    if all(getattr(known, field) is not None for field in METADATA_FIELDS):
        return {}
    if given is not None:
        candidates = dict(given)
    elif hint is None:
        candidates = dict.fromkeys(CLOUDS, _ENDPOINT)
    else:
        candidates = {hint: _ENDPOINT} if hint in CLOUDS else {}
    if known.cloud is not None:
        candidates = {cloud: url for cloud, url in candidates.items() if cloud == known.cloud}
    return {cloud: url.rstrip("/") for cloud, url in candidates.items()}


def _merged(known: Identity, answers: Mapping[str, Mapping[str, str]], hint: str | None) -> Identity:
    cloud = next((name for name in CLOUDS if answers.get(name)), None)
    if cloud is not None and known.cloud in (None, cloud):
        return _filled(known, {**answers[cloud], "cloud": cloud}, _SOURCE[cloud])
    if known.cloud is None and hint not in (None, "plain"):
        return _filled(known, {"cloud": hint}, "firmware")
    return known


def _filled(known: Identity, found: Mapping[str, str], source: str) -> Identity:
    new = {field: found[field] for field in METADATA_FIELDS if field in found and getattr(known, field) is None}
    sources = {**known.sources, **dict.fromkeys(new, source)}
    return msgspec.structs.replace(known, **new, instance_id=found.get("instance_id"), sources=sources)
