"""A plan as text: the table, what the best option's time and money are made of, and what was assumed.

Invariant: every line fits into the width given; a price that is not known is `–` and said why; outside text is cleaned.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

from pricing.instances import name_key
from pricing.offers import PURCHASES
from pricing.planner import Option, Plan, late
from pricing.planner_spot import WAIT_SECONDS
from tui import format as fmt

TITLES = ("HARDWARE", "GPUS", "WHERE", "BUY", "DATA", "TIME", "", "MONEY")
ALIGN = ("left", "left", "left", "left", "left", "right", "left", "right")
LIMITS = (22, 9, 15, 6, 7, 5, 1, 8)
"""Cells of each column: with a space between them 80."""
OLD_DAYS = 60
MARKS = {"measured": "m", "scaled": "s", "peak": "p"}
DATA = {"local_nvme": "nvme", "attached_ssd": "ssd", "block": "disk", "shared": "shared", "object": "object"}
BUY = {
    "on_demand": "demand", "spot": "spot", "reserved_1y": "1y", "reserved_3y": "3y", "savings_plan_1y": "plan1y",
    "savings_plan_3y": "plan3y", "capacity_block": "block",
}  # fmt: skip
KINDS = {
    "limits": "outside the limits", "gpu": "no GPU that can run it", "precision": "lack the precision", "memory": "too little memory",
    "speed": "speed not known", "storage": "no room for the data", "batch": "batch too small", "nodes": "no fitting number of nodes",
    "offers": "not offered",
}  # fmt: skip


def duration(seconds: float) -> str:
    """`45s`, `12m`, `2.3h`, `5.1d`."""
    if seconds < 90:
        return f"{seconds:.0f}s"
    if seconds < 5400:
        return f"{seconds / 60:.0f}m"
    if seconds < 100 * 3600:
        return f"{seconds / 3600:.1f}".removesuffix(".0") + "h"
    return f"{seconds / 86_400:.1f}".removesuffix(".0") + "d" if seconds < 1000 * 86_400 else f"{seconds / 86_400:.0f}d"


def amount(option: Option, width: int = 8) -> str:
    """`$1,234.50`; without cents where it is long; `–` (or its own currency) where dollars are not known."""
    usd = option.usd
    if usd is not None:
        text = fmt.usd(usd)
        return text if len(text) <= width else fmt.usd(usd, 0)
    cost = option.cost
    if cost.native is not None and cost.currency not in (None, "USD"):
        return f"{cost.currency} {float(cost.native):,.0f}"
    return fmt.UNKNOWN


def cells(option: Option) -> tuple[str, ...]:
    """One row of the table."""
    one = option.candidate
    name = fmt.clean(_short(one.shape.cloud, one.shape.instance_type))
    return (
        name if one.nodes == 1 else f"{one.nodes} x {name}",
        f"{one.gpus} {one.gpu.model}",
        f"{option.rate.cloud} {fmt.clean(option.rate.region)}",
        BUY.get(option.rate.purchase, option.rate.purchase),
        _data(option),
        duration(option.seconds),
        MARKS[one.speed.how],
        amount(option),
    )


def _short(cloud: str, name: str) -> str:
    """Without the prefix that people leave out."""
    return name[len(name) - len(name_key(cloud, name)) :]


def _data(option: Option) -> str:
    if option.storage is None:
        return fmt.UNKNOWN
    fed = option.fed or 0.0
    return DATA[option.storage.tier] + ("" if fed >= 1 else "!")


def head(plan: Plan) -> list[str]:
    """What is planned."""
    work = plan.workload
    flops = work.model.flops_per_sample
    each = "" if flops is None else f" of {_si(float(flops))}FLOP"
    batch = f", global batch {work.global_batch:,}" if work.global_batch else ""
    limit = work.run.deadline_seconds
    deadline = "" if limit is None else f", deadline {duration(float(limit))}"
    budget = work.limits.budget_usd
    money = "" if budget is None else f", budget {fmt.usd(budget)}"
    lines = [
        f"{fmt.clean(work.name)}: {_many(float(work.samples))} samples{each} in {work.model.precision}{batch}{deadline}{money}"
    ]
    return lines + ([fmt.clean(work.note)] if work.note else [])


def _si(value: float) -> str:
    """`24.6 G`: a number with its prefix."""
    for limit, name in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.4g} {name}"
    return f"{value:.4g} "


def _many(value: float) -> str:
    """`405 million`."""
    for limit, name in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if value >= limit:
            return f"{value / limit:.4g} {name}"
    return f"{value:,.0f}"


def in_mind(plan: Plan) -> str:
    """`4 x A100, 500 GB of local NVMe`."""
    wanted = plan.workload.reference
    if wanted is None:
        return ""
    disk = "" if wanted.local_nvme_bytes is None else f", {float(wanted.local_nvme_bytes) / 1e9:,.0f} GB of local NVMe"
    return f"{wanted.gpus} x {wanted.gpu_model}{disk}"


def details(plan: Plan, option: Option, title: str, *, memory: bool = True, others: bool = True) -> list[str]:
    """What an option's time and money are made of; with `others`, how else its data may lie and how else it may be bought."""
    one, rate = option.candidate, option.rate
    place = f"{rate.cloud} {rate.zone or rate.region}"
    chance = option.spot.late_chance if option.spot else None
    risk = "" if chance is None else f", late with a chance of {f'{chance:.1%}' if chance >= 0.0005 else 'less than 0.1%'}"
    lines = [
        f"{title}: {_hardware(option)} in {place}, {rate.purchase}: {amount(option, 20)}, {duration(option.seconds)}{risk}"
    ]
    lines += [f"  time    {_time(option)}", f"  speed   {_speed(option)}"]
    if memory:
        lines.append(f"  memory  {_memory(option)}")
    if option.storage is not None:
        lines.append(f"  data    {_storage(option)}")
    if option.spot is not None:
        lines.append(f"  spot    interruptions an hour of a node: {_hazard(option)}")
    lines.append(f"  money   {_money(option)}")
    if others:
        lines += [
            f"  {title:<8}{text}"
            for title, text in (("stored", _tiers(plan, option)), ("bought", _purchases(plan, option)))
            if text
        ]
    lines += [f"  note    {fmt.clean(note)}" for note in one.notes]
    why = late(plan.workload, option)
    return lines + ([f"  but     it {why}"] if why else [])


