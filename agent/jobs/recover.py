"""What an agent finds that starts: jobs that ran on, ended, or never began; cgroups and folders that nobody knows.

Invariant: what is adopted is told by locks and records, never by a pid; a cgroup is swept only when no unended job and no
drained GPU has anything to do with it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from decimal import Decimal

from agent.errors import AgentFault
from agent.isolation.group import clear
from agent.isolation.group import sweep as sweep_groups
from agent.jobs import secrets, starter
from agent.jobs.context import Context, now
from agent.jobs.drains import Drains
from agent.jobs.ids import is_job_id, parse_unit
from agent.jobs.live import Live
from agent.jobs.manager_life import Lives
from agent.jobs.stopper import Stopper
from agent.jobs.store import JobStore

LOOKED_BACK = 2_000
"""Ended jobs among which drained GPUs are looked for."""
TIDIED = 200
"""Folders of the newest jobs that are looked at."""


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


def tidy(context: Context) -> None:
    """What an agent that was killed left half done: folders of jobs that were never kept, secrets of ended ones."""
    names = sorted((name for name in os.listdir(context.folder) if is_job_id(name)), reverse=True)  # ids sort by time
    for name in names[:TIDIED]:
        row = context.store.find(name)
        if row is None:
            starter.remove_folder(context.job_folder(name))
        elif row.state == "ended":
            secrets.forget(context.job_folder(name))


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


def leave(context: Context) -> None:
    """Nothing runs: takes away our own empty groups and folders, so that an agent that is gone leaves nothing behind."""
    if context.host.enforcement != "none":
        clear(str(context.host.root), context.host.parent)
    if context.runtime_root is not None:
        with suppress(OSError):
            context.runtime_root.rmdir()
