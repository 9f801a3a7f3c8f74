"""One GPU as lines: what it does, who holds it, and the last minute drawn.

Invariant: what the driver does not tell is `–`; a lost GPU says so in a word and keeps its name.
"""

from __future__ import annotations

from collections.abc import Callable

from tui import format as fmt
from tui.columns import gpu_state_text, power_text
from tui.fleet import GpuUse, NodeView
from tui.gpu_today import Today
from tui.ui.lines import BLANK, Line, fitted, joined, width
from tui.ui.widgets.plot import area, bar, halved

MINUTE_SECONDS = 60
PLOT_CELLS = MINUTE_SECONDS // 2
"""Two seconds to a cell."""
PLOT_TOP = 8 / 7
"""Full use leaves the uppermost of eight rows of dots free, so that the plots of two GPUs stay apart."""
WIDE_CELLS = 100
"""From here a minute of plot has its full width."""
NARROW_CELLS = 36
"""Below it there is no room for a bar."""
THROTTLE_CELLS = 26
FULL_CELLS = 170
"""From here links, energy and money of today stand beside each GPU."""
BESIDE_THROTTLE = 103
"""Cells before the last column; on narrower screens what is throttled says so in a line of its own."""
_SHORT_REASONS = {
    "sw_power_cap": "power cap", "hw_slowdown": "hw slowdown", "hw_power_brake_slowdown": "power brake",
    "sw_thermal_slowdown": "thermal (sw)", "hw_thermal_slowdown": "thermal (hw)", "sync_boost": "sync boost",
    "applications_clocks_setting": "clocks set", "display_clock_setting": "display",
}  # fmt: skip
REASON_WORDS = {
    "sw_power_cap": "sw power cap", "hw_slowdown": "hw slowdown", "hw_power_brake_slowdown": "hw power brake",
    "sw_thermal_slowdown": "sw thermal slowdown", "hw_thermal_slowdown": "hw thermal slowdown", "sync_boost": "sync boost",
    "applications_clocks_setting": "application clocks are set", "display_clock_setting": "display clocks are set",
}  # fmt: skip
"""In full, where there is room."""
Drawn = Callable[[GpuUse, int], list[str]]
"""A small plot of a GPU in so many cells, two rows high."""
_MODEL_WORDS = ("NVIDIA ", "Tesla ")


def short_model(model: str | None) -> str:
    """`H100 80GB HBM3` of `NVIDIA H100 80GB HBM3`."""
    text = fmt.clean(model or fmt.UNKNOWN)
    for word in _MODEL_WORDS:
        text = text.removeprefix(word)
    return text


def state_style(use: GpuUse, dim: bool = False) -> str:
    """Lost is red, idle is money: amber; the word says it too."""
    if use.gpu.state != "ok":
        return "lost"
    return "idle" if use.held is False else "dim" if dim else "text"


def holders_text(use: GpuUse) -> str:
    """Who holds it: `ada · vision · job 4711`, or `nobody`."""
    if use.held is None:
        return "holder not known"
    if not use.held:
        return "nobody"
    users = ", ".join(use.users)
    projects = ", ".join(sorted({p.project for p in (*(use.gpu.processes or ()), *use.gpu.allocations) if p.project}))
    return fmt.clean(" · ".join(part for part in (users, projects) if part))


def brief(view: NodeView, use: GpuUse, cells: int, dim: bool = False, *, drawn: Drawn | None = None) -> Line:
    """One line: index, state, bar, utilisation, memory, power, temperature, last minute, holders; as much as fits."""
    gpu, value = use.gpu, "dim" if dim else "text"
    if cells < NARROW_CELLS:
        return joined([
            ((f"{gpu.index:>3} ", "dim"), (fitted(gpu_state_text(use), 5), state_style(use, dim)), (f"{fmt.percent(gpu.utilization_ratio):>5}", value)),
            ((memory_text(use), value),), ((fmt.celsius(gpu.temperature_celsius), value),),
        ], " ", cells)  # fmt: skip
    filled, empty = bar(gpu.utilization_ratio, 16)
    head: Line = (
        (f"{gpu.index:>3} ", "dim"), (fitted(gpu_state_text(use), 5), state_style(use, dim)), (" ", value),
        (filled, "dim" if dim else "accent"), (empty, "rule"), (f"{fmt.percent(gpu.utilization_ratio):>5}", value),
    )  # fmt: skip
    parts = [
        head,
        ((fitted(memory_text(use), 11, right=True), value),),
        ((fitted(power_text(use), 8, right=True), value),),
        ((f"{fmt.celsius(gpu.temperature_celsius):>5}", value),),
        ((drawn(use, PLOT_CELLS)[-1] if drawn else area(history(view, use), PLOT_CELLS)[0], "dim" if dim else "accent"),),
        ((fitted(holders_text(use), min(28, cells)).rstrip(), "dim" if dim or not use.held else "text"),),
    ]
    if cells < 112:
        parts.pop(4)
    return joined(parts, "  ", cells)


