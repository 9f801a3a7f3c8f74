"""What stands idle: nodes to stop, and (in `advice_shrink`) GPUs to release, fewer or smaller nodes, GPUs to share.

Invariant: a node or GPU whose utilisation is not known for nearly all of the time is never called idle, but named in `notes`;
where a commitment pays for the node anyway, stopping it saves nothing and is not told.

The rule: below `idle_below` (20 %) on every one of the last `idle_days` (7) days, measured for 90 % of each day.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from fractions import Fraction
from shlex import quote
from typing import NamedTuple

from pricing import quotes
from pricing.advice import HOURS_PER_MONTH, Action, Call, Case
from pricing.advice_cost import middle_rate
from pricing.calendar import instant, milliseconds
from pricing.demand import DemandKey
from pricing.fleet_use import FleetUse, HolderUse, NodeUse
from pricing.ledger_merge import HOUR_MS
from pricing.rate_card import TERM_MONTHS

IDLE_BELOW = 0.20
IDLE_DAYS = 7
MEASURED_AT_LEAST = 0.90
SHOWN = 6
LISTED = 20
"""How many nodes a command names."""


def actions(case: Case) -> list[Action]:
    """Stop and shrink; nothing where only a usage file tells."""
    from pricing import advice_shrink

    if case.fleet is None or too_short(case, case.fleet):
        return []
    groups = judged(case, case.fleet)
    stops = [action for group in groups for action in _stop(case, case.fleet, group)]
    stopped = {node for action in stops for node in action.nodes}
    return stops + [action for group in groups for action in advice_shrink.actions(case, case.fleet, group, stopped)]


def notes(case: Case) -> list[str]:
    """Nodes that could not be judged, and why."""
    fleet = case.fleet
    if fleet is None:
        return []
    if too_short(case, fleet):
        days = fleet.hours / 24
        return [
            f"The ledger tells of {days:.1f} days: too short to call a node idle, which takes {idle_days(case)} (--idle-days)."
        ]
    found = [*fleet.notes]
    running = [node for node in fleet.nodes if node.running]
    dark = [node.node for node in running if node.days >= idle_days(case) and not is_measured(node)]
    young = [node.node for node in running if node.days < idle_days(case)]
    if dark:
        found.append(
            f"{counted(dark, 'node')} could not be judged: utilisation is unknown for more than "
            f"{100 - 100 * MEASURED_AT_LEAST:.0f} % of some day ({some(dark)})."
        )
    if young:
        found.append(f"{counted(young, 'node')} ran on fewer than {idle_days(case)} days, too short to judge ({some(young)}).")
    for group in judged(case, fleet):
        found += _unsaved(case, group)
    return found


# --- what both kinds need ----------------------------------------------------------------------------------------------


class Price(NamedTuple):
    """What an hour of a node costs that would be saved; None with the reason why not."""

    usd_per_hour: Fraction | None
    source: str
    as_of: str | None = None
    reason: str = ""


class Group(NamedTuple):
    """Nodes alike: of one type in one place, bought the same way, running, and measured well enough to be judged."""

    key: DemandKey
    purchase: str
    nodes: tuple[NodeUse, ...]
    price: Price
    saved: int | None
    """How many of them, when stopped, save their price; the others are paid for by commitments. None: all."""
    committed_until: str | None

    @property
    def claimed(self) -> DemandKey:
        return self.key.as_spot() if self.purchase == "spot" else self.key


def idle_below(case: Case) -> float:
    return float(case.options.get("idle_below", IDLE_BELOW))  # type: ignore[arg-type]


def idle_days(case: Case) -> int:
    return int(case.options.get("idle_days", IDLE_DAYS))  # type: ignore[call-overload]


def too_short(case: Case, fleet: FleetUse) -> bool:
    return fleet.hours < 24 * idle_days(case)


def is_measured(node: NodeUse) -> bool:
    return node.least_measured_day >= MEASURED_AT_LEAST


def judged(case: Case, fleet: FleetUse) -> list[Group]:
    """Groups with a known price first asked for; a node's own price makes a group of its own."""
    found: dict[tuple[DemandKey, str, str | None], list[NodeUse]] = defaultdict(list)
    for node in fleet.nodes:
        if node.running and node.days >= idle_days(case) and is_measured(node):
            key = node.key or DemandKey(node.cloud, "on_premises", node.gpu_model or "node")
            own = node.usd_per_hour if node.key is None or case.card.on_demand(node.key) is None else None
            found[key, node.purchase, own].append(node)
    return [
        _group(case, key, purchase, tuple(sorted(nodes, key=lambda node: (share(node), node.node))))
        for (key, purchase, _), nodes in sorted(found.items(), key=lambda item: tuple(str(part) for part in item[0]))
    ]


