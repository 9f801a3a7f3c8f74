"""Instance types: how many GPUs of which model, and what else the machine has.

Invariant: what is not certain is None; 0 is said only of what is known to be none (a CPU node's GPUs, no local disk).
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Literal, NamedTuple

from pricing.errors import CatalogError

Kind = Literal["gpu", "ai_chip", "cpu"]
_KINDS: dict[str, Kind] = {"gpu": "gpu", "ai_chip": "ai_chip", "cpu": "cpu"}
NAME_PREFIXES = {"azure": "standard_", "alibaba": "ecs."}
"""Part of a type's name that people leave out, by cloud."""


class InstanceType(NamedTuple):
    """The shape of a machine. Sizes in bytes; a GPU is one that a guest sees, or the part of one that it gets."""

    cloud: str
    instance_type: str
    """As the cloud writes it: `p4d.24xlarge`, `Standard_NC6s_v3`, `a3-highgpu-8g`, `ecs.gn6v-c8g1.2xlarge`."""
    gpu_model: str | None
    """`A100`, `T4`, ... without maker and form; memory tells the two A100s apart. An AI chip's name for that kind."""
    gpu_count: int | Fraction | None
    """Exact: `Fraction(1, 8)` for an eighth of a GPU (AWS g6f, Azure NVads_A10_v5, ...). 0 for a CPU node."""
    gpu_memory_bytes: int | None
    """Of one GPU; where the type gets a part of one, of that part."""
    vcpus: int | None
    memory_bytes: int | None
    nvme_bytes: int | None
    """Local disks that come with the type, in all; 0 when none comes."""
    network: str | None
    """In the cloud's words: `Up to 25 Gigabit`, `4x 100 Gigabit`."""
    kind: Kind = "gpu"
    """`gpu`, `ai_chip` (Trainium, Inferentia, Gaudi: no NVML) or `cpu`."""
    source: str = ""
    """Where the shape comes from."""


def name_key(cloud: str, name: str) -> str:
    """One spelling of a type's name for look-ups: lower case, without the prefix that people leave out."""
    return name.strip().lower().removeprefix(NAME_PREFIXES.get(cloud, ""))


def read_instances(path: Path) -> dict[str, dict[str, InstanceType]]:
    """Cloud -> name key -> shape. CatalogError names the file and the line."""
    found: dict[str, dict[str, InstanceType]] = {}
    for line, row in read_table(path):
        try:
            shape = _shape(row)
        except (ValueError, ZeroDivisionError, KeyError) as fault:
            raise CatalogError(f"{path.name}, line {line} is damaged ({fault}): reinstall rackrate.") from None
        found.setdefault(shape.cloud, {})[name_key(shape.cloud, shape.instance_type)] = shape
    return found


def read_table(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The rows below the header, with their line numbers. CatalogError when the table is missing or cut."""
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            reader = csv.reader(stream)
            width = len(next(reader, []))
            for row in reader:
                if len(row) != width:
                    raise CatalogError(f"{path.name}, line {reader.line_num} has {len(row)} cells: reinstall rackrate.")
                yield reader.line_num, row
    except (OSError, UnicodeDecodeError) as fault:
        raise CatalogError(f"The price table {path.name} cannot be read ({fault}): reinstall rackrate.") from None


def _shape(row: list[str]) -> InstanceType:
    cloud, name, kind, model, count, gpu_memory, vcpus, memory, nvme, network, source = row
    return InstanceType(
        cloud=cloud,
        instance_type=name,
        gpu_model=model or None,
        gpu_count=_count(count),
        gpu_memory_bytes=_whole(gpu_memory),
        vcpus=_whole(vcpus),
        memory_bytes=_whole(memory),
        nvme_bytes=_whole(nvme),
        network=network or None,
        kind=_KINDS[kind],
        source=source,
    )


def _whole(cell: str) -> int | None:
    return int(cell) if cell else None


def _count(cell: str) -> int | Fraction | None:
    return Fraction(cell) if "/" in cell else _whole(cell)
