"""How fast the GPUs of one instance type are against those of another, as far as their data sheets tell.

Invariant: nothing here is measured, and what is not known is None: no speed is made up for a GPU that no table has.
"""

from __future__ import annotations

from fractions import Fraction

from pricing.hardware import Gpu, gpu_of, wiring_of
from pricing.instances import InstanceType


def speed_of(now: InstanceType, other: InstanceType) -> tuple[Fraction, str] | None:
    """(speed, where it comes from): 1 and no source for the same GPUs; None where it is not known."""
    if (now.gpu_model, now.gpu_memory_bytes) == (other.gpu_model, other.gpu_memory_bytes) and now.gpu_memory_bytes:
        return Fraction(1), ""
    if now.gpu_model == other.gpu_model or not now.gpu_memory_bytes or (other.gpu_memory_bytes or 0) < now.gpu_memory_bytes:
        return None
    if isinstance(now.gpu_count, Fraction) and now.gpu_count < 1:
        return None
    one, two = gpu_of(now, wiring_of(now).form), gpu_of(other, wiring_of(other).form)
    if one is None or two is None or one.runtime != two.runtime:
        return None
    ratios = {name: ratio for name, ratio in (("fp16", _ratio(one, two, "fp16")), ("memory", _memory(one, two))) if ratio}
    if len(ratios) < 2:
        return None
    least = min(ratios.values())
    return Fraction(least).limit_denominator(
        1000
    ), f"peak figures: {ratios['fp16']:.2f} x in fp16, {ratios['memory']:.2f} x in memory bandwidth; the lower counts"


def _ratio(one: Gpu, two: Gpu, precision: str) -> float | None:
    have, get = one.flops.get(precision) or one.flops.get("fp32"), two.flops.get(precision) or two.flops.get("fp32")
    return get / have if have and get else None


def _memory(one: Gpu, two: Gpu) -> float | None:
    have, get = one.memory_bytes_per_second, two.memory_bytes_per_second
    return get / have if have and get else None