def share(node: NodeUse) -> float:
    """Utilisation of what was measured."""
    return node.busy_hours / node.measured_hours if node.measured_hours else 1.0


def _group(case: Case, key: DemandKey, purchase: str, nodes: tuple[NodeUse, ...]) -> Group:
    owned = [
        one for one in case.terms.commitments
        if one.kind == "reservation" and one.cloud == (key.cloud or one.cloud) and one.region in (None, key.region)
        and (one.instance_type or "").lower() == key.instance_type.lower()
        and one.starts_ms <= milliseconds(case.now) < one.ends_ms
    ]  # fmt: skip
    until = max((one.ends_ms for one in owned), default=None)
    price = price_of(case, key, purchase, nodes[0])
    saved = None
    if purchase in TERM_MONTHS:
        saved = 0
    elif purchase == "on_demand" and owned:
        alike = [node for node in case.fleet.nodes if node.running and node.key == key] if case.fleet else []
        on_demand = sum(node.purchase == "on_demand" for node in alike)
        labelled = sum(node.purchase in TERM_MONTHS for node in alike)
        saved = max(0, on_demand - max(0, sum(one.count for one in owned) - labelled))
    return Group(key, purchase, nodes, price, saved, None if until is None else f"{instant(until):%Y-%m-%d}")


def price_of(case: Case, key: DemandKey, purchase: str, node: NodeUse) -> Price:
    """Of the whole node, per hour that it does not run."""
    if node.cloud == "on_premises" or node.on_premises is not None:
        return Price(None, "", reason="what an owned node saves when it is off (power, room) is not known")
    if purchase == "capacity_block":
        return Price(None, "", reason="a capacity block is paid whether it is used or not")
    found = _rate(case, key, "spot" if purchase == "spot" else "on_demand", node.zone)
    if found is not None:
        return found
    stated = quotes.from_configuration(node.usd_per_hour)
    if stated is not None and stated.price is not None and stated.price.currency == "USD":
        return Price(stated.price.fraction, stated.source)
    return Price(None, "", reason=f"the {purchase.replace('_', '-')} price of {key} is not known")


def _rate(case: Case, key: DemandKey, purchase: str, zone: str | None) -> Price | None:
    rates = case.card.rates(key, purchase)
    own = [rate for rate in rates if rate.zone == zone] or [rate for rate in rates if rate.zone is None]
    if own:
        return Price(own[0].usd_per_hour, own[0].source, own[0].as_of and own[0].as_of.isoformat())
    middle = middle_rate(case.card, key, purchase)
    return None if middle is None else Price(middle, f"middle of {len(rates)} zones; {rates[0].source}", str(rates[0].as_of))


def per_month(fleet: FleetUse, node: NodeUse) -> Fraction:
    """Node-hours in an average month, as the node ran in the window."""
    return Fraction(node.node_hours) / fleet.hours * HOURS_PER_MONTH


def cost_per_month(fleet: FleetUse, group: Group, nodes: Iterable[NodeUse]) -> Fraction:
    assert group.price.usd_per_hour is not None  # noqa: S101 - only priced groups are asked for
    return sum((per_month(fleet, node) * group.price.usd_per_hour for node in nodes), Fraction(0))


