"""What part of a GPU its tenants hold: MIG instances by compute and memory slices, time-slicing by replicas.

Invariant: shares are whole millionths, each at least 0, and with the idle rest they sum to exactly one GPU.

Where a meter would supply them: a MIG instance's row needs its parent's UUID and its profile (`3g.40gb`: compute and
memory slices, from NVML's GPU instance), and `share_millionths` from `mig_shares` beside one idle row for the rest; a
time-sliced GPU's rows need the number of replicas that its device plugin advertises. MPS shares already come as the
jobs' own. Device counters of a shared GPU are of the whole: never add them up over tenants.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from pricing.errors import BadShares
from pricing.money import largest_remainder
from pricing.usage import WHOLE_SHARE

COMPUTE_SLICES, MEMORY_SLICES = 7, 8
"""Of an A100, H100, H200 or B200."""


class Slices(NamedTuple):
    """A MIG instance: `1g.5gb` is (1, 1), `1g.10gb` (1, 2), `3g.20gb` (3, 4), `7g.40gb` (7, 8)."""

    compute: int
    memory: int


class Shares(NamedTuple):
    """Millionths of one GPU: one per tenant in the order given, and what is left."""

    tenants: tuple[int, ...]
    idle: int


def mig_shares(
    instances: Sequence[Slices],
    *,
    compute_slices: int = COMPUTE_SLICES,
    memory_slices: int = MEMORY_SLICES,
    compute_weight: Fraction = Fraction(1, 2),
) -> Shares:
    """The weighted mean of an instance's part of the compute and of the memory slices (each counts half by default).

    The mean, not the larger of both: that could exceed one GPU (4g.20gb beside 3g.20gb). BadShares where it cannot be.
    """
    if not 0 <= compute_weight <= 1:
        raise BadShares(f"The weight of compute slices is {compute_weight}: it must be between 0 and 1.")
    for name, used, whole in (
        ("compute", [one.compute for one in instances], compute_slices),
        ("memory", [one.memory for one in instances], memory_slices),
    ):
        if sum(used) > whole or min(used, default=0) < 0:
            raise BadShares(f"MIG instances of {used} {name} slices do not fit on a GPU that has {whole}.")
    parts = [
        compute_weight * Fraction(one.compute, compute_slices) + (1 - compute_weight) * Fraction(one.memory, memory_slices)
        for one in instances
    ]
    return _rounded(parts)


def time_slices(replicas: int, held: Sequence[int]) -> Shares:
    """`held`: how many of the GPU's `replicas` each tenant holds; a replica that nobody holds is idle. BadShares."""
    if replicas < 1 or sum(held) > replicas or min(held, default=0) < 0:
        raise BadShares(f"Tenants that hold {list(held)} replicas do not fit on a GPU that is offered {replicas} times.")
    return _rounded([Fraction(count, replicas) for count in held])


def _rounded(parts: Sequence[Fraction]) -> Shares:
    scaled = [part * WHOLE_SHARE for part in (*parts, 1 - sum(parts))]
    *tenants, idle = largest_remainder(scaled, WHOLE_SHARE)
    return Shares(tuple(tenants), idle)
