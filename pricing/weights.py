"""What the processors and the memory of a GPU node are worth, for use of them that takes no GPU.

Invariant: the parts of a node's price sum to it exactly, and so do the cost of a use and of the rest.

The defaults are those of OpenCost (and Kubecost): per hour, 0.95 a GPU, 0.031611 a vCPU, 0.004237 a GiB of memory. Only
their ratio counts: of the price of a node with 8 GPUs, 96 vCPUs and 1,152 GiB, whatever it is, 49.0 % is for the GPUs,
19.6 % for the vCPUs and 31.5 % for the memory.

The ledger holds no use of processors yet: an agent's rows are of GPUs (or of a host without). A meter that wrote rows
of jobs without a GPU (vCPUs and bytes held) would give `cost_of` what it needs; until then GPU rows carry the whole price.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

from pricing.instances import InstanceType

GIB = 2**30


@dataclass(frozen=True, slots=True)
class Weights:
    """Relative worth of one GPU, one vCPU and one GiB of memory; only their ratio counts."""

    gpu: Fraction = Fraction(Decimal("0.95"))
    vcpu: Fraction = Fraction(Decimal("0.031611"))
    memory_gib: Fraction = Fraction(Decimal("0.004237"))


class Parts(NamedTuple):
    """Shares of a node's price, or amounts of money; they sum to the whole."""

    gpu: Fraction
    vcpu: Fraction
    memory: Fraction


def parts(shape: InstanceType, weights: Weights) -> Parts | None:
    """How a node's price divides among its GPUs, vCPUs and memory; None if the shape is not known or weighs nothing."""
    if shape.gpu_count is None or shape.vcpus is None or shape.memory_bytes is None:
        return None
    worth = Parts(
        weights.gpu * Fraction(shape.gpu_count),
        weights.vcpu * shape.vcpus,
        weights.memory_gib * Fraction(shape.memory_bytes, GIB),
    )
    whole = sum(worth)
    return Parts(*(part / whole for part in worth)) if whole else None


def cost_of(
    price: Fraction, shape: InstanceType, weights: Weights, *, gpus: Fraction, vcpus: Fraction, memory_bytes: Fraction
) -> Parts | None:
    """What a use of some GPUs, vCPUs and memory costs of a node's price; None where `parts` is.

    Each amount counts up to what the node has, so the costs of uses that together fit sum to at most the price.
    """
    shares = parts(shape, weights)
    if shares is None:
        return None
    taken = (
        (shares.gpu, gpus, shape.gpu_count),
        (shares.vcpu, vcpus, shape.vcpus),
        (shares.memory, memory_bytes, shape.memory_bytes),
    )
    return Parts(
        *(price * share * min(Fraction(1), used / Fraction(has)) if has else Fraction(0) for share, used, has in taken)
    )
