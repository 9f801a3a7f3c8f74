"""Live state of all nodes: what was heard from each, how old it is, and what it costs.

Invariant: no I/O, no clock of its own, no Textual; `apply` returns the keys of nodes whose shown values may differ.
Times are `monotonic` seconds of the caller. A value that is not known is None and adds nothing to a sum;
sums say how many parts were unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from fractions import Fraction
from typing import TYPE_CHECKING, Literal, Protocol

from agent import wire
from tui.fleet_jobs import JobCounts, JobView, NodeJobs, NoticeView, node_clock
from tui.fleet_totals import Totals as Totals
from tui.fleet_totals import totals_of
from tui.gpu_links import NodeLinks
from tui.gpu_use import GpuUse as GpuUse
from tui.gpu_use import Use
from tui.gpu_use import gpu_use as gpu_use
from tui.gpu_use import mean as mean
from tui.past import Past

if TYPE_CHECKING:
    from pricing.catalog import Catalog, Quote

NodeState = Literal["connecting", "live", "stale", "lost"]

STALE_SECONDS = 3.0
"""Older than this a node's values are dimmed (a sample comes each second)."""
LOST_SECONDS = 15.0  # the default of `silent_seconds`
"""Older than this the node is lost; its last values stay, marked."""


class NodeView:
    """One node as last heard of. Mutated only by `Fleet`."""

    __slots__ = (
        "name", "url", "tags", "info", "sample", "heard_at", "error", "connected", "alerts", "quote",
        "past", "links", "version", "expects_gpus", "silent_seconds", "jobs", "notice", "_use", "_uses", "_price", "price_ratio",
    )  # fmt: skip

    def __init__(self, name: str, url: str, tags: Mapping[str, str], silent_seconds: float = LOST_SECONDS) -> None:
        self.silent_seconds = silent_seconds
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
        self.past = Past()
        self.links = NodeLinks()
        self.jobs = NodeJobs(self)
        self.notice: NoticeView | None = None
        """What the cloud will do to it; None: nothing that is in force."""
        self.version = 0
        self.expects_gpus = False
        """The instance type has GPUs: when none is read, the whole node is wasted."""
        self._use: Use | None = None
        self._uses: tuple[GpuUse, ...] | None = None
        self._price: Fraction | None = None
        self.price_ratio: tuple[int, int] | None = None
        """`usd_per_hour` as numerator and denominator."""

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
        return "stale" if age <= self.silent_seconds else "lost"

    def heard_until(self, now: float) -> float:
        """`now`, but for a node that is lost the moment when it was last heard: its jobs and their cost stand still."""
        return self.heard_at if self.heard_at is not None and self.state(now) == "lost" else now

    def utc(self, now: float) -> datetime | None:
        """The time at the node, by its own clock; None before its first sample."""
        return node_clock(self.sample, self.heard_at, self.heard_until(now))

    @property
    def usd_per_hour(self) -> Fraction | None:
        """The node's price in USD per hour, exact; None when unknown or in another currency."""
        return self._price

    @property
    def idle_usd_per_hour(self) -> Fraction | None:
        """The part of the price that GPUs cost which nobody holds or which are lost; None when not known."""
        if self._price is None:
            return None
        wasted, gpus = self.wasted
        return self._price * wasted / gpus

    @property
    def wasted(self) -> tuple[int, int]:
        """Wasted parts of how many; a node with GPUs of which none can be read is wasted as a whole."""
        use = self.use
        return (use.wasted, use.gpus) if use.gpus else (int(self.expects_gpus and self.sample is not None), 1)

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
    def draining(self) -> bool:
        """It starts no new job, because somebody said so."""
        return self.info is not None and self.info.drain is not None

    @property
    def gpus(self) -> tuple[wire.Gpu, ...]:
        return self.sample.gpus if self.sample else ()

    @property
    def use(self) -> Use:
        """What its GPUs add up to."""
        if self._use is None:
            self._use = Use.of(self.gpus)
        return self._use

    @property
    def uses(self) -> tuple[GpuUse, ...]:
        """Its GPUs with their holders."""
        if self._uses is None:
            self._uses = tuple(map(gpu_use, self.gpus))
        return self._uses

    @property
    def users(self) -> tuple[str, ...]:
        """All users that hold a GPU of this node."""
        return tuple(sorted({user for use in self.uses for user in use.users}))

    @property
    def utilization_ratio(self) -> float | None:
        """Mean over the GPUs that tell; None if none does."""
        use = self.use
        return use.utilization_sum / use.utilization_known if use.utilization_known else None

    @property
    def memory_ratio(self) -> float | None:
        """Used over total memory of the GPUs that tell both."""
        use = self.use
        return use.memory_used_bytes / use.memory_total_bytes if use.memory_total_bytes else None

    @property
    def power_watts(self) -> float | None:
        """Sum over the GPUs that tell; None if none does."""
        return self.use.power_watts

    def take_quote(self, catalog: Catalog) -> None:
        """Looks its price up; called when the identity or the catalog changes."""
        assert self.info is not None
        self.quote = quote_of(catalog, self.info)
        instance = catalog.instance(self.info.cloud, self.info.instance_type)
        self.expects_gpus = bool(instance and instance.gpu_count)
        price = self.quote.price if self.quote else None
        self._price = Fraction(price.amount) if price is not None and price.currency == "USD" else None
        self.price_ratio = None if self._price is None else self._price.as_integer_ratio()