def _hardware(option: Option) -> str:
    one = option.candidate
    nodes = "" if one.nodes == 1 else f"{one.nodes} x "
    return f"{nodes}{fmt.clean(one.shape.instance_type)} ({one.gpus} x {one.gpu.model})"


def _time(option: Option) -> str:
    timing, step = option.timing, option.candidate.step
    parts = [f"start {duration(timing.startup)}"]
    if timing.copy:
        parts.append(f"copy from the other cloud {duration(timing.copy)}")
    if timing.stage:
        parts.append(f"copy to the nodes {duration(timing.stage)}")
    pace = {"compute": "computing", "exchange": "the exchange of gradients", "reading": "reading", "cpu": "the CPUs' preparing"}
    work = f"{timing.steps:,} steps {duration(timing.work)} ({_ms(timing.later_step)} each, set by {pace[timing.limit]}"
    work += f"; compute {_ms(step.compute_seconds)}"
    if step.exchange is not None:
        work += f", exchange {_ms(step.exchange.seconds)} over {step.exchange.bottleneck}"
        work += f", {_ms(step.exchange.exposed_seconds)} of it not hidden"
    parts.append(work + ")")
    if timing.checkpoints:
        several = "" if timing.checkpoints == 1 else "s"
        parts.append(f"{timing.checkpoints} checkpoint{several} {duration(timing.checkpoint * timing.checkpoints)}")
    if option.spot is not None:
        parts.append(f"{option.spot.interruptions:.1f} interruptions {duration(option.seconds - timing.total)}")
    return " + ".join(parts)


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def _speed(option: Option) -> str:
    speed = option.candidate.speed
    share = "" if speed.efficiency is None else f" ({speed.efficiency:.0%} of the peak)"
    return f"{speed.samples_per_second:,.4g} samples/s a GPU{share}; {speed.how}: {fmt.clean(speed.source)}"


def _memory(option: Option) -> str:
    memory = option.candidate.memory
    if memory.stated_bytes is not None:
        return f"{memory.stated_bytes / 1e9:.1f} GB stated, room {memory.room_bytes / 1e9:.1f} GB"
    step = option.candidate.step
    micro = f", {step.micro_batches} micro-batches" if step.micro_batches > 1 else ""
    return f"{memory.fixed_bytes / 1e9:.2f} GB + activations, room {memory.room_bytes / 1e9:.1f} GB{micro}; {memory.formula}"


