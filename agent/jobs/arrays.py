"""Arrays: one job asked for many times, each task with its own index.

Invariant: an array's own row never runs and ends with its last task; tasks are ordinary jobs in everything else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from agent import wire
from agent.jobs.rows import JobRow

MOST_TASKS = 10_000
HIGHEST_INDEX = 999_999
ARRAY_STATES: tuple[wire.JobState, ...] = ("running", "stopping", "starting", "queued")
"""What an array is said to be: the first of these that one of its tasks is in."""


def refusal(indexes: Sequence[int], at_once: int | None) -> str | None:
    """Why this array cannot be, in a sentence; for the submit."""
    if at_once is not None and not indexes:
        return "`array_at_once` is only for a job with an array"
    if len(indexes) > MOST_TASKS:
        return f"an array can have at most {MOST_TASKS:,} tasks, not {len(indexes):,}"
    if at_once is not None and at_once < 1:
        return f"at least 1 task of an array must be allowed to run at once, not {at_once}"
    wrong = next((index for index in indexes if not 0 <= index <= HIGHEST_INDEX), None)
    if wrong is not None:
        return f"the indexes of an array go from 0 to {HIGHEST_INDEX:,}, so {wrong} cannot be one"
    often, number = Counter(indexes).most_common(1)[0] if indexes else (0, 0)
    return f"index {often} is {number} times in the array" if number > 1 else None


def rows(row: JobRow) -> list[JobRow]:
    """The array's own row, and one for each of its tasks: for `store.add`. A row without `spec.array` alone."""
    if not row.is_array:
        return [row]
    task = msgspec.structs.replace
    return [row, *(task(row, id=f"{row.id}_{index}", array=row.id, array_index=index) for index in row.spec.array)]


def state_of(counts: Mapping[str, int]) -> wire.JobState:
    """The state to show for an array whose tasks are counted by state."""
    return next((state for state in ARRAY_STATES if counts.get(state)), "ended")


def outcome_of(causes: Mapping[str, int]) -> tuple[str, str]:
    """Cause and evidence of an array whose tasks ended with these causes (cause -> number).

    The cause is `exit:0` if all ended so, else the commonest other one.
    """
    total = sum(causes.values())
    failed = sorted(
        ((number, cause) for cause, number in causes.items() if cause != "exit:0"), key=lambda one: (-one[0], one[1])
    )
    if not failed:
        return "exit:0", f"all {total} tasks ended with exit code 0"
    missed = sum(number for number, _ in failed)
    words = ", ".join(f"{number} {cause}" for number, cause in failed[:5])
    return failed[0][1], f"{missed} of {total} tasks did not end well: {words}{', …' if len(failed) > 5 else ''}"
