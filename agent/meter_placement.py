"""What the node was while its rows were recorded, so that they can be priced later.

Invariant: a placement that has been written is never altered. One that has not may still learn what it did not know
(cloud metadata answers a moment after the start), so that the first seconds of an agent are priced like the rest.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from agent import wire

_FACTS = ("node", "cloud", "region", "zone", "instance_type", "purchase", "usd_per_hour", "on_premises", "gpu_model", "tags", "vcpus", "memory_bytes")


class PlacementRef:
    """One placement that rows in memory point to; `id` is None until it is written."""

    __slots__ = ("facts", "id")

    def __init__(self, facts: wire.Placement, id: int | None = None) -> None:
        self.facts = facts
        self.id = id


def placement_facts(node: str, info: wire.NodeInfo, gpu_count: int, models: Iterable[str | None]) -> wire.Placement:
    """The placement that `info` describes, with id 0. Different models on one node are joined with ` + `."""
    return wire.Placement(
        id=0,
        node=node,
        cloud=info.cloud,
        region=info.region,
        zone=info.zone,
        instance_type=info.instance_type,
        purchase=info.purchase,
        usd_per_hour=info.usd_per_hour,
        on_premises=info.on_premises,
        gpu_count=gpu_count,
        gpu_model=" + ".join(sorted({model for model in models if model})) or None,
        tags=dict(sorted(info.tags.items())),
        vcpus=info.cpu_count,
        memory_bytes=info.memory_total_bytes,
    )


def refines(old: wire.Placement, new: wire.Placement) -> bool:
    """Whether `new` says all that `old` says, and perhaps more."""
    if old.gpu_count != new.gpu_count:
        return False
    return all(getattr(old, name) in (None, {}, getattr(new, name)) for name in _FACTS)


def encode_facts(facts: wire.Placement) -> str:
    """The placement without its id, the same text for the same facts."""
    return msgspec.json.encode(msgspec.structs.replace(facts, id=0)).decode()


def decode_facts(text: str, id: int) -> wire.Placement:
    return msgspec.structs.replace(msgspec.json.decode(text, type=wire.Placement), id=id)
