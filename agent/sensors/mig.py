"""The MIG instances of one GPU, and what part of the GPU each is.

Invariant: the parts of one GPU's instances are whole millionths that sum to at most 1,000,000; what they leave is no
instance's.

An instance (NVML's MIG device: a compute instance within a GPU instance) is the mean of its part of the compute slices and
of the memory slices, each weighing half: 7g.40gb is all of an A100, 3g.20gb 46.4 %, 1g.5gb 13.4 %. The mean, not the larger
of both: 4g.20gb beside 3g.20gb would be more than one GPU. Compute instances of one GPU instance share its memory by
their compute slices. Seven of 1g.5gb leave an eighth of the memory: 6.25 % of the GPU that nobody can use.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import pynvml

from agent import wire
from agent.sensors import nvml_calls as calls
from agent.sensors.processes import LABEL_LENGTH, clean_text

WHOLE = 1_000_000
MEMORY_SLICES = 8
"""Of every GPU that has MIG; on those with four (A30) a profile takes two of these at a time."""
_MIB = 1 << 20


class Slices(NamedTuple):
    """`compute` of the compute slices of the GPU instance, which has `instance` of the GPU's, and `memory` of its memory."""

    compute: int
    instance: int
    memory: int


def read(handle: Any, memory_bytes: int | None) -> tuple[wire.MigInstance, ...]:
    """The instances of a GPU in MIG mode, in NVML's order. Raises NVMLError where the driver does not tell them."""
    found = [(instance, _slices(instance, memory_bytes)) for instance in calls.mig_devices(handle)]
    whole = pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)  # one for each compute slice
    shares = parts([slices for _, slices in found], whole)
    return tuple(_told(instance, slices, share) for (instance, slices), share in zip(found, shares, strict=True))


def parts(instances: Sequence[Slices], compute_slices: int) -> list[int]:
    """Millionths of the GPU, one for each instance."""
    exact = [_part(one, compute_slices) for one in instances]
    over = max(Fraction(1), sum(exact, Fraction(0)))  # a driver that tells more than there is
    edges = [int(edge / over * WHOLE) for edge in accumulate(exact, initial=Fraction(0))]
    return [end - start for start, end in pairwise(edges)]


def _part(one: Slices, compute_slices: int) -> Fraction:
    memory = Fraction(one.memory * one.compute, MEMORY_SLICES * max(one.instance, 1))
    return (Fraction(one.compute, max(compute_slices, 1)) + memory) / 2


def _slices(instance: Any, memory_bytes: int | None) -> Slices:
    facts = pynvml.nvmlDeviceGetAttributes(instance)
    slices = facts.gpuInstanceSliceCount
    if not memory_bytes:
        return Slices(facts.computeInstanceSliceCount, slices, slices)
    memory = round(facts.memorySizeMB * _MIB * MEMORY_SLICES / memory_bytes)
    return Slices(facts.computeInstanceSliceCount, slices, min(max(memory, 1), MEMORY_SLICES))


def _told(instance: Any, slices: Slices, share: int) -> wire.MigInstance:
    name = clean_text(calls.text_of(pynvml.nvmlDeviceGetName, instance), LABEL_LENGTH)
    return wire.MigInstance(
        uuid=clean_text(calls.text_of(pynvml.nvmlDeviceGetUUID, instance), LABEL_LENGTH),
        profile=name.partition(" MIG ")[2] or None,
        gpu_instance=pynvml.nvmlDeviceGetGpuInstanceId(instance),
        compute_instance=pynvml.nvmlDeviceGetComputeInstanceId(instance),
        compute_slices=slices.compute,
        memory_slices=slices.memory,
        share=Decimal(share).scaleb(-6),
    )
