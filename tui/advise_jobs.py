"""The jobs that the nodes tell of, as the advice on spot takes them: may they be interrupted, and what did it cost so far.

Invariant: a job counts only with what its record says; time that no record covers is nobody's and never counts as movable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from pricing.advice_spot import SpotJob, changeover_of
from pricing.rate_card import HOURS_PER_MONTH

if TYPE_CHECKING:
    from agent import wire
    from pricing.demand import Demand
    from pricing.fleet_use import FleetUse, NodeUse
    from tui.commands.context import Context

ENDED = 1000
"""Ended jobs of each node that are asked for."""
RECIPES = "agent.recipes"
"""Recipes that ship write checkpoints and go on from them."""


def told_by_nodes(context: Context, demand: Demand, fleet: FleetUse) -> tuple[SpotJob, ...]:
    """Asks all nodes; those that do not answer were named when their usage was asked for."""
    from tui.job_find import list_jobs

    with context.nodes() as nodes:
        listing = asyncio.run(list_jobs(nodes, context.client_for, ENDED))
    by_name = {node.node: node for node in fleet.nodes}
    return spot_jobs((found.job for found in listing.found), by_name, demand.start, demand.end)


def spot_jobs(jobs: Iterable[wire.Job], nodes: dict[str, NodeUse], start: datetime, end: datetime) -> tuple[SpotJob, ...]:
    """Of the range; jobs that ran elsewhere, or not at all then, are left out."""
    found = []
    span = (end - start).total_seconds() / 3600
    for job in jobs:
        node = nodes.get(job.node)
        hours = _hours(job, start, end)
        if node is None or node.key is None or not hours or span <= 0:
            continue
        attempts = [(_seconds(one.started_at), _seconds(one.ended_at), one.cause) for one in job.attempts]
        found.append(
            SpotJob(
                name=job.name or job.id,
                key=node.key,
                node_hours_per_month=hours * _part(job, node) * HOURS_PER_MONTH / span,
                interruptible=job.interruptible,
                checkpoints=True if any(RECIPES in word for word in job.command) else None,
                changeover_hours=changeover_of(attempts),
                work_hours=_hours(job, job.submitted_at, end) if job.state == "ended" and job.exit_code == 0 else None,
                deadline_hours=None if job.deadline is None else (job.deadline - job.submitted_at).total_seconds() / 3600,
            )
        )
    return tuple(found)


def _hours(job: wire.Job, start: datetime, end: datetime) -> float:
    """Of its attempts, within the range."""
    spans = ((max(one.started_at, start), min(one.ended_at or end, end)) for one in job.attempts if one.started_at is not None)
    return sum(max(0.0, (until - since).total_seconds()) for since, until in spans) / 3600


def _part(job: wire.Job, node: NodeUse) -> float:
    """Of the node that it holds."""
    if not node.gpu_count:
        return 1.0
    gpus = float(job.gpu_share) if job.gpu_share is not None else float(len(job.gpus))
    return min(1.0, gpus / node.gpu_count)


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()
