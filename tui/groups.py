"""Nodes in groups: by cloud, region, instance type, project, user, state, or any of their tags.

Invariant: each node is in exactly one group, so that what groups cost adds up to what their nodes cost. A node that several
people or projects hold belongs to the one with most of its GPUs (of equals the first by name); one that nobody holds to
`nobody`, and one of which that is not known to `–`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from agent import wire
from tui import format as fmt
from tui.fleet import Fleet, NodeView, Totals
from tui.query import all_tags

TAG = "tag:"
FIXED = ("cloud", "region", "type", "project", "user", "state")
NOBODY = "nobody"
NO_PROJECT = "(no project)"
_KEY = "\x1f"
"""No name of a node begins with it."""
STATES = ("lost", "stale", "connecting", "draining", "live")


class Group(NamedTuple):
    """`name` None: what would name it is not known of these nodes."""

    by: str
    name: str | None
    views: tuple[NodeView, ...]
    totals: Totals
    users: tuple[str, ...] | None = None
    """Who holds GPUs of it, whoever holds most first; None: not counted yet."""

    @property
    def key(self) -> str:
        return key_of(self.by, self.name)

    @property
    def title(self) -> str:
        return fmt.UNKNOWN if self.name is None else fmt.clean(self.name)

    @property
    def states(self) -> list[tuple[str, int]]:
        """How many of its nodes are in which state: `("lost", 1), ("live", 11)`; what is wrong first."""
        totals = self.totals
        draining = sum(view.draining for view in self.views)
        waiting = totals.nodes - totals.live - totals.stale - totals.lost
        counts = (("lost", totals.lost), ("stale", totals.stale), ("draining", draining), ("connecting", waiting))
        return [(word, count) for word, count in (*counts, ("live", totals.live)) if count]

    @property
    def memory_ratio(self) -> float | None:
        """Used over total memory of the GPUs that tell both."""
        total = sum(view.use.memory_total_bytes for view in self.views)
        return sum(view.use.memory_used_bytes for view in self.views) / total if total else None

    @property
    def jobs(self) -> tuple[int, int]:
        """Running and queued ones."""
        return sum(view.jobs.running for view in self.views), sum(view.jobs.queued for view in self.views)


def key_of(by: str, name: str | None) -> str:
    """The key of its row."""
    return f"{_KEY}{by}{_KEY}{'' if name is None else _KEY + name}"


def is_group(key: str | None) -> bool:
    """Whether the row of that key is a group's."""
    return key is not None and key.startswith(_KEY)


def groupings(fleet: Fleet) -> tuple[str, ...]:
    """By what the nodes can be grouped: `cloud`, ..., and `tag:team` for each tag that one of them has."""
    tags = {tag for view in fleet for tag in all_tags(view)}
    return (*FIXED, *(f"{TAG}{tag}" for tag in sorted(tags)))


def namer(by: str, now: float) -> Callable[[NodeView], str | None]:
    """What names the group of a node."""
    if by.startswith(TAG):
        tag = by.removeprefix(TAG)
        return lambda view: all_tags(view).get(tag)
    match by:
        case "state":
            return lambda view: "draining" if view.draining and view.state(now) == "live" else view.state(now)
        case "user":
            return lambda view: _holder(view, _USER, "?")
        case "project":
            return lambda view: _holder(view, _PROJECT, NO_PROJECT)
    field = {"type": "instance_type"}.get(by, by)
    return lambda view: (getattr(view.info, field) or None) if view.info else None


_USER, _PROJECT = attrgetter("user"), attrgetter("project")


def _holder(view: NodeView, of: Callable[[wire.Process | wire.GpuAllocation], str | None], nameless: str) -> str | None:
    """Who has most GPUs of a node. Most GPUs have one process: no sets are made for those, as it runs for every node of a fleet."""
    counts: dict[str, int] = {}
    told = view.sample is not None
    for gpu in view.gpus:
        processes, given = gpu.processes, gpu.allocations
        if not processes and not given:
            told &= processes is not None
        elif processes and not given and len(processes) == 1:
            name = of(processes[0]) or nameless
            counts[name] = counts.get(name, 0) + 1
        else:
            holders = (*(processes or ()), *given)
            for name in {name for one in holders if (name := of(one))} or {nameless}:
                counts[name] = counts.get(name, 0) + 1
    if counts:
        return min(counts, key=lambda name: (-counts[name], name))
    return NOBODY if told else None