class Tap(Protocol):
    """Who listens to what a fleet is told, such as a recorder."""

    def heard(self, view: NodeView, event: wire.Event) -> None:
        """An event was applied."""

    def failed(self, view: NodeView) -> None:
        """The connection broke."""

    def seeded(self, view: NodeView) -> None:
        """A whole list of jobs came."""


class Fleet:
    """All nodes by name. Give it events; ask it for views and sums."""

    def __init__(self, catalog: Catalog | None = None, *, silent_seconds: float = LOST_SECONDS) -> None:
        self._catalog = catalog
        self._silent_seconds = silent_seconds
        self._nodes: dict[str, NodeView] = {}
        self.jobs_version = 0
        """Grows whenever a job comes, goes or changes; 0: no job was ever heard of."""
        self.tap: Tap | None = None
        """Listens beside: it is told after the fact."""

    @property
    def catalog(self) -> Catalog | None:
        """By which nodes are priced."""
        return self._catalog

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
        view = self._nodes[name] = NodeView(name, url, tags, self._silent_seconds)
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
            case wire.JobEvent(job=job):
                view.jobs.take(job, now)
                self.jobs_version += 1
            case wire.NoticeEvent(notice=notice):
                view.notice = NoticeView(notice) if notice.ended_at is None else None
        view.version += 1
        if self.tap is not None:
            self.tap.heard(view, event)
        return {name}

    def failed(self, name: str, error: str) -> set[str]:
        """The connection broke or could not be made; the last values stay."""
        view = self._nodes[name]
        changed = view.connected or view.error != error
        view.connected, view.error = False, error
        view.version += changed
        if changed and self.tap is not None:
            self.tap.failed(view)
        return {name} if changed else set()

    def set_catalog(self, catalog: Catalog) -> set[str]:
        """The prices have been read (they may come after the first samples); returns the names of nodes that have one now."""
        self._catalog = catalog
        named = [view for view in self if view.info]
        for view in named:
            view.take_quote(catalog)
            view.version += 1
        return {view.name for view in named}

    def seed_history(self, name: str, history: wire.History) -> set[str]:
        """What the agent remembers of its GPUs, where it is more than was heard here; returns the names that changed."""
        view = self._nodes[name]
        if not view.past.seed(history):
            return set()
        view.version += 1
        return {name}

    def seed_jobs(self, name: str, listed: wire.JobList, now: float) -> None:
        """What the agent lists, the jobs that ended before it was listened to among them."""
        view = self._nodes[name]
        view.jobs.seed(listed, now)
        view.version += 1
        self.jobs_version += 1
        if self.tap is not None:
            self.tap.seeded(view)

    def jobs(self) -> Iterator[JobView]:
        """All jobs that are known, node by node."""
        return (job for view in self for job in view.jobs)

    def job(self, name: str, ident: str) -> JobView | None:
        """A job of a node, while it is known."""
        view = self._nodes.get(name)
        return view.jobs.get(ident) if view else None

    def parts(self, view: JobView) -> list[JobView]:
        """Of a run over several nodes all that are known, else the job alone."""
        gang = view.job.gang
        return [view] if gang is None else [one for one in self.jobs() if one.job.gang == gang]

    def job_counts(self, names: Iterable[str] | None = None) -> JobCounts:
        """Over all nodes, or over those named."""
        views = list(self) if names is None else [self._nodes[name] for name in names]
        return JobCounts(
            running=sum(view.jobs.running for view in views),
            queued=sum(view.jobs.queued for view in views),
            notices=sum(view.notice is not None for view in views),
        )

    def _take_info(self, view: NodeView, info: wire.NodeInfo) -> None:
        if not view.connected:
            view.notice = None  # one that is still in force is told again
        view.info, view.connected, view.error = info, True, None
        view.alerts.clear()
        view.jobs.doubt()
        if self._catalog is not None:
            view.take_quote(self._catalog)

    def _take_sample(self, view: NodeView, sample: wire.Sample, now: float) -> None:
        view.sample, view.heard_at, view.connected, view.error = sample, now, True, None
        view._use = view._uses = None
        view.past.add(sample.gpus)
        view.links.take(sample)
        self.jobs_version += view.jobs.settle()

    def parted(self) -> Fleet:
        """Another fleet with these very nodes: what is applied there goes on, whatever this one shows meanwhile."""
        other = Fleet(self._catalog, silent_seconds=self._silent_seconds)
        other._nodes, other.jobs_version, other.tap = self._nodes, self.jobs_version, self.tap
        return other

    def show(self, other: Fleet) -> None:
        """Has the nodes of `other` from now on; every row is new to whoever remembers versions."""
        version = 1 + max((view.version for view in self), default=0)
        for view in other:
            view.version += version
            for job in view.jobs:
                job.version += version
        self._nodes, self._catalog = other._nodes, other._catalog or self._catalog
        self.jobs_version = max(self.jobs_version, other.jobs_version) + 1 if self.jobs_version or other.jobs_version else 0

    def totals(self, now: float, names: Iterable[str] | None = None) -> Totals:
        """Sums over all nodes, or over those named."""
        return totals_of(self if names is None else (self._nodes[name] for name in names), now)


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