def measured_evidence(case: Case, fleet: FleetUse, group: Group, nodes: Sequence[NodeUse]) -> dict[str, object]:
    """The part of the evidence that every piece of this advice has."""
    measured, busy, held = (sum(getattr(node, f"{part}_hours") for node in nodes) for part in ("measured", "busy", "held"))
    gpu_hours = sum(node.held_hours + node.idle_hours + node.dark_hours for node in nodes)
    return {
        "from": f"{instant(fleet.first_hour * HOUR_MS):%Y-%m-%dT%H:%MZ}",
        "to": f"{instant(fleet.last_hour * HOUR_MS):%Y-%m-%dT%H:%MZ}",
        "days": idle_days(case),
        "nodes": [node.node for node in nodes],
        "node_hours": round(sum(node.node_hours for node in nodes), 2),
        "utilization_ratio": round(busy / measured, 4) if measured else None,
        "busiest_day_ratio": round(max((node.most_busy_day or 0.0 for node in nodes), default=0.0), 4),
        "measured_ratio": round(measured / gpu_hours, 4) if gpu_hours else None,
        "held_ratio": round(held / gpu_hours, 4) if gpu_hours else None,
        "usd_per_hour": None if group.price.usd_per_hour is None else f"{float(group.price.usd_per_hour):.4f}",
        "price_source": group.price.source,
        "price_as_of": group.price.as_of,
    }


