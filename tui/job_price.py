"""What a job without a GPU costs an hour: its processors and memory, as a part of the node's price by the weights.

Invariant: the figure is the one that a report comes to; where it is not known what the node has, so is the price.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

from agent import wire
from pricing.weights import GIB, Weights, worth

UNSAID_CPUS = Fraction(1, 2)
"""An agent counts a job that asks for neither GPUs nor CPUs as half a CPU."""


def without_gpu(spec: wire.JobSpec) -> bool:
    return not spec.gpus and spec.gpu_share is None


def part_of(spec: wire.JobSpec, info: wire.NodeInfo, price: Decimal | None, weights: Weights) -> Fraction | None:
    """US dollars per hour of a job without a GPU on a node of that price; None where it is not known."""
    each = worth(len(info.gpus), info.cpu_count, info.memory_total_bytes, weights)
    if price is None or each is None or not info.cpu_count or not info.memory_total_bytes:
        return None
    cpus = min(UNSAID_CPUS if spec.cpus is None else Fraction(spec.cpus), Fraction(info.cpu_count))
    memory = min(spec.memory_bytes or 0, info.memory_total_bytes)
    return Fraction(price) * (each.vcpu * cpus + each.memory_gib * Fraction(memory, GIB))
