"""Sums over nodes: states, GPUs, money, power.

Invariant: money is exact and counts only nodes whose price is known; what is not known adds nothing and is counted beside.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from tui.fleet import NodeView


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over some nodes."""

    nodes: int
    live: int
    stale: int
    lost: int
    gpus: int
    gpus_held: int
    gpus_lost: int
    free: tuple[tuple[str, int], ...]
    """Families of GPUs that nobody holds on nodes that take jobs, with how many there are, by name."""
    usd_per_hour: Fraction
    idle_usd_per_hour: Fraction
    unpriced: int
    power_watts: float | None
    utilization_ratio: float | None
    alerts: int

    @property
    def cost_unknown(self) -> bool:
        """There are nodes, and none of them has a price."""
        return 0 < self.nodes == self.unpriced


def totals_of(views: Iterable[NodeView], now: float) -> Totals:
    """One pass: it runs for a thousand nodes each second. Fractions are summed by denominator, which costs a twentieth."""
    states = {"live": 0, "stale": 0, "lost": 0, "connecting": 0}
    gpus = held = lost = unpriced = known = alerts = 0
    busy, power = 0.0, None
    prices, idles, free = dict[int, int](), dict[int, int](), dict[str, int]()
    for view in views:
        state, use = view.state(now), view.use
        states[state] += 1
        gpus, held, lost = gpus + use.gpus, held + use.held, lost + use.lost
        busy, known = busy + use.utilization_sum, known + use.utilization_known
        if use.power_watts is not None:
            power = use.power_watts if power is None else power + use.power_watts
        if use.free and state in ("live", "stale") and not view.draining:
            for name, count in use.free:
                free[name] = free.get(name, 0) + count
        if view.alerts or view.notice is not None:
            alerts += _calling(view)
        if (price := view.price_ratio) is None:
            unpriced += 1
            continue
        (top, bottom), (wasted, parts) = price, view.wasted
        prices[bottom] = prices.get(bottom, 0) + top
        if wasted:
            idles[bottom * parts] = idles.get(bottom * parts, 0) + top * wasted
    return Totals(
        nodes=sum(states.values()), live=states["live"], stale=states["stale"], lost=states["lost"],
        gpus=gpus, gpus_held=held, gpus_lost=lost, free=tuple(sorted(free.items())),
        usd_per_hour=exact_sum(prices), idle_usd_per_hour=exact_sum(idles), unpriced=unpriced,
        power_watts=power, utilization_ratio=busy / known if known else None, alerts=alerts + states["lost"],
    )  # fmt: skip


def exact_sum(parts: dict[int, int]) -> Fraction:
    """Of numerators by denominator."""
    return sum((Fraction(top, bottom) for bottom, top in parts.items()), Fraction(0))


def _calling(view: NodeView) -> int:
    """Alerts that are not paused, the cloud's notice among them."""
    return sum(one.paused_until is None for one in view.alerts.values()) + (view.notice is not None)
