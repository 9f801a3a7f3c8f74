"""Less of what is there: fewer nodes, smaller ones, GPUs that are held and not used, GPUs that jobs could share.

Invariant: as in `advice_idle`. How far jobs slow each other down is a model that is told (`MODEL`), never a measurement;
where the utilisation of a GPU is not known, it is shared with nobody.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from fractions import Fraction
from shlex import quote
from typing import NamedTuple

from pricing.advice import Action, Case
from pricing.advice_idle import (
    MEASURED_AT_LEAST,
    Group,
    bought,
    cost_per_month,
    counted,
    holders_told,
    how_to_stop,
    idle_below,
    idle_days,
    measured_evidence,
    per_month,
    share,
    some,
)
from pricing.demand import DemandKey
from pricing.fleet_use import FleetUse, GpuUse, HolderName, HolderUse, NodeUse

SHARE_UP_TO = 0.5
"""Only GPUs below it on their busiest day are shared."""
FULL = 0.8
"""Busiest days of the jobs on one GPU sum to no more."""
MOST_ON_ONE = 4
MODEL = (
    "a job that uses a GPU u of the time beside others with v in sum takes 1 + u x v times as long (each waits for the others)"
)
SHARING_RISKS = (
    f"The slow-down is a model ({MODEL}): measure one pair of jobs first.",
    "Whether the jobs fit into the memory of one GPU together is not known from the ledger.",
    "With MPS a job that faults can take those that share its GPU down; MIG keeps them apart.",
)
MIG_MODELS = ("A100", "A30", "H100", "H200", "B200", "GH200")


def actions(case: Case, fleet: FleetUse, group: Group, stopped: set[str]) -> list[Action]:
    """All of this kind for one group; `stopped`: nodes that are to be stopped already."""
    if group.price.usd_per_hour is None or group.saved == 0:
        return []
    busy = [node for node in group.nodes if node.node not in stopped and node.gpu_count]
    found = [_fewer(case, fleet, group), _smaller(case, fleet, group, busy), _shared(case, fleet, group, busy)]
    return [action for action in found if action is not None] + _unused(case, fleet, group, busy)


# --- fewer nodes for the same jobs --------------------------------------------------------------------------------------


def _fewer(case: Case, fleet: FleetUse, group: Group) -> Action | None:
    """The GPUs held at the busiest hour fit on fewer nodes."""
    held, gpus = fleet.held_by_hour.get((group.key, group.purchase)), group.nodes[0].gpu_count
    steady = [node for node in group.nodes if node.gpu_count == gpus and not node.dark_hours]
    alike = [node for node in fleet.nodes if node.running and node.key == group.key and node.purchase == group.purchase]
    if held is None or not gpus or not any(node.gpus for node in steady) or not max(held):
        return None
    peak = -(-max(held) // gpus)
    usual = -(-sorted(held)[len(held) * 95 // 100] // gpus)
    spare = max(1, -(-peak // 10))
    most = min(len(steady), len(alike) if group.saved is None else group.saved)
    count, low, high = (min(most, max(0, len(alike) - need)) for need in (peak + spare, peak + 2 * spare, usual))
    if not count:
        return None
    chosen = sorted(steady, key=lambda node: (node.held_hours, node.node))
    named = [node.node for node in chosen[:count]]
    evidence = measured_evidence(case, fleet, group, chosen[:count])
    evidence |= {"nodes_now": len(alike), "most_gpus_held": max(held), "gpus_per_node": gpus, "spare_nodes": spare}
    return Action(
        kind="shrink",
        what=f"run the same jobs on {len(alike) - count} instead of {len(alike)} {group.key} ({bought(group.purchase)}): "
        f"at most {max(held)} of {len(alike) * gpus} GPUs were held in any hour",
        saving_per_month=cost_per_month(fleet, group, chosen[:count]),
        saving_range=(cost_per_month(fleet, group, chosen[:low]), cost_per_month(fleet, group, chosen[: max(high, count)])),
        evidence=evidence,
        break_even={"gpus": (len(alike) - count) * gpus, "text": "Pays as long as no more GPUs are held at once."},
        risks=(
            f"A job that needs all {gpus} GPUs of one node waits until one is free: jobs of several sizes do not pack perfectly.",
            "The busiest hour of the coming weeks may be busier than that of this window.",
        ),
        how=how_to_stop(group, named),
        claims={group.claimed: sum((per_month(fleet, node) for node in chosen[:count]), Fraction(0))},
        nodes=tuple(node.node for node in alike),  # it counts on all of them: whatever else stops one leaves less room
    )


# --- a smaller type ------------------------------------------------------------------------------------------------------


def _smaller(case: Case, fleet: FleetUse, group: Group, nodes: Sequence[NodeUse]) -> Action | None:
    """Nodes that never had more than half of their GPUs held, on the cheapest type with as many of the same GPU."""
    found: list[tuple[NodeUse, DemandKey, Fraction]] = []
    for node in nodes[: group.saved]:
        if not node.peak_held or node.peak_held * 2 > node.gpu_count:
            continue
        best = _cheaper_type(case, group, node.peak_held)
        if best is not None:
            found.append((node, *best))
    if not found:
        return None
    to = found[0][1]
    same = [(node, price) for node, key, price in found if key == to]
    chosen = [node for node, _ in same]
    now = group.price.usd_per_hour
    assert now is not None  # noqa: S101 - groups without a price have no actions
    saving = sum((per_month(fleet, node) * (now - price) for node, price in same), Fraction(0))
    names = [node.node for node in chosen]
    evidence = measured_evidence(case, fleet, group, chosen)
    evidence |= {"most_gpus_held": max(node.peak_held or 0 for node in chosen), "to": to.instance_type}
    evidence["to_usd_per_hour"] = f"{float(same[0][1]):.4f}"
    return Action(
        kind="shrink",
        what=f"replace {len(names)} {group.key} ({bought(group.purchase)}) by {to.instance_type}: "
        f"at most {evidence['most_gpus_held']} of {chosen[0].gpu_count} GPUs were held: {some(names, 3)}",
        saving_per_month=saving,
        saving_range=(Fraction(0), saving),
        evidence=evidence,
        break_even={"gpus": evidence["most_gpus_held"], "text": "Pays while no job needs more GPUs than the smaller type has."},
        risks=(
            "A smaller type has less memory, fewer processors and less network: whether the work needs them was not measured.",
        ),
        how=(*how_to_stop(group, names), f"rackrate prices {quote(to.instance_type)} {quote(f'region:{to.region}')}"),
        claims={group.claimed: sum((per_month(fleet, node) for node in chosen), Fraction(0))},
        nodes=tuple(names),
    )


def _cheaper_type(case: Case, group: Group, gpus: int) -> tuple[DemandKey, Fraction] | None:
    shape = case.card.shape(group.key)
    if shape is None or shape.gpu_model is None or group.price.usd_per_hour is None:
        return None
    purchase = "spot" if group.purchase == "spot" else "on_demand"
    best: tuple[Fraction, DemandKey] | None = None
    for key in case.card.keys():
        if key.region != group.key.region or (key.cloud or group.key.cloud) != group.key.cloud:
            continue
        other = case.card.shape(key)
        if other is None or (other.gpu_model, other.gpu_memory_bytes) != (shape.gpu_model, shape.gpu_memory_bytes):
            continue
        rates = case.card.rates(key, purchase)
        if (other.gpu_count or 0) < gpus or not rates or rates[-1].usd_per_hour >= group.price.usd_per_hour:
            continue
        best = min(best or (rates[-1].usd_per_hour, key), (rates[-1].usd_per_hour, key))
    return None if best is None else (best[1], best[0])


# --- held, and not used ---------------------------------------------------------------------------------------------------


def _unused(case: Case, fleet: FleetUse, group: Group, nodes: Iterable[NodeUse]) -> list[Action]:
    """One per holder: GPUs that were held all the days and hardly used on any."""
    uses: dict[HolderName, list[tuple[NodeUse, HolderUse]]] = defaultdict(list)
    for node in nodes:
        for use in node.holders:
            if _is_unused(case, fleet, use):
                uses[use.name].append((node, use))
    found = [_unused_action(case, fleet, group, name, held) for name, held in uses.items()]
    return sorted(found, key=lambda action: (-action.saving_per_month, action.what))


def _is_unused(case: Case, fleet: FleetUse, use: HolderUse) -> bool:
    return (
        use.days >= idle_days(case)
        and use.most_busy_day is not None
        and use.most_busy_day < idle_below(case)
        and use.measured_hours >= MEASURED_AT_LEAST * use.held_hours
        and use.held_hours >= fleet.hours / 2
    )


def _unused_action(
    case: Case, fleet: FleetUse, group: Group, name: HolderName, held: Sequence[tuple[NodeUse, HolderUse]]
) -> Action:
    price = group.price.usd_per_hour
    assert price is not None  # noqa: S101 - groups without a price have no actions
    month = Fraction(730, fleet.hours)
    whole = sum((Fraction(use.held_hours) / node.gpu_count * price * month for node, use in held), Fraction(0))
    used = sum((Fraction(use.busy_hours) / node.gpu_count * price * month for node, use in held), Fraction(0))
    hours = sum((Fraction(use.held_hours) / node.gpu_count * month for node, use in held), Fraction(0))
    nodes = [node for node, _ in held]
    names = [node.node for node in nodes]
    gpus = sum(use.held_hours for _, use in held) / fleet.hours
    ratio = sum(use.busy_hours for _, use in held) / sum(use.measured_hours for _, use in held)
    who = " / ".join(part for part in name if part)
    evidence = measured_evidence(case, fleet, group, nodes)
    evidence |= {"holders": holders_told(use for _, use in held), "gpus": round(gpus, 2), "below_ratio": idle_below(case)}
    evidence["owner"] = fleet.owners.get(names[0])
    return Action(
        kind="shrink",
        what=f"release {gpus:.3g} GPUs that {who} holds and uses to {100 * ratio:.1f} % on {group.key}: {some(names, 3)}",
        saving_per_month=whole - used,
        saving_range=(Fraction(0), whole),
        evidence=evidence,
        break_even={"utilization_ratio": idle_below(case), "text": "Worth asking while it stays below this on every day."},
        risks=(
            "Money is saved only when others use the GPUs instead of new ones, or when the node is stopped.",
            "GPU memory that is held for serving looks idle between requests: ask the holder.",
        ),
        how=(*(f"rackrate job show {quote(name.job or '')}" for _ in [0] if name.job), f"rackrate gpus {quote(f'node:{names[0]}')}"),
        claims={group.claimed: hours},
        nodes=tuple(names),
    )  # fmt: skip


# --- sharing GPUs ---------------------------------------------------------------------------------------------------------


class _Packed(NamedTuple):
    """GPUs and what would run on each: utilisation on their busiest day and on average."""

    bins: list[list[tuple[float, float]]]

    @property
    def slow_downs(self) -> list[float]:
        found = []
        for members in self.bins:
            total = sum(mean for _, mean in members)
            found += [1 + mean * (total - mean) for _, mean in members]
        return found


def _shared(case: Case, fleet: FleetUse, group: Group, nodes: Sequence[NodeUse]) -> Action | None:
    """Lightly used GPUs, two to four jobs on one (MPS, or MIG where the GPU can): whole nodes become free."""
    lone = [(node, gpu) for node in nodes for gpu in node.gpus if _can_share(case, fleet, gpu)]
    gpus = nodes[0].gpu_count if nodes else 0
    loads = [(gpu.most_busy_day or 0.0, gpu.busy_hours / gpu.measured_hours) for _, gpu in lone]
    packed, pairs = _pack(loads, MOST_ON_ONE), _pack(loads, 2)
    freed, fewest = (min((len(loads) - len(one.bins)) // max(1, gpus), len(nodes)) for one in (packed, pairs))
    if group.saved is not None:
        freed, fewest = min(freed, group.saved), min(fewest, group.saved)
    if not freed:
        return None
    chosen = sorted({node.node: node for node, _ in lone}.values(), key=lambda node: (share(node), node.node))
    slow = packed.slow_downs
    model = (nodes[0].gpu_model or "").upper()
    mig = any(name in model for name in MIG_MODELS)
    evidence = measured_evidence(case, fleet, group, chosen)
    evidence |= {
        "gpus": len(loads), "gpus_when_shared": len(packed.bins), "nodes_freed": freed, "model": MODEL,
        "expected_slow_down": round(sum(slow) / len(slow), 3), "worst_slow_down": round(max(slow), 3),
        "holders": holders_told(use for node in chosen for use in node.holders)[:20],
    }  # fmt: skip
    saved = [chosen[0]] * freed
    return Action(
        kind="shrink",
        what=f"share GPUs ({'MPS or MIG' if mig else 'MPS'}): the work of {len(loads)} lightly used GPUs of {group.key} "
        f"fits on {len(packed.bins)}, which frees {counted(['n'] * freed, 'node')}; expected slow-down {sum(slow) / len(slow):.2f} x",
        saving_per_month=cost_per_month(fleet, group, saved),
        saving_range=(cost_per_month(fleet, group, [chosen[0]] * fewest), cost_per_month(fleet, group, saved)),
        evidence=evidence,
        break_even={
            "slow_down": f"{len(loads) / max(1, len(packed.bins)):.2f}",
            "text": "Above this slow-down it costs more time than it saves.",
        },
        risks=SHARING_RISKS,
        how=("rackrate gpus 'util<50'", *how_to_stop(group, [node.node for node in chosen[:freed]])),
        partial=True,
        claims={group.claimed: sum((per_month(fleet, node) for node in chosen), Fraction(0))},
        nodes=tuple(node.node for node in chosen),
    )  # fmt: skip


def _can_share(case: Case, fleet: FleetUse, gpu: GpuUse) -> bool:
    """Held at least half of the time, measured, used, and by little."""
    return (
        gpu.most_busy_day is not None
        and 0 < gpu.most_busy_day < SHARE_UP_TO
        and gpu.held_hours >= fleet.hours / 2
        and gpu.measured_hours >= MEASURED_AT_LEAST * gpu.hours
    )


def _pack(loads: Sequence[tuple[float, float]], most: int) -> _Packed:
    """First fit, largest first."""
    bins: list[list[tuple[float, float]]] = []
    sums: list[float] = []
    for load in sorted(loads, reverse=True):
        place = next((at for at, full in enumerate(sums) if full + load[0] <= FULL and len(bins[at]) < most), None)
        if place is None:
            bins.append([load])
            sums.append(load[0])
        else:
            bins[place].append(load)
            sums[place] += load[0]
    return _Packed(bins)
