"""Which running jobs are stopped so that a higher one can start.

Invariant: a job is asked to go only if, once it and those that are already going are gone, the higher job really fits
beside everybody else who was promised room; what was promised is not given away to a third.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from itertools import combinations

from agent.jobs.placement import choose, held_by
from agent.jobs.room import Room
from agent.jobs.shapes import Held, Placed, Running, Waiting, Wanted

_MOST_SETS = 300
"""Combinations that are tried before it is done without the fewest, for the sake of time."""


class Eviction:
    """The room as it will be when those that are going are gone and those that were promised room have it."""

    def __init__(self, room: Room, running: Sequence[Running], crowded: Container[str | None] = ()) -> None:
        """`crowded`: arrays with tasks that wait for another task's end; they would come first into what is made free."""
        staying = () if any(one.stopping and one.array in crowded for one in running) else running
        self._staying = sorted(
            (one for one in staying if one.interruptible and not one.stopping and one.array not in crowded), key=_youngest
        )
        self._base = room.copy()
        """Without what was promised."""
        self._wanted: list[Wanted] = []
        self.going = [one.id for one in running if one.stopping]
        self.reasons: dict[str, str] = {}
        """Victim -> why it has to go."""
        self.promised: dict[str, tuple[str, ...]] = {}
        """Waiting job -> those that it waits to see gone."""
        for one in running:
            if one.stopping:
                self._base.give_back(one.held)
        self.room = self._base.copy()

    def make_room(self, job: Waiting) -> bool:
        """Promises the job its room: when those that are going are gone, or with the fewest and youngest victims."""
        victims = self._victims(job)
        if victims is None:
            return False
        for one in victims:
            self._base.give_back(one.held)
            self.room.give_back(one.held)
            self._staying.remove(one)
            self.going.append(one.id)
            self.reasons[one.id] = (
                f"had to make room for job {job.id}, whose priority is {job.priority} (its own is {one.priority})"
            )
        self._wanted.append(job.wanted)
        placed = choose(job.wanted, self.room)
        assert isinstance(placed, Placed), "it was seen to fit"
        self.room.take(held_by(job.id, job.wanted, placed))
        self.promised[job.id] = tuple(one.id for one in victims) or tuple(self.going)
        return True

    def take(self, held: Held) -> bool:
        """Whether what was promised still has room beside a job that gets this now; if so it is reckoned with."""
        room = self._with(held)
        if room is None:
            return False
        self.room = room
        self._base.take(held)
        return True

    def _with(self, held: Held) -> Room | None:
        room = self._base.copy()
        room.take(held)
        for wanted in self._wanted:
            placed = choose(wanted, room)
            if isinstance(placed, str):
                return None
            room.take(held_by("", wanted, placed))
        return room

    def _victims(self, job: Waiting) -> Sequence[Running] | None:
        if self.room.fits(job.wanted):
            return () if self.going else None
        lower = [one for one in self._staying if one.priority < job.priority]
        if not lower or not self._fits_without(lower, job.wanted):
            return None
        tried = 0
        for count in range(1, len(lower)):
            for some in combinations(lower, count):
                tried += 1
                if tried > _MOST_SETS:
                    return self._fewer(lower, job.wanted)
                if self._fits_without(some, job.wanted):
                    return some
        return lower

    def _fewer(self, lower: Sequence[Running], wanted: Wanted) -> Sequence[Running]:
        """For many victims: all of them, less those that are not needed; the smallest or the oldest are spared first."""

        def spared(order: Sequence[Running]) -> list[Running]:
            needed = list(lower)
            for one in order:
                rest = [other for other in needed if other is not one]
                if self._fits_without(rest, wanted):
                    needed = rest
            return needed

        by_size = sorted(lower, key=lambda one: (len(one.held.gpus), one.held.share or 0, one.held.cpu_millis))
        return min(spared(by_size), spared(list(reversed(lower))), key=len)

    def _fits_without(self, some: Sequence[Running], wanted: Wanted) -> bool:
        for one in some:
            self.room.give_back(one.held)
        fits = self.room.fits(wanted)
        for one in some:
            self.room.take(one.held)
        return fits


def _youngest(one: Running) -> tuple[int, int, str]:
    return -one.started_ms, one.priority, one.id