def users_of(views: Iterable[NodeView]) -> tuple[str, ...]:
    """Who holds GPUs of these nodes, whoever holds most first."""
    held = Counter(user for view in views for gpu in view.gpus for user in _users(gpu))
    return tuple(sorted(held, key=lambda user: (-held[user], user)))


def _users(gpu: wire.Gpu) -> set[str]:
    return {one.user or "?" for one in (*(gpu.processes or ()), *gpu.allocations)}


def split(views: Iterable[NodeView], by: str, now: float) -> dict[str | None, list[NodeView]]:
    """Nodes by the name of their group, in the order in which they come."""
    name_of, parts = namer(by, now), dict[str | None, list[NodeView]]()
    for view in views:
        parts.setdefault(name_of(view), []).append(view)
    return parts


def _state_value(group: Group) -> Any:
    totals = group.totals
    return 0 if totals.lost else 1 if totals.stale else 2 if totals.live < totals.nodes else 3


_VALUES: dict[str, Callable[[Group], Any]] = {
    "state": _state_value,
    "gpus": lambda group: group.totals.gpus or None,
    "jobs": lambda group: group.jobs,
    "utilization": lambda group: group.totals.utilization_ratio,
    "memory": lambda group: group.memory_ratio,
    "power": lambda group: group.totals.power_watts,
    "usd_per_hour": lambda group: None if group.totals.cost_unknown else group.totals.usd_per_hour,
    "idle_usd_per_hour": lambda group: None if group.totals.cost_unknown else group.totals.idle_usd_per_hour,
}


def value(group: Group, column: str) -> Any:
    """What a group is sorted by where its nodes are sorted by that column: by its name where nothing adds up."""
    if column == "state" and group.by == "state" and group.name in STATES:
        return STATES.index(group.name)
    return _VALUES[column](group) if column in _VALUES else group.name


def gpus_text(totals: Totals, cells: int) -> str:
    """`27/40 ✗1`: held, all, lost; what does not fit is left out or rounded, never cut."""
    if not totals.gpus:
        return fmt.UNKNOWN
    plain = f"{totals.gpus_held}/{totals.gpus}"
    rounded = "/".join(str(count) if count < 1000 else f"{count / 1000:.1f}k" for count in (totals.gpus_held, totals.gpus))
    lost = [f"{plain} ✗{totals.gpus_lost}"] if totals.gpus_lost else []
    return next((text for text in (*lost, plain) if len(text) <= cells), rounded)


def text(group: Group, column: str, cells: int) -> str:
    """What stands in a column of the group's row."""
    totals = group.totals
    match column:
        case "gpus":
            return gpus_text(totals, cells)
        case "utilization":
            return fmt.percent(totals.utilization_ratio)
        case "memory":
            return fmt.percent(group.memory_ratio)
        case "power":
            return fmt.watts(totals.power_watts)
        case "jobs":
            running, queued = group.jobs
            return f"{running}+{queued}" if queued else str(running)
        case "users":
            return fmt.clean(",".join(group.users or ())) or fmt.UNKNOWN
        case "usd_per_hour":
            return money(totals, totals.usd_per_hour, cells)
        case "idle_usd_per_hour":
            return money(totals, totals.idle_usd_per_hour, cells)
    return ""


def money(totals: Totals, amount: Any, cells: int = 99) -> str:
    """`$32.77`; `~$32.77` where some of the nodes have no price, `–` where none has one. Rounded to fit, never cut."""
    return fmt.UNKNOWN if totals.cost_unknown else fmt.usd_in(amount, cells, "~" * bool(totals.unpriced))


def free_text(free: Sequence[tuple[str, int]]) -> str:
    """`5 A100 · 12 T4`."""
    return " · ".join(f"{count} {fmt.clean(family)}" for family, count in free)
