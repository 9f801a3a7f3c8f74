"""The rows that have not ended, in memory, counted in the ways that are asked for all the time.

Invariant: it says what the file says: `JobStore` changes it after a commit, and never otherwise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from agent.errors import JobConflict
from agent.jobs import dependencies
from agent.jobs.dependencies import Outcome
from agent.jobs.rows import JobRow
from agent.jobs.shapes import WHOLE, share_of


class QueueMemory:
    def __init__(self) -> None:
        self.live: dict[str, JobRow] = {}
        self.holding: dict[str, JobRow] = {}
        self.left: Counter[str] = Counter()
        """Array -> tasks that have not ended."""
        self.states: Counter[str] = Counter()
        """State -> jobs and tasks; arrays' own rows do not count."""
        self.outcomes: dict[str, Outcome] = {}
        self.needed: set[str] = set()
        """Ids that unended jobs depend on (and some that they did)."""

    def enter(self, row: JobRow) -> None:
        """A row that is new here."""
        self._count(row, 1)
        if row.state == "ended":
            self.live.pop(row.id, None)
            if row.id in self.needed:
                self.outcomes[row.id] = dependencies.outcome(row.cause)
        else:
            self.live[row.id] = row
        if row.holds:
            self.holding[row.id] = row
        else:
            self.holding.pop(row.id, None)

    def replace(self, row: JobRow) -> None:
        """A row as it is now; one that had ended before is not kept."""
        before = self.live.get(row.id)
        if before is not None:
            self._count(before, -1)
            self.enter(row)

    def need(self, row: JobRow, ended: Iterable[tuple[str, Outcome]]) -> None:
        """What a new row depends on; `ended`: how those ended that are not here."""
        self.needed.update(need.id for need in dependencies.parse(row.spec.after))
        self.outcomes.update(ended)

    def forget_needs(self) -> None:
        """Of jobs that have ended since."""
        after = {row.spec.after for row in self.live.values() if row.spec.after}
        self.needed = {need.id for some in after for need in dependencies.parse(some)}
        self.outcomes = {id: outcome for id, outcome in self.outcomes.items() if id in self.needed}

    def check_gpus(self, row: JobRow, gpus: Sequence[str]) -> None:
        """JobConflict where a GPU is held by another job, or its shares would sum to more than 1."""
        for gpu in gpus:
            others = [one for one in self.holding.values() if gpu in one.gpus and one.id != row.id]
            shares = [share_of(one.spec.gpu_share) or WHOLE for one in (row, *others)]
            if others and sum(shares) > WHOLE:
                raise JobConflict(f"GPU {gpu} is held by job {', '.join(one.id for one in others)}")

    def _count(self, row: JobRow, sign: int) -> None:
        if row.is_array:
            return
        self.states[row.state] += sign
        if row.array is not None and row.state != "ended":
            self.left[row.array] += sign
            if not self.left[row.array]:
                del self.left[row.array]
