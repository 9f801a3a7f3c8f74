"""All that is known of one GPU beside its history, as labelled lines, the most wanted first.

Invariant: what the driver does not tell is `–`, and where it says that the GPU has no such thing, that is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from agent import wire
from tui import format as fmt
from tui.columns import power_text
from tui.fleet import GpuUse, NodeView
from tui.gpu_links import Links
from tui.gpu_today import Today
from tui.ui.lines import Line, fitted, joined, wrapped
from tui.ui.panes.gpu import REASON_WORDS, holders_text, megahertz, memory_text
from tui.ui.panes.host import labelled, said
from tui.ui.widgets.plot import bar

BAR_CELLS = 10
NARROW_CELLS = 44
"""Below it labels have no room."""
NO_IDLE = "gpu_idle"


def facts(view: NodeView, use: GpuUse, today: Today | None, at: datetime, cells: int, *, dim: bool = False) -> list[Line]:
    """Now, clocks, links, energy and money."""
    if cells < NARROW_CELLS:
        return _narrow(use, cells, "dim" if dim else "text")
    inventory = inventory_of(view, use)
    lines = [
        *_now_lines(use, cells, "dim" if dim else "text"),
        _clocks_line(use, inventory, cells),
        _throttle_line(use, at, cells),
        _pcie_line(use, inventory, view.links.of(use.gpu), at, cells),
        _nvlink_line(use, view.links.of(use.gpu), at, cells),
        _today_line(view, use, today, at, cells),
    ]
    return lines


def _narrow(use: GpuUse, cells: int, value: str) -> list[Line]:
    """What can be said in a few cells."""
    gpu = use.gpu
    filled, empty = bar(gpu.utilization_ratio, max(0, min(BAR_CELLS, cells - 6)))
    return [
        ((f" {fmt.percent(gpu.utilization_ratio):>4} ", value), (filled, "accent"), (empty, "rule")),
        ((fitted(f" {memory_text(use)}", cells).rstrip(), value),),
        ((fitted(f" {power_text(use)}  {fmt.celsius(gpu.temperature_celsius)}", cells).rstrip(), value),),
        ((fitted(f" {holders_text(use)}", cells).rstrip(), value),),
    ]


def more_facts(view: NodeView, use: GpuUse, at: datetime, cells: int) -> list[Line]:
    """Health, modes and identity."""
    gpu, inventory = use.gpu, inventory_of(view, use)
    lines = [
        labelled("health", said("ECC corrected", _told(use, "ecc_corrected_total", _count(gpu.ecc_corrected_total))),
                 said("not corrected", _told(use, "ecc_uncorrected_total", _count(gpu.ecc_uncorrected_total)),
                      "lost" if gpu.ecc_uncorrected_total else "text"),
                 said("since the driver was loaded", ""), cells=cells),
        labelled("", *_xids(use, at), cells=cells),
        labelled("video", said("encoder", _told(use, "encoder_utilization_ratio", fmt.percent(gpu.encoder_utilization_ratio))),
                 said("decoder", _told(use, "decoder_utilization_ratio", fmt.percent(gpu.decoder_utilization_ratio))), cells=cells),
        labelled("mode", said("compute", _mode(inventory)), said("persistence", _on(inventory and inventory.persistence_enabled)),
                 said("display", _on(inventory and inventory.display_active)), said("MIG", _on(gpu.mig_enabled)), cells=cells),
    ]  # fmt: skip
    if inventory is not None:
        lines.append(
            labelled("is", said("", fmt.clean(gpu.uuid)), said("bus", fmt.clean(inventory.pci_bus_id or fmt.UNKNOWN)),
                     said("serial", fmt.clean(inventory.serial or fmt.UNKNOWN)),
                     said("compute capability", fmt.clean(inventory.compute_capability or fmt.UNKNOWN)),
                     said("NUMA", _count(inventory.numa_node)), cells=cells)
        )  # fmt: skip
    if gpu.memory_reserved_bytes is not None:
        lines.append(labelled("memory", said("kept by the driver", fmt.size(gpu.memory_reserved_bytes)), cells=cells))
    if gpu.unsupported:
        names = ", ".join(name.replace("_", " ") for name in gpu.unsupported)
        lines += [line for line in wrapped(f"The driver says that this GPU does not tell: {fmt.clean(names)}.", "dim", cells, "  ")]
    return lines


def mig_lines(use: GpuUse, cells: int) -> list[Line]:
    """Its MIG instances, each with who runs in it."""
    if use.gpu.mig_instances is None:
        return []
    lines: list[Line] = []
    for one in use.gpu.mig_instances:
        users = sorted({process.user or "?" for process in use.gpu.processes or () if process.mig_instance == one.uuid})
        lines.append(joined([
            ((fitted(f"  {fmt.clean(one.profile or 'instance')}", 14), "text"),),
            said("GI/CI", f"{one.gpu_instance}/{one.compute_instance}"), said("share", f"{float(one.share):.1%}"),
            said("", fmt.clean(", ".join(users) or "nobody"), "text" if users else "idle"), said("", fmt.clean(one.uuid), "dim"),
        ], "  ", cells))  # fmt: skip
    return lines or [(("  MIG is on and there is no instance: nobody can use this GPU", "idle"),)]


def holder_lines(use: GpuUse, cells: int) -> list[Line]:
    """Jobs that it was given to."""
    lines = []
    for one in use.gpu.allocations:
        parts = (one.user, one.project, f"job {one.job}")
        text = fmt.clean(" · ".join(part for part in parts if part))
        lines.append(joined([(("  given to ", "dim"), (text, "strong")), said("share", f"{float(one.share):.0%}")], "  ", cells))
    return lines


def inventory_of(view: NodeView, use: GpuUse) -> wire.GpuInventory | None:
    """What does not change of it."""
    return next((one for one in view.info.gpus if one.uuid == use.gpu.uuid), None) if view.info else None


def _now_lines(use: GpuUse, cells: int, value: str) -> list[Line]:
    gpu = use.gpu
    used = gpu.memory_used_bytes / gpu.memory_total_bytes if gpu.memory_used_bytes is not None and gpu.memory_total_bytes else None
    drawn = gpu.power_watts / gpu.power_limit_watts if gpu.power_watts is not None and gpu.power_limit_watts else None
    return [
        labelled("now", _gauge("util", gpu.utilization_ratio, _told(use, "utilization_ratio", fmt.percent(gpu.utilization_ratio)), value),
                 _gauge("memory", used, f"{_told(use, 'memory_used_bytes', memory_text(use))} {fmt.percent(used)}", value),
                 said("memory traffic", _told(use, "memory_utilization_ratio", fmt.percent(gpu.memory_utilization_ratio)), value),
                 cells=cells),
        labelled("", _gauge("power", drawn, _told(use, "power_watts", power_text(use)), value),
                 said("temperature", _told(use, "temperature_celsius", fmt.celsius(gpu.temperature_celsius)), value),
                 said("state", fmt.UNKNOWN if gpu.performance_state is None else f"P{gpu.performance_state}", value),
                 said("fan", _told(use, "fan_ratio", fmt.percent(gpu.fan_ratio)), value), cells=cells),
    ]  # fmt: skip


def _gauge(name: str, ratio: float | None, text: str, value: str) -> Line:
    filled, empty = bar(ratio, BAR_CELLS)
    return ((f"{name} ", "dim"), (filled, "accent"), (empty, "rule"), (f" {text}", value))


def _clocks_line(use: GpuUse, inventory: wire.GpuInventory | None, cells: int) -> Line:
    def clock(now: int | None, most: int | None, field: str) -> str:
        text = _told(use, field, megahertz(now))
        return f"{text.removesuffix(' MHz')} of {megahertz(most)}" if now is not None and most is not None else text

    sm, memory = (inventory.clock_sm_max_hertz, inventory.clock_memory_max_hertz) if inventory else (None, None)
    return labelled("clocks", said("SM", clock(use.gpu.clock_sm_hertz, sm, "clock_sm_hertz")),
                    said("memory", clock(use.gpu.clock_memory_hertz, memory, "clock_memory_hertz")), cells=cells)  # fmt: skip


def _throttle_line(use: GpuUse, at: datetime, cells: int) -> Line:
    reasons = use.gpu.throttle_reasons
    if reasons is None:
        return labelled("", said("throttling", _told(use, "throttle_reasons", fmt.UNKNOWN)), cells=cells)
    parts: list[Line] = []
    for reason in reasons:
        if reason == NO_IDLE:
            continue
        since = use.gpu.throttle_since.get(reason)
        age = f" for {fmt.age(max(0.0, (at - since).total_seconds()))}" if since else ""
        parts.append(((fmt.clean(REASON_WORDS.get(reason, reason.replace("_", " "))), "idle"), (age, "text")))
    if not parts:
        note = "not throttled: clocks are low because nothing runs" if NO_IDLE in reasons else "not throttled"
        return labelled("", said("", note, "dim"), cells=cells)
    return labelled("", (("throttled by", "idle"),), *parts, cells=cells)


def _pcie_line(use: GpuUse, inventory: wire.GpuInventory | None, links: Links | None, at: datetime, cells: int) -> Line:
    gpu = use.gpu
    now = f"gen {_count(gpu.pcie_generation)} x{_count(gpu.pcie_width)}"
    most = f"gen {_count(inventory.pcie_generation_max)} x{_count(inventory.pcie_width_max)}" if inventory else fmt.UNKNOWN
    less = inventory is not None and None not in (gpu.pcie_width, inventory.pcie_width_max) and gpu.pcie_width != inventory.pcie_width_max
    return labelled(
        "PCIe", ((now, "idle" if less else "text"), (f" of {most}", "dim")),
        *_throughput(use, "pcie_receive_bytes_per_second", links and links.pcie_receive, links and links.pcie_transmit),
        *_age(links, at), cells=cells,
    )  # fmt: skip


def _nvlink_line(use: GpuUse, links: Links | None, at: datetime, cells: int) -> Line:
    if links is None or links.nvlinks is None:
        return labelled("NVLink", said("", _told(use, "nvlinks", fmt.UNKNOWN)), cells=cells)
    if not links.nvlinks:
        return labelled("NVLink", said("", "has none", "dim"), cells=cells)
    up = links.nvlinks - len(links.nvlinks_down)
    state: Line = ((f"{up} of {links.nvlinks} up", "text"),)
    if links.nvlinks_down:
        down = ", ".join(map(str, links.nvlinks_down[:6])) + ("…" if len(links.nvlinks_down) > 6 else "")
        state = ((f"{up} of {links.nvlinks} up", "idle"), (f" (down: {down})", "text"))
    return labelled("NVLink", state, *_throughput(use, "nvlink_receive_bytes_per_second", links.nvlink_receive, links.nvlink_transmit),
                    *_age(links, at), cells=cells)  # fmt: skip


def _throughput(use: GpuUse, field: str, received: float | None, sent: float | None) -> list[Line]:
    if received is None and sent is None:
        return [said("in, out", _told(use, field, fmt.UNKNOWN))]
    return [said("in", fmt.rate(received)), said("out", fmt.rate(sent))]


def _age(links: Links | None, at: datetime) -> list[Line]:
    return [] if links is None else [((f"{fmt.age(max(0.0, (at - links.at).total_seconds()))} ago", "dim"),)]


def _today_line(view: NodeView, use: GpuUse, today: Today | None, at: datetime, cells: int) -> Line:
    part = view.usd_per_hour / len(view.uses) if view.usd_per_hour is not None and view.uses else None
    price = said("now", f"{fmt.usd(part)}/h", "idle" if use.wasted else "text")
    if today is None:
        return labelled("today", said("", "the ledger knows nothing of it yet", "dim"), price, cells=cells)
    return labelled("today", *today_parts(today, at), price, cells=cells)


def today_parts(today: Today, at: datetime) -> list[Line]:
    """Energy, cost, its idle part, and how old that is."""
    energy, cost, idle = today.amounts()
    return [said("", energy), said("", cost, "strong"), said("idle", idle, "idle" if today.idle else "text"),
            ((f"ledger of {today.age(at)} ago" if today.until else "no ledger", "dim"),)]  # fmt: skip


def _xids(use: GpuUse, at: datetime) -> Sequence[Line]:
    gpu = use.gpu
    if not gpu.xid_counts and gpu.xid_last is None:
        return [said("XID", _told(use, "xid_counts", "none since the agent started"))]
    counts = ", ".join(f"{code} ×{count}" for code, count in sorted(gpu.xid_counts.items())) or fmt.UNKNOWN
    last = fmt.UNKNOWN if gpu.xid_last_at is None else f"{gpu.xid_last}, {fmt.age(max(0.0, (at - gpu.xid_last_at).total_seconds()))} ago"
    return [said("XID", fmt.clean(counts), "lost"), said("last", last)]


def _told(use: GpuUse, field: str, text: str) -> str:
    """`–` with the reason, where the driver gave one."""
    if text != fmt.UNKNOWN:
        return text
    return f"{fmt.UNKNOWN} not supported" if field in use.gpu.unsupported else fmt.UNKNOWN


def _mode(inventory: wire.GpuInventory | None) -> str:
    return fmt.clean(inventory.compute_mode.replace("_", " ")) if inventory and inventory.compute_mode else fmt.UNKNOWN


def _on(value: bool | None) -> str:
    return fmt.UNKNOWN if value is None else "on" if value else "off"


def _count(value: int | None) -> str:
    return fmt.UNKNOWN if value is None else str(value)
