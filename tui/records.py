"""What `--json` prints: the wire's keys, with the client's state, age and money added.

Invariant: every key is always there; what is not known is null. Money is a decimal string.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import msgspec

from agent import wire
from tui import format as fmt
from tui.columns import GpuRow, gpu_usd_per_hour
from tui.fleet import GpuUse, NodeView, Totals

MONEY_PLACES = 6


def money(value: Fraction | None) -> str | None:
    """A decimal string with up to six places, as short as it is exact; None stays None."""
    if value is None:
        return None
    text = format(fmt.decimal_of(value, MONEY_PLACES), "f")
    whole, _, places = text.partition(".")
    return f"{whole}.{places.rstrip('0').ljust(2, '0')}"


def node_record(view: NodeView, now: float) -> dict[str, Any]:
    """One node with its GPUs."""
    info = view.info
    price = view.quote
    return {
        "node": view.name,
        "url": view.url,
        "state": view.state(now),
        "age_seconds": _rounded(view.age_seconds(now)),
        "error": view.error,
        "cloud": info.cloud if info else None,
        "region": info.region if info else None,
        "zone": info.zone if info else None,
        "instance_type": info.instance_type if info else None,
        "purchase": info.purchase if info else None,
        "usd_per_hour": money(view.usd_per_hour),
        "idle_usd_per_hour": money(view.idle_usd_per_hour),
        "price_source": price.source if price and price.price else None,
        "price_as_of": price.as_of.isoformat() if price and price.price and price.as_of else None,
        "price_estimated": bool(price and price.price and price.estimated),
        "price_reason": view.price_reason,
        "utilization_ratio": _rounded(view.utilization_ratio),
        "power_watts": _rounded(view.power_watts),
        "users": list(view.users),
        "drain": _filled(info.drain) if info and info.drain else None,
        "pauses": [_filled(pause) for pause in info.pauses] if info else [],
        "gpu_reason": info.gpu_reason if info else None,
        "host": _filled(view.sample.host) if view.sample and view.sample.host else None,
        "gpus": [gpu_record(view, use) for use in view.uses],
        "alerts": [_filled(alert) for alert in view.alerts.values()],
        "taken_at": view.sample.taken_at.isoformat() if view.sample else None,
    }


def gpu_record(view: NodeView, use: GpuUse) -> dict[str, Any]:
    """One GPU; keys as on the wire, all present."""
    record = _filled(use.gpu)
    processes = use.gpu.processes
    record["processes"] = None if processes is None else [_filled(process) for process in processes]
    record["allocations"] = [_filled(one) for one in use.gpu.allocations]
    record["held"] = use.held
    record["usd_per_hour"] = money(gpu_usd_per_hour(GpuRow(view, use)))
    return record


def totals_record(totals: Totals) -> dict[str, Any]:
    """Sums; money as strings."""
    record = msgspec.structs.asdict(totals)
    record["free"] = dict(totals.free)
    record["usd_per_hour"] = money(totals.usd_per_hour)
    record["idle_usd_per_hour"] = money(totals.idle_usd_per_hour)
    return record


def _filled(struct: msgspec.Struct) -> dict[str, Any]:
    """All fields of a struct as JSON-ready values, absent ones as null."""
    return {
        name: msgspec.to_builtins(getattr(struct, name), builtin_types=(), str_keys=True)
        for name in struct.__struct_fields__
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


def alert_record(alert: wire.Alert) -> dict[str, Any]:
    """One alert, all keys present."""
    return _filled(alert)