def _storage(option: Option) -> str:
    storage, need = option.storage, option.need_bytes_per_second
    assert storage is not None  # the caller looked
    size = f", {storage.volumes} x {storage.volume_gb:,.0f} GB" if storage.volume_gb else ""
    fed = option.fed or 0.0
    verdict = "the GPUs never wait" if fed >= 1 else f"the GPUs wait: it gives {fed:.0%} of it"
    return (
        f"{storage.name}{size}: {need / 1e6:,.0f} MB/s wanted; "
        f"it gives {storage.first_bytes_per_second / 1e6:,.0f} MB/s in the first epoch, "
        f"{storage.later_bytes_per_second / 1e6:,.0f} later: {verdict}"
    )


def _money(option: Option) -> str:
    rate, cost = option.rate, option.cost
    price = fmt.UNKNOWN if rate.per_hour is None else f"{_native(rate.per_hour, rate.currency)}/h"
    hours = f"{option.candidate.nodes} x {option.billed_seconds / 3600:.2f} h x {price}"
    parts = [
        f"nodes {_part(cost.compute)} ({hours}{', ' + rate.changed if rate.changed else ''}; as of {rate.as_of}, {fmt.clean(rate.source)})"
    ]
    parts.append(f"storage {_part(cost.storage)}")
    if cost.egress is None or cost.egress:
        parts.append(f"data that leaves its place {_part(cost.egress)}")
    return " + ".join(parts) + "".join(f"; {fmt.clean(why)}" for why in cost.unknown)


def _same(plan: Plan, option: Option) -> list[Option]:
    """Every option of the same hardware, cheapest first."""
    one = option.candidate
    return [other for other in plan.options if other.candidate.shape == one.shape and other.candidate.nodes == one.nodes]


def _tiers(plan: Plan, option: Option) -> str:
    """The same hardware, bought alike in the same place, by where the data lies."""
    found: dict[str, str] = {}
    for other in _same(plan, option):
        storage = other.storage
        if storage is None or (other.rate.purchase, other.rate.region, other.rate.zone) != (
            option.rate.purchase,
            option.rate.region,
            option.rate.zone,
        ):
            continue
        size = f" {storage.volume_gb:,.0f} GB" if storage.volume_gb else ""
        fed = other.fed or 0.0
        verdict = "fed" if fed >= 1 else f"fed {fed:.0%}"
        found.setdefault(f"{storage.name}{size} {verdict}", f"{amount(other, 20)} {duration(other.seconds)}")
    return "; ".join(f"{name} {figures}" for name, figures in found.items())


def _purchases(plan: Plan, option: Option) -> str:
    """The same hardware with the data alike, by how it is bought; what has no price is said."""
    tier = option.storage.tier if option.storage else None
    found: dict[str, str] = {}
    for other in _same(plan, option):
        if (other.storage.tier if other.storage else None) == tier:
            binding = " (share of a commitment)" if other.binding else ""
            found.setdefault(
                other.rate.purchase, f"{amount(other, 20)} {duration(other.seconds)} in {fmt.clean(other.rate.region)}{binding}"
            )
    allowed = plan.workload.limits.purchases or PURCHASES
    lacking = [
        name
        for name in PURCHASES
        if name in allowed and name not in found and (name != "spot" or plan.workload.run.interruptible)
    ]
    words = [f"{name} {figures}" for name, figures in found.items()]
    return "; ".join([*words, *([f"{', '.join(lacking)}: no price known"] if lacking else [])])


def _part(value: Fraction | None) -> str:
    return fmt.UNKNOWN if value is None else fmt.usd(value)


def _native(value: Fraction, currency: str | None) -> str:
    return fmt.usd(value, 4) if currency in (None, "USD") else f"{currency} {float(value):,.4f}"


def assumptions(plan: Plan, shown: Iterable[Option]) -> list[str]:
    """What the shown figures rest on, apart from what was told."""
    work, shown = plan.workload, list(shown)
    marks = sorted({one.candidate.speed.how for one in shown}, key=list(MARKS).index)
    words = {
        "measured": "m measured on this GPU",
        "scaled": "s scaled from a measured GPU",
        "peak": "p peak figures x efficiency",
    }
    found = ["speed: " + ", ".join(words[one] for one in marks)]
    found += sorted({f"peak: {one.candidate.speed.source}" for one in shown if one.candidate.speed.how == "peak"})
    assumed = work.assumed
    found.append(
        f"exchange: ring all-reduce, {float(assumed.link_efficiency):.0%} of NVLink and "
        f"{float(assumed.network_efficiency):.0%} of the network count, "
        f"hidden behind {float(assumed.overlap):.0%} of {'the compute' if work.model.sharding == 'full' else 'the backward pass of the last micro-batch'}"
    )
    found += _spot(plan, [one for one in shown if one.spot])
    if work.data is not None:
        found.append(
            "data: read beside computing; half of a node's memory caches it; "
            "storage prices of one region a cloud; requests not counted"
        )
    dates = sorted({one.rate.as_of for one in shown})
    if dates:
        days = (plan.now.date() - dates[0]).days
        span = f" to {dates[-1]}" if dates[-1] != dates[0] else ""
        old = f", the oldest {days} days ago: `rackrate prices refresh` brings newer ones" if days > OLD_DAYS else ""
        found.append(f"prices: as of {dates[0]}{span}{old}; quota and free capacity are not known")
    return found


