"""Time of nodes that their cloud took back, where its rules say that it is not billed.

Invariant: only what the ledger tells counts: an announcement that was not withdrawn, of a machine of which it is known when
it had started. A node that its user stopped has none, and neither has one that simply went silent: those are billed.

The machine's start is its boot as its own kernel tells it, a few seconds after the cloud began to count; its end is the
announced moment. What is recorded of the same machine until it is gone (`SHUTDOWN_MS`) belongs to it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from pricing import billing, calendar
from pricing.billing import Rule
from pricing.usage import Placed

SHUTDOWN_MS = 120_000
"""EC2 stays `shutting-down` for up to about two minutes."""


class Free(NamedTuple):
    """[starts_ms, ends_ms) of one node that its cloud does not bill."""

    starts_ms: int
    ends_ms: int
    note: str


def free_time(
    connection: sqlite3.Connection, placements: Mapping[int, Placed], rules: Sequence[Rule]
) -> dict[int, tuple[Free, ...]]:
    """By placement, in order of time; placements without any are not in it."""
    found: dict[int, list[Free]] = {}
    for placement_id, node_cloud, kind, booted_ms, at_ms in connection.execute(
        "SELECT placements.id, interruptions.cloud, kind, booted_ms, at_ms FROM interruptions"
        " JOIN placements ON placements.meter_id = interruptions.meter_id WHERE NOT withdrawn AND booted_ms IS NOT NULL"
        " ORDER BY placements.id, booted_ms"
    ):
        placed = placements[placement_id]
        ran = Fraction(at_ms - booted_ms, 1000)
        if placed.cloud != node_cloud or ran <= 0:
            continue
        if not billing.billed(ran, billing.rule_for(placed.cloud, placed.purchase, rules), interrupted=True):
            found.setdefault(placement_id, []).append(Free(booted_ms, at_ms + SHUTDOWN_MS, _note(placed, kind, at_ms, ran)))
    return {id: tuple(spans) for id, spans in found.items()}


def _note(placed: Placed, kind: str, at_ms: int, ran: Fraction) -> str:
    done = {"stop": "stopped", "hibernate": "hibernated"}.get(kind, "terminated")
    at = calendar.instant(at_ms).strftime("%Y-%m-%d %H:%M")
    return (
        f"node {placed.node}: {placed.cloud} {done} it at {at} UTC, {int(ran) // 60} minutes after its start; "
        "that time is not billed and costs nothing."
    )
