"""The machine around the GPUs, its identity, its price and what is wrong with it, as lines.

Invariant: a number that is not known is `–`, and a price that is not known says why.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from agent import wire
from tui import format as fmt
from tui.alerts import message_text, severity_text
from tui.columns import age_text, purchase_text
from tui.fleet import NodeView
from tui.query import all_tags
from tui.ui.lines import Line, fitted, joined, wrapped
from tui.ui.widgets.plot import bar

_LABEL_CELLS = 9


def labelled(label: str, *parts: Line, cells: int) -> Line:
    """`label` in its own column, then the parts that fit."""
    return ((fitted(f"  {label}", _LABEL_CELLS + 2), "dim"), *joined(parts, "   ", cells - _LABEL_CELLS - 2))


def said(name: str, value: str, style: str = "text") -> Line:
    """`name value`, the name dimmed."""
    return ((f"{name} ", "dim"), (value, style)) if name else ((value, style),)


def host_lines(host: wire.Host | None, cells: int) -> list[Line]:
    """CPU, memory, swap, network, disk, file systems."""
    if host is None:
        return [(("  no reading of the host", "dim"),)]
    loads = " ".join(fmt.UNKNOWN if v is None else f"{v:.1f}" for v in (host.load_1m, host.load_5m, host.load_15m))
    lines = [
        labelled("CPU", _gauge(host.cpu_utilization_ratio), said("", f"{host.cpu_count or fmt.UNKNOWN} CPUs"),
                 said("load", loads), cells=cells),
        labelled("memory", _gauge(_part(host.memory_used_bytes, host.memory_total_bytes)),
                 said("", f"{fmt.size(host.memory_used_bytes)}/{fmt.size(host.memory_total_bytes)}"),
                 said("swap", f"{fmt.size(host.swap_used_bytes)}/{fmt.size(host.swap_total_bytes)}"), cells=cells),
        labelled("network", said("in", fmt.rate(host.network_receive_bytes_per_second)),
                 said("out", fmt.rate(host.network_transmit_bytes_per_second)),
                 said("disk read", fmt.rate(host.disk_read_bytes_per_second)),
                 said("write", fmt.rate(host.disk_write_bytes_per_second)), cells=cells),
    ]  # fmt: skip
    return [*lines, *(_filesystem(each, cells) for each in host.filesystems)]


def _filesystem(each: wire.Filesystem, cells: int) -> Line:
    ratio = _part(each.used_bytes, each.used_bytes + each.available_bytes)
    return labelled(
        "disk", _gauge(ratio), said("", f"{fmt.size(each.available_bytes)} free of {fmt.size(each.total_bytes)}"),
        said("on", fmt.clean(each.mount)), cells=cells,
    )  # fmt: skip


def _gauge(ratio: float | None) -> Line:
    filled, empty = bar(ratio, 16)
    return ((filled, "accent"), (empty, "rule"), (f"{fmt.percent(ratio):>5}", "text"))


def _part(used: int | None, total: int | None) -> float | None:
    return used / total if used is not None and total else None


def identity_lines(view: NodeView, now: float, cells: int) -> list[Line]:
    """What it is, where, how it was bought, for how much and according to whom."""
    info = view.info
    lines = [*_price_lines(view, cells)]
    if info is None:
        return [*lines, labelled("address", said("", fmt.clean(view.url)), cells=cells)]
    place = " ".join(part for part in (info.cloud, info.region, info.zone) if part) or fmt.UNKNOWN
    system = " · ".join(part for part in (info.os, info.kernel, info.cpu_model) if part)
    tags = " ".join(f"{key}={value}" for key, value in sorted(all_tags(view).items()))
    lines.append(
        labelled("is", said("", fmt.clean(info.instance_type or "instance type not known")),
                 said("", fmt.clean(place)), said("", purchase_text(info.purchase)), cells=cells)
    )  # fmt: skip
    if system:
        lines.append(labelled("system", said("", fmt.clean(system)), cells=cells))
    lines.append(
        labelled("agent", said("", fmt.clean(f"{info.agent_version or fmt.UNKNOWN}{' (simulated)' if info.simulated else ''}")),
                 said("at", fmt.clean(view.url)), said("heard", age_text(view, now)), cells=cells)
    )  # fmt: skip
    return [*lines, labelled("tags", said("", fmt.clean(tags)), cells=cells)] if tags else lines


def _price_lines(view: NodeView, cells: int) -> list[Line]:
    if view.usd_per_hour is None:
        why = view.price_reason or "the prices are still being read"
        return [labelled("price", said("", "not known"), cells=cells), *wrapped(fmt.clean(why), "dim", cells, " " * 11)]
    quote = view.quote
    assert quote is not None
    idle = view.idle_usd_per_hour
    since = f"{quote.source}, {quote.as_of}" if quote.as_of else quote.source
    mark = "~" if quote.estimated else ""
    return [
        labelled("price", said("", f"{mark}{fmt.usd(view.usd_per_hour)}/h", "strong"),
                 said("idle", f"{fmt.usd(idle)}/h", "idle" if idle else "text"), said("from", fmt.clean(since)), cells=cells)
    ]  # fmt: skip


def alert_lines(alerts: list[wire.Alert], at: datetime, cells: int) -> list[Line]:
    """Each alert: how long, what, and its money."""
    lines: list[Line] = []
    for alert in alerts:
        style = "dim" if alert.paused_until else "lost" if alert.severity == "critical" else "idle"
        age = fmt.age(max(0.0, (at - alert.since).total_seconds()))
        money = f"   {fmt.usd(Decimal(alert.usd_per_hour))}/h" if alert.usd_per_hour else ""
        lines.append(((fitted(f"  {severity_text(alert)}", 11), style), (f"{age:>4}  ", "dim"),
                      (fitted(fmt.clean(message_text(alert, at)) + money, max(8, cells - 17)).rstrip(), "text")))  # fmt: skip
    return lines


def sensor_lines(view: NodeView, cells: int) -> list[Line]:
    """Sources of readings that failed, and why there are no GPUs."""
    sample, lines = view.sample, []
    if view.error:
        lines += wrapped(fmt.clean(view.error), "lost", cells, "  ")
    reason = (sample.gpu_reason if sample else None) or (view.info.gpu_reason if view.info else None)
    if reason:
        lines += wrapped(fmt.clean(reason), "idle", cells, "  ")
    for sensor in sample.sensors if sample else ():
        if not sensor.ok:
            lines += wrapped(f"sensor {fmt.clean(sensor.name)}: {fmt.clean(sensor.error or 'failed')}", "idle", cells, "  ")
    return lines
