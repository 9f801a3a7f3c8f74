"""A plan as plain data: for `--json`, each figure with the inputs and intermediate figures it was made from.

Invariant: money is a decimal string to the cent, times are seconds, sizes bytes; what is not known is null.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from datetime import date
from fractions import Fraction
from typing import Any

from pricing.money import to_decimal
from pricing.planner import Option, Plan, late
from pricing.planner_candidates import Candidate
from pricing.planner_money import Cost, Rate


def plan_record(found: Plan, options: Iterable[Option] | None = None) -> dict[str, Any]:
    """`options`: which of them in full; None: the front alone."""
    soonest = found.soonest
    return {
        "workload": plain(found.workload),
        "front": [option_record(found, one) for one in found.front],
        "options": None if options is None else [option_record(found, one) for one in options],
        "soonest": None if soonest is None else option_record(found, soonest),
        "reference": None
        if found.reference is None
        else [option_record(found.reference, one) for one in found.reference.front],
        "counts": {
            "options": len(found.options),
            "in_time": len(found.in_time),
            "unknown_cost": sum(1 for one in found.options if one.usd is None),
            "misfits": dict(sorted(found.counted().items())),
        },
        "misfits": [one._asdict() for one in found.misfits],
    }


def option_record(found: Plan, option: Option) -> dict[str, Any]:
    """One option with everything that its time and money are made of."""
    return {
        **_hardware(option.candidate),
        "cloud": option.rate.cloud,
        "region": option.rate.region,
        "zone": option.rate.zone,
        "purchase": option.rate.purchase,
        "seconds": option.seconds,
        "billed_seconds": option.billed_seconds,
        "cost": money(option.usd),
        "in_time": late(found.workload, option) is None,
        "why_not": late(found.workload, option),
        "memory": plain(option.candidate.memory),
        "speed": plain(option.candidate.speed),
        "step": plain(option.candidate.step),
        "timing": {**plain(option.timing), "ready": option.timing.ready, "total": option.timing.total},
        "storage": plain(option.storage),
        "read_bytes_per_second_needed": option.need_bytes_per_second,
        "fed_ratio": option.fed,
        "spot": plain(option.spot),
        "price": _rate(option.rate),
        "costs": _cost(option.cost),
    }


def _hardware(candidate: Candidate) -> dict[str, Any]:
    gpu = candidate.gpu
    return {
        "instance_type": candidate.shape.instance_type,
        "nodes": candidate.nodes,
        "gpus": str(candidate.gpus),
        "gpus_per_node_used": candidate.per_node,
        "gpu_model": gpu.model,
        "gpu_form": gpu.form,
        "gpu_memory_bytes": candidate.shape.gpu_memory_bytes,
        "precision": candidate.precision,
        "notes": list(candidate.notes),
        "gpu_source": f"{gpu.source} ({gpu.as_of.isoformat()})",
        "wiring": plain(candidate.wiring),
    }


def _rate(rate: Rate) -> dict[str, Any]:
    return {
        "per_node_hour": None if rate.per_hour is None else str(to_decimal(rate.per_hour, 6)),
        "currency": rate.currency,
        "as_of": rate.as_of.isoformat(),
        "source": rate.source,
        "changed": rate.changed or None,
    }


def _cost(cost: Cost) -> dict[str, Any]:
    return {
        "compute": money(cost.compute),
        "storage": money(cost.storage),
        "egress": money(cost.egress),
        "unknown": list(cost.unknown),
        "compute_native": None if cost.native is None else money(cost.native),
        "currency": cost.currency,
    }


def money(value: Fraction | None) -> str | None:
    return None if value is None else str(to_decimal(value, 2))


def plain(value: Any) -> Any:
    """Dataclasses, tuples and fractions as JSON has them."""
    if isinstance(value, Fraction):
        return int(value) if value.denominator == 1 else float(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {key: plain(one) for key, one in value._asdict().items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, set | frozenset):
        return sorted(plain(one) for one in value)
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    return value.isoformat() if isinstance(value, date) else value
