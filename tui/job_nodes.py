"""Where a job could run: what each node says to a dry run, and which one is taken.

Invariant: of the nodes that would start it now the cheapest known price per hour is taken, and the choice is said with its
reason; a node that does not answer, or that refuses, is named with why.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from decimal import Decimal

import msgspec

from agent import wire
from agent.client import AgentClient, AgentRefused, ClientError
from pricing.weights import Weights
from tui import format as fmt
from tui.config import NodeConfig
from tui.errors import RackrateError
from tui.exit_codes import ExitCode
from tui.fleet import NodeView
from tui.job_price import part_of, without_gpu
from tui.jobspec import Wanted, priced

AT_ONCE = 64
PRICE_PLACES = 6
ClientFor = Callable[[NodeConfig], AgentClient]


class Refused(RackrateError):
    """An agent said no: wrong usage where the job cannot be what it is (400), else a failure."""

    def __init__(self, sentence: str, status: int = 409) -> None:
        super().__init__(sentence)
        self.exit_code = ExitCode.USAGE if status == 400 else ExitCode.FAILED


class NoNode(RackrateError):
    """No node was reached."""

    exit_code = ExitCode.UNREACHABLE


class Place(msgspec.Struct, frozen=True):
    """One node that could run it."""

    node: NodeConfig
    usd_per_hour: Decimal | None
    """Of the whole node, as the agent's configuration or this catalog says."""
    purchase: str | None = None
    """How the node is paid, as it says."""
    job_usd_per_hour: Decimal | None = None
    """Of a job without a GPU, which the agent cannot price: it knows no weights."""

    @property
    def name(self) -> str:
        return fmt.clean(self.node.name)


class Offer(msgspec.Struct, frozen=True):
    """What one node says to a dry run: a plan, or why not."""

    place: Place
    plan: wire.JobPlan | None = None
    refusal: str | None = None
    status: int = 0
    """HTTP status of the refusal; 0: it did not answer."""


def places(nodes: Sequence[NodeConfig], views: Sequence[NodeView], spec: wire.JobSpec, weights: Weights) -> list[Place]:
    """The nodes of these views, with their prices, and what the job costs there if it has no GPU."""
    chosen = {view.name: view for view in views}
    return [_place(node, chosen[node.name], spec, weights) for node in nodes if node.name in chosen]


def _place(node: NodeConfig, view: NodeView, spec: wire.JobSpec, weights: Weights) -> Place:
    price = price_of(view)
    part = part_of(spec, view.info, price, weights) if view.info is not None and without_gpu(spec) else None
    return Place(node, price, _purchase(view), None if part is None else fmt.decimal_of(part, PRICE_PLACES))


def _purchase(view: NodeView) -> str | None:
    return None if view.info is None else view.info.purchase


def price_of(view: NodeView) -> Decimal | None:
    price = view.usd_per_hour
    found = None if price is None else fmt.decimal_of(price, PRICE_PLACES)
    return found if found else None


async def ask(found: Sequence[Place], wanted: Wanted, client_for: ClientFor, **changes: object) -> list[Offer]:
    """A dry run on every one of them, at once."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(place: Place) -> Offer:
        async with gate:
            return await _ask(place, priced(wanted.spec, place.usd_per_hour, **changes), client_for)

    return list(await asyncio.gather(*(one(place) for place in found)))


async def _ask(place: Place, spec: wire.JobSpec, client_for: ClientFor) -> Offer:
    try:
        async with client_for(place.node) as client:
            plan = await client.dry_run(spec)
            if without_gpu(spec):
                plan = msgspec.structs.replace(plan, usd_per_hour=place.job_usd_per_hour)
            return Offer(place, plan=plan)
    except AgentRefused as error:
        return Offer(place, refusal=fmt.clean(error.text), status=error.status)
    except (ClientError, RackrateError) as error:
        return Offer(place, refusal=str(error))


def by_price(offers: Sequence[Offer]) -> list[Offer]:
    """Those with a plan, cheapest per hour first; a price that is not known is never the cheapest."""
    planned = [offer for offer in offers if offer.plan is not None]
    return sorted(planned, key=lambda offer: (_price(offer) is None, _price(offer) or 0, offer.place.name))


def _price(offer: Offer) -> Decimal | None:
    assert offer.plan is not None
    return offer.plan.usd_per_hour


def choose(offers: Sequence[Offer]) -> tuple[Offer, str]:
    """The node that is taken, and why in a sentence. Raises `Refused` or `NoNode` when none takes it."""
    planned = by_price(offers)
    starting = [offer for offer in planned if offer.plan is not None and offer.plan.starts_now]
    if starting:
        return starting[0], _why_now(starting, len(offers))
    if planned:
        return planned[0], _why_later(planned[0], len(offers))
    raise nobody(offers)


def _why_now(starting: Sequence[Offer], asked: int) -> str:
    best = starting[0]
    assert best.plan is not None
    price = hourly(best.plan.usd_per_hour)
    if asked == 1:
        return f"{best.place.name} starts it now, {price}"
    which = (
        "the only one"
        if len(starting) == 1
        else f"the cheapest of {len(starting)}"
        if _price(best)
        else f"one of {len(starting)}"
    )
    return f"{best.place.name} starts it now, {price}: {which} of {asked} asked that would"


def _why_later(best: Offer, asked: int) -> str:
    assert best.plan is not None
    reason = fmt.clean(best.plan.reason)
    if asked == 1:
        return f"{best.place.name} lets it wait: {reason}"
    return (
        f"none of {asked} nodes would start it now; it waits on {best.place.name}, {hourly(best.plan.usd_per_hour)}: {reason}"
    )


def hourly(price: Decimal | None) -> str:
    return "at a price that is not known" if price is None else f"{fmt.usd(price, 2 if price >= 1 else 4)} an hour"


def nobody(offers: Sequence[Offer]) -> RackrateError:
    """Why no node takes it: each different sentence once."""
    if not offers:
        return Refused("no node is selected; `rackrate nodes` lists them.", 400)
    told: dict[str, list[str]] = {}
    for offer in offers:
        told.setdefault(offer.refusal or "", []).append(offer.place.name)
    parts = [f"{_names(names)}: {sentence.rstrip('.')}" for sentence, names in told.items()]
    sentence = "; ".join(parts) + "."
    if all(offer.status == 0 for offer in offers):
        return NoNode(sentence)
    wrong = all(offer.status == 400 for offer in offers if offer.status)
    return Refused(sentence, 400 if wrong else 409)


def _names(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 4 else f"{', '.join(names[:3])} and {len(names) - 3} more"
