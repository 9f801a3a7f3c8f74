"""Live state of all nodes: what was heard from each, how old it is, and what it costs.

Invariant: no I/O, no clock of its own, no Textual; `apply` returns the keys of nodes whose shown values may differ.
Times are `monotonic` seconds of the caller. A value that is not known is None and adds nothing to a sum;
sums say how many parts were unknown.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Literal

import msgspec

from agent import wire
from pricing.catalog import Catalog, Quote

NodeState = Literal["connecting", "live", "stale", "lost"]

STALE_SECONDS = 3.0
"""Older than this a node's values are dimmed (a sample comes each second)."""
LOST_SECONDS = 15.0
"""Older than this the node is lost; its last values stay, marked."""
HISTORY_POINTS = 180
"""Seconds of per-GPU utilisation kept for the plots."""


class GpuUse(msgspec.Struct, frozen=True):
    """How one GPU of a node is used right now: who holds it, and whether it stands idle."""

    gpu: wire.Gpu
    users: tuple[str, ...]
    """Users of its processes; `?` for one that cannot be resolved."""
    held: bool | None
    """None: the driver does not tell who holds it."""

    @property
    def wasted(self) -> bool:
        """Nobody can or does use it: unheld, or lost. Not known is not wasted."""
        return self.held is False or self.gpu.state == "lost"


def gpu_use(gpu: wire.Gpu) -> GpuUse:
    """Derives holders from the GPU's process list."""
    if gpu.processes is None:
        return GpuUse(gpu, (), None)
    users = sorted({process.user or "?" for process in gpu.processes})
    return GpuUse(gpu, tuple(users), bool(gpu.processes))


class NodeView:
    """One node as last heard of. Mutated only by `Fleet`."""

    __slots__ = (
        "name", "url", "tags", "info", "sample", "heard_at", "error", "connected", "alerts", "quote", "uses",
        "history", "version", "expects_gpus", "_idle",
    )  # fmt: skip

    def __init__(self, name: str, url: str, tags: Mapping[str, str]) -> None:
        self.name = name
        """The client's name for it: key of the fleet, unique."""
        self.url = url
        self.tags = dict(tags)
        self.info: wire.NodeInfo | None = None
        self.sample: wire.Sample | None = None
        self.heard_at: float | None = None
        self.error: str | None = None
        self.connected = False
        self.alerts: dict[str, wire.Alert] = {}
        self.quote: Quote | None = None
        self.uses: tuple[GpuUse, ...] = ()
        self.history: dict[str, deque[float | None]] = {}
        self.version = 0
        self.expects_gpus = False
        """The instance type has GPUs: when none is read, the whole node is wasted."""
        self._idle: Fraction | None = None

    def age_seconds(self, now: float) -> float | None:
        """Seconds since the newest sample arrived; None before the first."""
        return None if self.heard_at is None else max(0.0, now - self.heard_at)

    def state(self, now: float) -> NodeState:
        """`live`, `stale` or `lost` by the age of the newest sample; `connecting` before the first answer."""
        age = self.age_seconds(now)
        if age is None:
            return "lost" if self.error else "connecting"
        if age <= STALE_SECONDS:
            return "live"
        return "stale" if age <= LOST_SECONDS else "lost"

    @property
    def usd_per_hour(self) -> Fraction | None:
        """The node's price in USD per hour, exact; None when unknown or in another currency."""
        price = self.quote.price if self.quote else None
        if price is None or price.currency != "USD":
            return None
        return Fraction(price.amount)

    @property
    def idle_usd_per_hour(self) -> Fraction | None:
        """The part of the price that GPUs cost which nobody holds or which are lost; None when not known."""
        return self._idle

    @property
    def price_reason(self) -> str | None:
        """One sentence: why the price is not known."""
        if self.info is None:
            return "the node has not answered yet"
        if self.quote is None:
            return None
        if self.quote.price is not None and self.quote.price.currency != "USD":
            return f"its price is in {self.quote.price.currency} and no exchange rate is given"
        return self.quote.reason

    @property
    def gpus(self) -> tuple[wire.Gpu, ...]:
        return self.sample.gpus if self.sample else ()

    @property
    def users(self) -> tuple[str, ...]:
        """All users that hold a GPU of this node."""
        return tuple(sorted({user for use in self.uses for user in use.users}))

    @property
    def utilization_ratio(self) -> float | None:
        """Mean over the GPUs that tell; None if none does."""
        return mean(gpu.utilization_ratio for gpu in self.gpus)

    @property
    def memory_ratio(self) -> float | None:
        """Used over total memory of the GPUs that tell both."""
        known = [g for g in self.gpus if g.memory_used_bytes is not None and g.memory_total_bytes]
        total = sum(g.memory_total_bytes or 0 for g in known)
        return sum(g.memory_used_bytes or 0 for g in known) / total if total else None

    @property
    def power_watts(self) -> float | None:
        """Sum over the GPUs that tell; None if none does."""
        known = [g.power_watts for g in self.gpus if g.power_watts is not None]
        return sum(known) if known else None

    def refresh_money(self) -> None:
        """Recomputes what stands idle; called after each change of price or use."""
        price = self.usd_per_hour
        if price is None:
            self._idle = None
        elif not self.uses:
            self._idle = price if self.expects_gpus and self.sample else Fraction(0)
        else:
            self._idle = price * sum(use.wasted for use in self.uses) / len(self.uses)


