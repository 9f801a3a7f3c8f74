"""What can be asked of GPUs, of alerts and of offers; nodes are in `query.py`, jobs in `job_rows.py`.

Invariant: a key means the same for all of them: `user`, `node`, `type`, `region`, `tag`, `cost` are those of the row's node,
or of the row itself where it has its own.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from agent import wire
from tui.columns import GpuRow, gpu_state_text, gpu_usd_per_hour
from tui.fleet import NodeView
from tui.query import CLOUDS, GPU_STATES, PURCHASES, Words, bare_texts
from tui.query import texts as node_texts

_OF_NODE = ("type", "cloud", "region", "zone", "buy", "tag")


# -- GPUs -------------------------------------------------------------------------------------------------------------


def gpu_texts(row: GpuRow, key: str, now: float) -> list[str]:
    """All texts of one GPU under a key; `state` is the GPU's own, and its node's."""
    gpu = row.use.gpu
    holders = (*(gpu.processes or ()), *gpu.allocations)
    match key:
        case "state":
            return [gpu_state_text(row.use), row.node.state(now)]
        case "gpu":
            return [text for text in (gpu.model, gpu.uuid) if text]
        case "user":
            return list(row.use.users)
        case "project":
            return [one.project for one in holders if one.project]
        case "job":
            return [one.job for one in holders if one.job]
    return node_texts(row.node, key, now)


def gpu_number(row: GpuRow, key: str, now: float) -> float | None:
    """`util`, `mem` in per cent, `power` in watts, `temp` in °C, `cost`/`$` the GPU's part of its node's $/h."""
    gpu = row.use.gpu
    match key:
        case "index":
            return gpu.index
        case "util":
            return None if gpu.utilization_ratio is None else gpu.utilization_ratio * 100
        case "mem":
            used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
            return used / total * 100 if used is not None and total else None
        case "power":
            return gpu.power_watts
        case "temp":
            return gpu.temperature_celsius
        case "age":
            return row.node.age_seconds(now)
    price = gpu_usd_per_hour(row)
    return None if price is None else float(price)


def _gpu_bare(row: GpuRow) -> list[str]:
    own = [text for key in ("gpu", "user", "project") for text in gpu_texts(row, key, 0.0)]
    return [row.node.name, *own, *(text for key in _OF_NODE for text in node_texts(row.node, key, 0.0))]


GPU_WORDS = Words(
    ("node", "state", "gpu", "user", "project", "job", *_OF_NODE),
    ("index", "util", "mem", "power", "temp", "cost", "$", "age"),
    gpu_texts, gpu_number, _gpu_bare,
    known={"state": (*GPU_STATES, "live", "stale"), "user": ("me",), "buy": PURCHASES},
)  # fmt: skip


# -- alerts ---------------------------------------------------------------------------------------------------------------


class AlertLook(NamedTuple):
    """An alert, its node (None: of no node) and the moment (UTC) at which both are looked at."""

    alert: wire.Alert
    node: NodeView | None
    at: datetime


def alert_texts(row: AlertLook, key: str, now: float) -> list[str]:
    """All texts of an alert under a key; `user` is who holds what it is about, and of a whole node all its users."""
    alert, node = row.alert, row.node
    match key:
        case "rule":
            return [alert.rule]
        case "severity":
            return [alert.severity, *(["paused"] if alert.paused_until is not None else [])]
        case "node":
            return [alert.node]
        case "what":
            return [alert.message]
        case "gpu":
            gpus = [gpu for gpu in node.gpus if alert.gpu in (None, gpu.uuid)] if node else []
            return [text for gpu in gpus for text in (gpu.model, gpu.uuid) if text]
        case "user" if alert.gpu is not None and node is not None:
            return [user for use in node.uses if use.gpu.uuid == alert.gpu for user in use.users]
    return node_texts(node, key, now) if node is not None else []


def alert_number(row: AlertLook, key: str, now: float) -> float | None:
    """`age` in seconds since it began to hold, `cost`/`$` in $/h that go to waste."""
    if key == "age":
        return max(0.0, (row.at - row.alert.since).total_seconds())
    return None if row.alert.usd_per_hour is None else float(row.alert.usd_per_hour)


def _alert_bare(row: AlertLook) -> list[str]:
    alert = row.alert
    own = [alert.rule, alert.severity, alert.node, alert.message, alert.reading or ""]
    return [*own, *(bare_texts(row.node) if row.node is not None else ())]


RULES = (
    "gpu_idle_held", "gpu_lost", "gpu_hot", "gpu_throttled", "gpu_xid", "disk_full", "memory_full", "sensor_failing", "node_silent",
    "cloud_notice", "budget", "budget_forecast",
)  # fmt: skip
ALERT_WORDS = Words(
    ("rule", "severity", "node", "what", "state", "gpu", "user", "project", "job", *_OF_NODE), ("age", "cost", "$"),
    alert_texts, alert_number, _alert_bare,
    known={"rule": RULES, "severity": ("critical", "warning", "paused"), "user": ("me",), "buy": PURCHASES},
)  # fmt: skip


# -- offers -------------------------------------------------------------------------------------------------------------------


def offer_texts(offer: Any, key: str, now: float) -> list[str]:
    """All texts of an offer under a key."""
    from tui.columns import purchase_text
    from tui.offers import instance_of

    match key:
        case "gpu":
            instance = instance_of(offer)
            return [instance.gpu_model] if instance and instance.gpu_model else []
        case "type":
            return [offer.instance_type]
        case "buy":
            return [offer.purchase, purchase_text(offer.purchase)]
    value = getattr(offer, key)
    return [value] if value else []


def offer_number(offer: Any, key: str, now: float) -> float | None:
    """`cost`/`$` per hour and `each` per GPU-hour in the offer's currency, `gpus`, `vcpus`; `age` in seconds since its source said so."""
    from pricing.catalog import Catalog
    from tui.offers import instance_of

    if key == "age":
        from datetime import UTC

        return max(0.0, (datetime.now(UTC).date() - offer.as_of).days * 86_400.0)
    if key in ("cost", "$"):
        return None if offer.price is None else float(offer.price.amount)
    if key == "each":
        each = Catalog.embedded().per_gpu(offer)
        return None if each is None else float(each)
    instance = instance_of(offer)
    value = getattr(instance, {"gpus": "gpu_count"}.get(key, key)) if instance else None
    return None if value is None else float(value)


_OFFER_KEYS = ("cloud", "region", "zone", "type", "gpu", "buy")
OFFER_WORDS = Words(
    _OFFER_KEYS, ("cost", "$", "each", "gpus", "vcpus", "age"), offer_texts, offer_number,
    lambda offer: [text for key in _OFFER_KEYS for text in offer_texts(offer, key, 0.0)],
    known={"cloud": CLOUDS, "buy": PURCHASES},
)  # fmt: skip
