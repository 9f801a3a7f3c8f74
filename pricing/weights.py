"""What the processors and the memory of a node are worth, for jobs that use them without a GPU.

Invariant: the parts of a node's price sum to it exactly: what a vCPU and a GiB are worth leaves the rest to the GPUs.

The defaults are those of OpenCost (and Kubecost): per hour, 0.95 a GPU, 0.031611 a vCPU, 0.004237 a GiB of memory. Only
their ratio counts: of the price of a node with 8 GPUs, 96 vCPUs and 1,152 GiB, whatever it is, 49.0 % is for the GPUs,
19.6 % for the vCPUs and 31.5 % for the memory. On a node without GPUs the processors and the memory are the whole price.
They can be set in `[weights]` of terms.toml: a weight of 0 for vCPUs and memory makes jobs without a GPU free on GPU nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

GIB = 2**30


@dataclass(frozen=True, slots=True)
class Weights:
    """Relative worth of one GPU, one vCPU and one GiB of memory; only their ratio counts."""

    gpu: Fraction = Fraction(Decimal("0.95"))
    vcpu: Fraction = Fraction(Decimal("0.031611"))
    memory_gib: Fraction = Fraction(Decimal("0.004237"))

    @property
    def of_processors(self) -> bool:
        """Whether vCPUs or memory are worth anything."""
        return bool(self.vcpu or self.memory_gib)


class Worth(NamedTuple):
    """Of one GPU, one vCPU and one GiB, as shares of a node's price."""

    gpu: Fraction
    vcpu: Fraction
    memory_gib: Fraction


def worth(gpus: int, vcpus: int | None, memory_bytes: int | None, weights: Weights) -> Worth | None:
    """How a node's price divides; None where it is not known what the node has, or all of that weighs nothing."""
    if vcpus is None or memory_bytes is None:
        return None
    whole = weights.gpu * gpus + weights.vcpu * vcpus + weights.memory_gib * Fraction(memory_bytes, GIB)
    return Worth(weights.gpu / whole, weights.vcpu / whole, weights.memory_gib / whole) if whole else None