def mean(values: Iterable[float | None]) -> float | None:
    """Mean of the known ones."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over some nodes. Money is exact and counts only nodes whose price is known."""

    nodes: int
    live: int
    stale: int
    lost: int
    gpus: int
    gpus_held: int
    gpus_lost: int
    usd_per_hour: Fraction
    idle_usd_per_hour: Fraction
    unpriced: int
    power_watts: float | None
    utilization_ratio: float | None
    alerts: int


class Fleet:
    """All nodes by name. Give it events; ask it for views and sums."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._nodes: dict[str, NodeView] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[NodeView]:
        return iter(self._nodes.values())

    def __contains__(self, name: object) -> bool:
        return name in self._nodes

    def __getitem__(self, name: str) -> NodeView:
        return self._nodes[name]

    def add(self, name: str, url: str, tags: Mapping[str, str] = {}) -> NodeView:
        """A node that is configured; nothing is known of it yet."""
        view = self._nodes[name] = NodeView(name, url, tags)
        return view

    def apply(self, name: str, event: wire.Event, now: float) -> set[str]:
        """Takes one event of a node's stream; returns the names of nodes that changed."""
        view = self._nodes[name]
        match event:
            case wire.NodeEvent(node=info):
                self._take_info(view, info)
            case wire.SampleEvent(sample=sample):
                self._take_sample(view, sample, now)
            case wire.AlertEvent(alert=alert):
                _take_alert(view, alert)
        view.version += 1
        return {name}

    def failed(self, name: str, error: str) -> set[str]:
        """The connection broke or could not be made; the last values stay."""
        view = self._nodes[name]
        changed = view.connected or view.error != error
        view.connected, view.error = False, error
        view.version += changed
        return {name} if changed else set()

    def _take_info(self, view: NodeView, info: wire.NodeInfo) -> None:
        view.info, view.connected, view.error = info, True, None
        view.alerts.clear()
        view.quote = quote_of(self._catalog, info)
        instance = self._catalog.instance(info.cloud, info.instance_type)
        view.expects_gpus = bool(instance and instance.gpu_count)
        view.refresh_money()

    def _take_sample(self, view: NodeView, sample: wire.Sample, now: float) -> None:
        view.sample, view.heard_at, view.connected, view.error = sample, now, True, None
        view.uses = tuple(gpu_use(gpu) for gpu in sample.gpus)
        for gpu in sample.gpus:
            points = view.history.get(gpu.uuid)
            if points is None:
                points = view.history[gpu.uuid] = deque(maxlen=HISTORY_POINTS)
            points.append(gpu.utilization_ratio)
        view.refresh_money()

    def totals(self, now: float, names: Iterable[str] | None = None) -> Totals:
        """Sums over all nodes, or over those named."""
        views = list(self) if names is None else [self._nodes[name] for name in names]
        states = [view.state(now) for view in views]
        uses = [use for view in views for use in view.uses]
        prices = [view.usd_per_hour for view in views]
        powers = [view.power_watts for view in views]
        known_powers = [power for power in powers if power is not None]
        return Totals(
            nodes=len(views),
            live=states.count("live"),
            stale=states.count("stale"),
            lost=states.count("lost"),
            gpus=len(uses),
            gpus_held=sum(use.held is True for use in uses),
            gpus_lost=sum(use.gpu.state == "lost" for use in uses),
            usd_per_hour=sum((p for p in prices if p is not None), Fraction(0)),
            idle_usd_per_hour=sum((v.idle_usd_per_hour or Fraction(0) for v in views), Fraction(0)),
            unpriced=sum(p is None for p in prices),
            power_watts=sum(known_powers) if known_powers else None,
            utilization_ratio=mean(use.gpu.utilization_ratio for use in uses),
            alerts=sum(len(view.alerts) for view in views) + states.count("lost"),
        )


def quote_of(catalog: Catalog, info: wire.NodeInfo) -> Quote:
    """The price of the node that `info` describes."""
    return catalog.quote(
        info.cloud,
        info.region,
        info.zone,
        info.instance_type,
        info.purchase,
        configured_usd_per_hour=info.usd_per_hour,
        on_premises=info.on_premises,
    )


def _take_alert(view: NodeView, alert: wire.Alert) -> None:
    if alert.ended_at is None:
        view.alerts[alert.key] = alert
    else:
        view.alerts.pop(alert.key, None)
