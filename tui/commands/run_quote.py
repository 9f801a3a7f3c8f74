"""The quote beside a dry run: what the job would cost, what the same command took before, and what else there is.

Invariant: it only asks and reads; what cannot be had is left out of the quote, and never the end of the dry run.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import msgspec

from agent import wire
from tui import job_find, job_nodes, quote
from tui.commands.context import Context
from tui.plan_recipe import calibration_of

if TYPE_CHECKING:
    from pricing.weights import Weights
    from tui.commands.run import Submission
    from tui.fleet import Fleet
    from tui.job_nodes import Offer
    from tui.quote import BudgetLeft, Quote

MOST_ENDED = 1000
"""Ended jobs of a node among which the same command is looked for."""


async def quote_of(context: Context, task: Submission, fleet: Fleet, offer: Offer, weights: Weights) -> Quote | None:
    """Of the node that was chosen; None where it is not known well enough."""
    if offer.plan is None or offer.place.node.name not in fleet:
        return None
    spec, place = task.wanted.spec, quote.place_of(fleet[offer.place.node.name])
    listing = await job_find.list_jobs(task.nodes, task.client_for, MOST_ENDED)
    before = quote.measured(_with_models(listing, fleet), spec, place.gpu_model)
    refused = await _share_refused(task, offer)
    calibrated = calibration_of(context.paths.data_dir, spec, place, context.catalog())
    return quote.quote(
        spec, offer.plan, place, context.catalog(), before=before, budget=_budget(context, spec.project), weights=weights,
        gpu_memory_seen=_memory_seen(listing, fleet, spec), share_refused=refused,
        of_types=quote.types_of(fleet), calibrated=calibrated,
    )  # fmt: skip


def _with_models(listing: job_find.Listing, fleet: Fleet) -> Iterator[tuple[wire.Job, str | None]]:
    for found in listing.found:
        gpus = fleet[found.node.name].gpus if found.node.name in fleet else ()
        yield found.job, next((gpu.model for gpu in gpus if gpu.model), None)


def _memory_seen(listing: job_find.Listing, fleet: Fleet, spec: wire.JobSpec) -> int | None:
    ids = {(found.node.name, found.job.id) for found in listing.found if found.job.command == spec.command}
    return quote.memory_of(fleet, ids)


async def _share_refused(task: Submission, offer: Offer) -> str | None:
    """What the node says to half of a GPU, where the job is of one."""
    spec = task.wanted.spec
    if spec.gpus != 1:
        return None
    half = msgspec.structs.replace(spec, gpus=0, gpu_share=Decimal("0.5"))
    [found] = await job_nodes.ask([offer.place], msgspec.structs.replace(task.wanted, spec=half), task.client_for)
    return found.refusal


def _budget(context: Context, project: str | None) -> BudgetLeft | None:
    """Of the project's budgets, from the ledger as it was synced last."""
    budgets = [one for one in context.config.budgets if project and one.project == project]
    path = context.paths.ledger_path(context.config)
    if not budgets or not path.is_file():
        return None
    from pricing.errors import PricingError
    from tui.budgets import states_of
    from tui.money_files import pricing_at
    from tui.output import say

    try:
        with context.open_ledger() as ledger:
            pricing = pricing_at(context.prices_path, context.terms_path)
            states = states_of(budgets, ledger, pricing, context.timezone_name(), datetime.now(UTC))
    except PricingError as error:
        say(f"rackrate: the project's budget is not known: {error}")
        return None
    return quote.budget_left(states, project)
