"""What an agent finds that starts: jobs that ran on, ended, or never began; cgroups and folders that nobody knows.

Invariant: what is adopted is told by locks and records, never by a pid; a cgroup is swept only when no unended job and no
drained GPU has anything to do with it.
"""

from __future__ import annotations

from decimal import Decimal

from agent.errors import AgentFault
from agent.isolation.group import sweep as sweep_groups
from agent.jobs import secrets
from agent.jobs.context import Context, now
from agent.jobs.drains import Drains
from agent.jobs.ids import parse_unit
from agent.jobs.live import Live
from agent.jobs.manager_life import Lives
from agent.jobs.stopper import Stopper
from agent.jobs.store import JobStore

LOOKED_BACK = 2_000
"""Ended jobs among which drained GPUs are looked for."""


def adopt(context: Context, lives: Lives, stopper: Stopper, drains: Drains) -> None:
    """Every job that holds something is somebody's again; stops that were only written down are asked for again."""
    drains.recall(context.store.ended(LOOKED_BACK))
    for row in context.store.holding():
        if row.state == "queued":
            continue  # a reservation: it ends by itself
        live = lives.adopt(row)
        if row.stop_cause is not None and live.plan is not None:
            _order_again(context, stopper, live)
    for row in context.store.waiting():
        if row.stop_cause is not None:
            context.store.end(row.id, row.stop_cause, row.stop_evidence or "it was stopped while it waited", now())


def _order_again(context: Context, stopper: Stopper, live: Live) -> None:
    try:
        stopper.order(live, context.store.get(live.id))
    except (AgentFault, OSError) as error:
        context.failed(f"job {live.id}", error)


def shares(store: JobStore) -> dict[str, dict[str, Decimal]]:
    """GPU -> job -> share, of what runs."""
    found: dict[str, dict[str, Decimal]] = {}
    for row in store.holding():
        if row.state != "queued" and row.spec.gpu_share is not None and row.gpus:
            found.setdefault(row.gpus[0], {})[row.id] = row.spec.gpu_share
    return found


def known_units(lives: Lives, drains: Drains) -> set[str]:
    return {live.unit for live in lives.all.values()} | {drain.unit for drain in drains.all.values()}


def sweep(context: Context, known: set[str]) -> list[str]:
    """Removes cgroups and run-time folders of attempts that nobody knows. Blocks: in a thread."""
    gone: list[str] = []
    if context.host.enforcement != "none":
        gone = sweep_groups(str(context.host.root), context.host.parent, known)
    root = context.runtime_root
    if root is not None and root.is_dir():
        for folder in root.iterdir():
            if parse_unit(folder.name) is not None and folder.name not in known:
                secrets.remove_runtime(folder)
    return gone