def holders_told(holders: Iterable[HolderUse]) -> list[dict[str, object]]:
    """Who held what, most first."""
    sums: dict[tuple[str | None, ...], list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    nodes: dict[tuple[str | None, ...], set[str]] = defaultdict(set)
    for use in holders:
        for place, amount in enumerate((use.held_hours, use.measured_hours, use.busy_hours)):
            sums[use.name][place] += amount
        nodes[use.name].add(use.node)
    return [
        {
            "user": name[0], "project": name[1], "job": name[2], "nodes": sorted(nodes[name]), "gpu_hours": round(held, 2),
            "utilization_ratio": round(busy / measured, 4) if measured else None,
        }
        for name, (held, measured, busy) in sorted(sums.items(), key=lambda item: (-item[1][0], str(item[0])))
    ]  # fmt: skip


def counted(names: Sequence[str], noun: str) -> str:
    return f"{len(names)} {noun}{'' if len(names) == 1 else 's'}"


def some(names: Sequence[str], most: int = SHOWN) -> str:
    """The first few, and how many more."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def bought(purchase: str) -> str:
    return {"on_demand": "on demand", "spot": "on spot"}.get(purchase, purchase.replace("_", " "))


# --- stop --------------------------------------------------------------------------------------------------------------


def _stop(case: Case, fleet: FleetUse, group: Group) -> list[Action]:
    """Idle nodes that nobody held, and idle ones that somebody holds: those need a word with the holder first."""
    if group.price.usd_per_hour is None:
        return []
    idle = _idle(case, group)[: group.saved]
    free = [node for node in idle if not node.held_hours]
    held = [node for node in idle if node.held_hours]
    return [_stop_action(case, fleet, group, nodes) for nodes in (free, held) if nodes]


def _idle(case: Case, group: Group) -> list[NodeUse]:
    """Least used first."""
    limit = idle_below(case)
    return [node for node in group.nodes if node.gpu_count and node.most_busy_day is not None and node.most_busy_day < limit]


def _stop_action(case: Case, fleet: FleetUse, group: Group, nodes: list[NodeUse]) -> Action:
    names = [node.node for node in nodes]
    held = any(node.held_hours for node in nodes)
    evidence = measured_evidence(case, fleet, group, nodes)
    evidence |= {"below_ratio": idle_below(case), "holders": holders_told(use for node in nodes for use in node.holders)}
    whole = cost_per_month(fleet, group, nodes)
    parts = [(cost_per_month(fleet, group, [node]), node) for node in nodes]
    kept = sum((cost * Fraction(share(node)) for cost, node in parts), Fraction(0))
    lent = sum((cost * Fraction(node.held_hours / (node.held_hours + node.idle_hours)) for cost, node in parts), Fraction(0))
    hours = sum((per_month(fleet, node) for node in nodes), Fraction(0))
    why = "held, but hardly used" if held else "nobody held them" if len(nodes) > 1 else "nobody held it"
    return Action(
        kind="stop",
        what=f"stop {len(names)} idle {group.key} ({bought(group.purchase)}; {why}): {some(names, 3)}",
        saving_per_month=whole - kept,
        saving_range=(max(Fraction(0), whole - lent), whole),
        evidence=evidence,
        break_even={
            "hours_per_month": f"{float(hours / len(nodes)):.0f}",
            "utilization_ratio": idle_below(case),
            "text": "Started only when needed, a node costs less as long as that is for fewer hours than it runs now.",
        },
        risks=_stop_risks(case, group, held),
        how=how_to_stop(group, names),
        partial=_has_plans(case, group),
        claims={group.claimed: hours},
        nodes=tuple(names),
        calls=_stop_calls(group, names),
    )


def _stop_risks(case: Case, group: Group, held: bool) -> tuple[str, ...]:
    risks = ["What runs rarely (once a month, at the end of a quarter) does not show in these days."]
    if held:
        risks.append("Somebody holds these GPUs: ask them first; the low end of the range counts all that is held as needed.")
    risks.append("Disks and addresses of a stopped node are still paid; local NVMe is wiped.")
    if group.purchase == "on_demand" and group.key.instance_type.lower().startswith(("p4", "p5", "p6", "a3", "nd")):
        risks.append("Capacity of this type is scarce: a stopped node may not start again when it is wanted.")
    if _has_plans(case, group):
        risks.append("A savings plan may pay for part of it; then less is saved until the plan's money is used elsewhere.")
    return tuple(risks)


def _has_plans(case: Case, group: Group) -> bool:
    at = milliseconds(case.now)
    plans = [one for one in case.terms.commitments if one.kind == "savings_plan" and one.starts_ms <= at < one.ends_ms]
    return group.purchase == "on_demand" and any(one.cloud == group.key.cloud for one in plans)


def how_to_stop(group: Group, names: Sequence[str]) -> tuple[str, ...]:
    """Commands for each cloud, as they are typed; the first looks what runs there. Names are quoted: they come from outside."""
    cloud, region = group.key.cloud, quote(group.key.region)
    shown = [quote(name) for name in names[:LISTED]]
    look, told = f"rackrate jobs {quote(f'node:{names[0]}')}", " ".join(shown)
    if cloud == "aws":
        word = "terminate" if group.purchase == "spot" else "stop"
        values = quote(f"Name=tag:Name,Values={','.join(names[:LISTED])}")
        ids = (
            f"$(aws ec2 describe-instances --region {region} --filters {values}"
            " Name=instance-state-name,Values=running --query 'Reservations[].Instances[].InstanceId' --output text)"
        )
        return look, f"aws ec2 {word}-instances --region {region} --instance-ids {ids}"
    if cloud == "gcp":
        return look, f"gcloud compute instances stop {told} --zone ZONE"
    if cloud == "azure":
        return look, *(f"az vm deallocate --resource-group GROUP --name {name}" for name in shown)
    if cloud == "alibaba":
        return look, f"aliyun ecs StopInstances --RegionId {region} --StoppedMode StopCharging  # the instances of {told}"
    return (look, f"stop {told} where it is rented")


def _stop_calls(group: Group, names: Sequence[str]) -> tuple[Call, ...]:
    if group.key.cloud != "aws":
        return ()
    operation = "terminate_instances" if group.purchase == "spot" else "stop_instances"
    ids = [f"<instance id of {name}>" for name in names]
    note = "Printed only: the ledger knows nodes by name, not by instance id; look the ids up first."
    return (Call("ec2", group.key.region, operation, {"InstanceIds": ids, "DryRun": True}, note),)


def _unsaved(case: Case, group: Group) -> list[str]:
    """Idle nodes whose stop would save nothing, or whose price is not known."""
    idle = _idle(case, group)
    if not idle:
        return []
    if group.price.usd_per_hour is None:
        names = [node.node for node in idle]
        return [f"{counted(names, 'idle node')} ({some(names)}) in no advice: {group.price.reason}."]
    rest = [node.node for node in idle[group.saved :]] if group.saved is not None else []
    if not rest:
        return []
    until = f" until {group.committed_until}" if group.committed_until else ""
    text = "paid for by a commitment: stopping saves nothing; move other work onto it, or exchange or sell the commitment"
    return [f"{counted(rest, 'idle node')} of {group.key} ({some(rest)}) {'is' if len(rest) == 1 else 'are'} {text}{until}."]