def history(view: NodeView, use: GpuUse) -> list[float | None]:
    """Its utilisations of the last minute."""
    return view.past.values(use.gpu.uuid, MINUTE_SECONDS)


def memory_text(use: GpuUse) -> str:
    """`31.2/80.0G`."""
    used, total = fmt.size(use.gpu.memory_used_bytes), fmt.size(use.gpu.memory_total_bytes)
    if use.gpu.memory_used_bytes == 0:
        used = "0"
    elif used[-1:] == total[-1:]:
        used = used[:-1] or used
    return fmt.UNKNOWN if used == total == fmt.UNKNOWN else f"{used}/{total}"


def full(
    view: NodeView, use: GpuUse, cells: int, dim: bool = False, *, named: bool = False, drawn: Drawn | None = None,
    today: Today | None = None,
) -> list[Line]:
    """Two lines and a plot two rows high (the last minute, or what `drawn` draws); a third line where something is wrong.

    `named`: with its model.
    """
    value = "dim" if dim else "text"
    beside = BESIDE_THROTTLE + THROTTLE_CELLS + 16 * named if cells >= FULL_CELLS else cells
    columns = _columns(use, value, beside, named=named)
    if cells >= FULL_CELLS:
        columns[-1] = tuple(_padded(line, THROTTLE_CELLS) for line in columns[-1])  # type: ignore[assignment]
        columns += _wide_columns(view, use, value, today)
    first, second = zip(*columns, strict=True)
    upper, lower = drawn(use, PLOT_CELLS if cells >= WIDE_CELLS else PLOT_CELLS // 2) if drawn else _plot(view, use, cells)
    index: Line = ((f"{use.gpu.index:>3} ", "strong"), (fitted(gpu_state_text(use), 5), state_style(use, dim)))
    accent, ratio = "dim" if dim else "accent", f" {fmt.percent(use.gpu.utilization_ratio):>4}"
    return [
        joined([(*index, (f" {upper}", accent), (ratio, "dim" if dim else "strong")), *first], "  ", cells),
        joined([((" " * 10, "dim"), (lower, accent), ("     ", "dim")), *second], "  ", cells),
        *trouble(use, cells, named=named),
    ]


def _plot(view: NodeView, use: GpuUse, cells: int) -> list[str]:
    """A minute, in half the width where there is little room."""
    points = history(view, use)
    if cells < WIDE_CELLS:
        return area(halved(points), PLOT_CELLS // 2, 2, PLOT_TOP)
    return area(points, PLOT_CELLS, 2, PLOT_TOP)


def _columns(use: GpuUse, value: str, cells: int, *, named: bool) -> list[tuple[Line, Line]]:
    """What stands beside the plot, in two rows, the most wanted first."""
    gpu = use.gpu
    filled, empty = bar(_memory_ratio(use), 8)
    held = "text" if use.held and value == "text" else "dim"
    pairs: list[tuple[Line, Line]] = [
        (((filled, value), (empty, "rule"), (f" {fitted(memory_text(use), 11)}", value)), ((fitted(holders_text(use), 20), held),)),
        (((fitted(power_text(use), 9), value),), (("PCIe ", "dim"), (fitted(pcie_text(use), 4), value))),
        (((fitted(fmt.celsius(gpu.temperature_celsius), 7), value),),
         (("ECC ", "dim"), (fitted(ecc_text(use), 3), "lost" if gpu.ecc_uncorrected_total else value))),
        ((("SM  ", "dim"), (f"{megahertz(gpu.clock_sm_hertz):>8}", value)),
         (("MEM ", "dim"), (f"{megahertz(gpu.clock_memory_hertz):>8}", value))),
        throttle(use, value, cells - 16 * named),
    ]  # fmt: skip
    if named:
        pairs.insert(2, (((fitted(short_model(gpu.model), 14), "dim"),), ((" " * 14, "dim"),)))
    return pairs


def _padded(line: Line, cells: int) -> Line:
    return (*line, (" " * max(0, cells - width(line)), "dim"))


def _wide_columns(view: NodeView, use: GpuUse, value: str, today: Today | None) -> list[tuple[Line, Line]]:
    """Links, energy and money, where there is room for them."""
    links = view.links.of(use.gpu)
    received, sent = (links.pcie_receive, links.pcie_transmit) if links else (None, None)
    pairs: list[tuple[Line, Line]] = [
        ((("PCIe in  ", "dim"), (f"{fmt.rate(received):>7}", value)), (("     out ", "dim"), (f"{fmt.rate(sent):>7}", value))),
    ]
    if links is None and any(one.nvlinks for one in view.links.by_uuid.values()):
        pairs.append((((" " * 16, "dim"),), ((" " * 16, "dim"),)))
    elif links is not None and links.nvlinks:
        up = f"{links.nvlinks - len(links.nvlinks_down)}/{links.nvlinks}"
        state: Line = (("NVLink ", "dim"), (fitted(f"{up} up", 9), "idle" if links.nvlinks_down else value))
        both = None if links.nvlink_receive is None else links.nvlink_receive + (links.nvlink_transmit or 0)
        pairs.append((state, ((fitted(f"{fmt.rate(both)} both", 16), value),)))
    if today is not None:
        energy, cost, idle = today.amounts()
        pairs.append(((("today ", "dim"), (f"{cost:>9}", value)), (("idle  ", "dim"), (f"{idle:>9}", "idle" if today.idle else value))))
        pairs.append((((f"{energy:>10}", value),), ((" " * 10, "dim"),)))
    return pairs


def trouble(use: GpuUse, cells: int, *, named: bool) -> list[Line]:
    """What is wrong with it, and throttling where its column does not fit."""
    lines: list[Line] = []
    words = [fmt.clean(use.gpu.reason).rstrip(".")] if use.gpu.reason else []
    if use.gpu.xid_last is not None:
        words.append(f"XID {use.gpu.xid_last}")
    if words:
        lines.append(((fitted(f"    {'; '.join(words)}", cells).rstrip(), "lost"),))
    why = throttled_by(use)
    if why and cells - 16 * named < BESIDE_THROTTLE + 13:
        lines.append((("          throttled by ", "idle"), (why, "text")))
    return lines


def _memory_ratio(use: GpuUse) -> float | None:
    used, total = use.gpu.memory_used_bytes, use.gpu.memory_total_bytes
    return used / total if used is not None and total else None


def megahertz(hertz: int | None) -> str:
    """`1410 MHz`."""
    return fmt.UNKNOWN if hertz is None else f"{hertz / 1e6:.0f} MHz"


def pcie_text(use: GpuUse) -> str:
    """`4x16`: generation and width."""
    generation, lanes = use.gpu.pcie_generation, use.gpu.pcie_width
    return fmt.UNKNOWN if generation is None or lanes is None else f"{generation}x{lanes}"


def ecc_text(use: GpuUse) -> str:
    """`3+0`: corrected and uncorrected errors since the driver was loaded."""
    corrected, uncorrected = use.gpu.ecc_corrected_total, use.gpu.ecc_uncorrected_total
    if corrected is None and uncorrected is None:
        return fmt.UNKNOWN
    return "+".join(fmt.UNKNOWN if count is None else str(count) for count in (corrected, uncorrected))


def throttled_by(use: GpuUse) -> str:
    """Why it runs below its clocks, in short words. `gpu_idle` is no throttling: there is nothing to do."""
    reasons = use.gpu.throttle_reasons or ()
    return fmt.clean(", ".join(_SHORT_REASONS.get(each, each.replace("_", " ")) for each in reasons if each != "gpu_idle"))


def throttle(use: GpuUse, value: str, cells: int) -> tuple[Line, Line]:
    """The last column: whether it is throttled, and by what."""
    if use.gpu.throttle_reasons is None:
        return (("throttling", "dim"),), (("not known", "dim"),)
    if not (why := throttled_by(use)):
        return (("not throttled", "dim"),), BLANK
    return (("throttled by", "idle"),), ((fitted(why, max(13, cells - BESIDE_THROTTLE)).rstrip(), value),)