def _spot(plan: Plan, shown: Sequence[Option]) -> list[str]:
    """How often the spot nodes of the table are taken away, and where that comes from; what else an interruption costs."""
    if not shown:
        return []
    run = plan.workload.run
    wait = WAIT_SECONDS if run.spot_wait_seconds is None else float(run.spot_wait_seconds)
    sources: dict[str, dict[str, None]] = {}
    for one in shown:
        sources.setdefault(_hazard(one), {})[f"{_short(one.rate.cloud, one.candidate.shape.instance_type)} in {one.rate.region}"] = None
    several = len(sources) > 1
    return [
        *(f"spot: interruptions an hour of a node: {what}{': ' + ', '.join(places) if several else ''}" for what, places in sources.items()),
        f"spot: restart {duration(float(run.changeover_seconds))}, wait {duration(wait)} (observed where it is); "
        "work since the last checkpoint is lost",
    ]


def _hazard(option: Option) -> str:
    """`0.3 (assumed)`."""
    assert option.spot is not None  # the caller looked
    rate, source = option.spot.hazard_per_hour / option.candidate.nodes, fmt.clean(option.spot.source) or "assumed"
    return f"{rate:.2g} ({source.removeprefix(f'{rate:g} interruptions an hour, ')})"


def left_out(plan: Plan) -> list[str]:
    """What is not in the table, and why."""
    counts = plan.counted()
    found = []
    if counts:
        parts = ", ".join(f"{number} {KINDS[kind]}" for kind, number in counts.most_common())
        found.append(f"{sum(counts.values())} types do not fit: {parts}")
    unknown = [one for one in plan.options if one.usd is None]
    if unknown:
        clouds = sorted({one.rate.cloud for one in unknown})
        reasons = sorted({why for one in unknown for why in one.cost.unknown}, key=len)
        found.append(f"{len(unknown)} options ({', '.join(clouds)}) have no known cost, such as: {fmt.clean(reasons[0])}")
    tardy = len(plan.options) - len(plan.in_time)
    if tardy:
        found.append(f"{tardy} options miss the deadline or the budget")
    return found


def misfits(plan: Plan) -> list[str]:
    """Why types do not fit: each reason with the types it holds for."""
    groups: dict[str, list[str]] = {}
    for one in plan.misfits:
        groups.setdefault(one.reason, []).append(f"{one.cloud} {fmt.clean(_short(one.cloud, one.instance_type))}")
    return [f"- {fmt.clean(reason)}: {', '.join(types)}" for reason, types in groups.items()]


def wrapped(lines: Sequence[str], width: int) -> list[str]:
    """Each line cut into lines of `width`, later ones indented as its text."""
    out: list[str] = []
    for line in lines:
        indent = 10 if line.startswith("  ") else 2
        out.extend(textwrap.wrap(line, width, subsequent_indent=" " * indent, break_on_hyphens=False) or [""])
    return out


def compared(plans: Sequence[tuple[str, Plan]]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """(titles, rows): the plans side by side."""
    rows = []
    for label, picked in (("cheapest", "cheapest"), ("fastest", "fastest")):
        found = [getattr(plan, picked) for _, plan in plans]
        rows.append((f"{label}: hardware", *(_side(one, lambda o: cells(o)[0]) for one in found)))
        rows.append(
            ("  where", *(_side(one, lambda o: f"{o.rate.cloud} {o.rate.region} {BUY[o.rate.purchase]}") for one in found))
        )
        rows.append(("  time", *(_side(one, lambda o: duration(o.seconds)) for one in found)))
        rows.append(("  money", *(_side(one, amount) for one in found)))
    rows.append(("options in time", *(f"{len(plan.in_time)} of {len(plan.options)}" for _, plan in plans)))
    return ("", *(fmt.clean(name) for name, _ in plans)), rows


def _side(option: Option | None, text: Any) -> str:
    return fmt.UNKNOWN if option is None else str(text(option))
