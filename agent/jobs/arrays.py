"""Arrays: one job asked for many times, each task with its own index.

Invariant: an array's own row never runs and ends with its last task; tasks are ordinary jobs in everything else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from agent import wire
from agent.jobs.rows import JobRow

MOST_TASKS = 10_000
HIGHEST_INDEX = 999_999


def refusal(indexes: Sequence[int], at_once: int | None) -> str | None:
    """Why this array cannot be, in a sentence; for the submit."""
    raise NotImplementedError


def rows(row: JobRow) -> list[JobRow]:
    """The array's own row, and one for each of its tasks: for `store.add`. A row without `spec.array` alone."""
    raise NotImplementedError


def state_of(counts: Mapping[str, int]) -> wire.JobState:
    """The state to show for an array whose tasks are counted by state."""
    raise NotImplementedError


def outcome_of(causes: Mapping[str, int]) -> tuple[str, str]:
    """Cause and evidence of an array whose tasks ended with these causes (cause -> number)."""
    raise NotImplementedError
