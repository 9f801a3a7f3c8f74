"""Instance types as AWS describes them, and in which zones each is offered.

Invariant: a part of a GPU is an exact fraction, and a GPU count of 0 on a type with GPUs is a part or unknown, never none.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from pricing.instances import InstanceType, Kind
from pricing.sources.aws_session import AwsSession

PAGE = 100
MIB = 1 << 20
GB = 10**9
SOURCE = "aws ec2 describe-instance-types"
MODELS = {"RTX PRO Server 6000": "RTX PRO 6000", "Gaudi HL-205": "Gaudi"}
"""Names of EC2 for GPUs that the tables have under their makers' name."""


def instance_types(session: AwsSession, region: str, names: frozenset[str] | None = None) -> Iterator[InstanceType]:
    """The shapes of a region's types, of all or of those named."""
    for raw in _described(session, region, names):
        yield shape(raw)


def types_with_blocks(session: AwsSession, region: str, names: frozenset[str] | None = None) -> list[str]:
    """The types that a region sells in capacity blocks."""
    return sorted(
        raw["InstanceType"]
        for raw in _described(session, region, names)
        if "capacity-block" in raw.get("SupportedUsageClasses", [])
    )


def _described(session: AwsSession, region: str, names: frozenset[str] | None) -> Iterator[dict[str, Any]]:
    """Filtered here: a type that the region does not have would make the whole call fail."""
    client = session.client("ec2", region)
    for page in session.pages(client, "describe_instance_types", {"MaxResults": PAGE}):
        for raw in page.answer.get("InstanceTypes", []):
            if raw.get("InstanceType") and (names is None or raw["InstanceType"] in names):
                yield raw


def shape(raw: dict[str, Any]) -> InstanceType:
    """One type of `describe_instance_types`."""
    kind, model, count, memory = _accelerator(raw)
    storage = raw.get("InstanceStorageInfo", {}).get("TotalSizeInGB")
    return InstanceType(
        cloud="aws",
        instance_type=raw["InstanceType"],
        gpu_model=model,
        gpu_count=count,
        gpu_memory_bytes=memory,
        vcpus=raw.get("VCpuInfo", {}).get("DefaultVCpus"),
        memory_bytes=_bytes(raw.get("MemoryInfo")),
        nvme_bytes=storage * GB if storage else None if raw.get("InstanceStorageSupported") else 0,
        network=raw.get("NetworkInfo", {}).get("NetworkPerformance"),
        kind=kind,
        source=SOURCE,
    )


Accelerator = tuple[Kind, str | None, int | Fraction | None, int | None]


def _accelerator(raw: dict[str, Any]) -> Accelerator:
    """Kind, model, how many, bytes of one. Several models in one type: how many is unknown."""
    for key, devices in (("NeuronInfo", "NeuronDevices"), ("InferenceAcceleratorInfo", "Accelerators")):
        if found := raw.get(key, {}).get(devices):
            return "ai_chip", found[0].get("Name"), found[0].get("Count") or None, _bytes(found[0].get("MemoryInfo"))
    gpus = raw.get("GpuInfo", {}).get("Gpus")
    if not gpus:
        return "cpu", None, 0, None
    kind: Kind = "ai_chip" if gpus[0].get("Manufacturer") == "Habana" else "gpu"
    name = gpus[0].get("Name")
    if len(gpus) > 1:
        return kind, None, None, None
    return kind, MODELS.get(name, name), _count(gpus[0]), _bytes(gpus[0].get("MemoryInfo"))


def _count(gpu: dict[str, Any]) -> int | Fraction | None:
    """Whole GPUs; of partitioned ones, partitions x size, exactly. None: neither is told."""
    size, logical = gpu.get("GpuPartitionSize"), gpu.get("LogicalGpuCount")
    if size and size < 1 and logical:
        whole = logical * Fraction(size).limit_denominator(64)
        return int(whole) if whole.denominator == 1 else whole
    return gpu.get("Count") or None


def _bytes(info: dict[str, Any] | None) -> int | None:
    size = (info or {}).get("SizeInMiB")
    return size * MIB if size else None
