"""From a wish to stop, or the end of the job's first process, to nothing left of the job.

Invariant: the soft signal goes to the first process, once; a kill goes to all, again and again until nobody is left or the
time for it is over; every step has a deadline, so the ladder always comes to its end.
"""

from __future__ import annotations

import signal

from agent.jobs.shim.before_kill import BeforeKill
from agent.jobs.shim.records import now_iso

TYPE_CHECKING = False  # the module `typing` would cost a tenth of the shim's memory
if TYPE_CHECKING:
    from agent.jobs.shim.holder import Holder
    from agent.jobs.shim.launch import Launch, Order
    from agent.jobs.shim.leader import Leader

RUN, GRACE, SETTLE, TERMINATE, KILL, OVER = range(6)
_SETTLE_SECONDS = 0.1
"""So long may what the job's own end is about to end (a resource tracker, a pipe's last reader) take for it."""
_LOOK_SECONDS = 0.005
_LOOK_MOST_SECONDS = 0.1
_KILL_AGAIN_SECONDS = 0.25


class Ladder:
    """`step` whenever something may have happened; times are of the monotonic clock, in seconds."""

    def __init__(self, launch: Launch, holder: Holder, leader: Leader) -> None:
        self._launch, self._holder, self._leader = launch, holder, leader
        self._before_kill = BeforeKill(launch.before_kill, holder.pids)
        self.phase = RUN
        self.order: Order | None = None
        """The first one; later ones only shorten its grace."""
        self.signalled_at: str | None = None
        self.killed_at: str | None = None
        self.leftover_killed = 0
        self._deadline = 0.0
        self._kill_again = 0.0
        self._look = _LOOK_SECONDS

    def stop(self, order: Order, now: float) -> None:
        """Takes an order; one that comes after the first process has ended by itself changes nothing."""
        if self.phase == RUN and not self._leader.over:
            self.order, self.phase = order, GRACE
            self._deadline = now + order.grace_seconds
        elif self.phase == GRACE:
            self._deadline = min(self._deadline, now + order.grace_seconds)

    def helper_ended(self, pid: int) -> None:
        self._before_kill.ended(pid)

    def step(self, now: float) -> float | None:
        """Goes on as far as it can; when to call it again at the latest, or None: only when something happens."""
        if self.phase in (RUN, GRACE) and self._leader.over:
            self._first_has_ended(now)
        if self.phase == GRACE:
            self._be_soft(now)
        if self.phase == SETTLE and (self._holder.empty() or now >= self._deadline):
            self._leave_or_kill(now)
        if self.phase == TERMINATE and (self._nothing_left() or self._before_kill.step(now)):
            self._begin_kill(now)
        if self.phase == KILL:
            self._go_on_killing(now)
        return self._next(now)

    def _first_has_ended(self, now: float) -> None:
        """By itself: others get a moment; after a soft signal: what is left is killed at once."""
        if self.phase == RUN:
            self.phase, self._deadline = SETTLE, now + _SETTLE_SECONDS
        else:
            self._leave_or_kill(now)

    def _be_soft(self, now: float) -> None:
        if now >= self._deadline:
            self.phase = TERMINATE
        elif self.signalled_at is None and self._leader.begun and self.order is not None:
            if self._leader.send(self.order.signal, wake=True):
                self.signalled_at = now_iso()

    def _leave_or_kill(self, now: float) -> None:
        if self._holder.empty():
            self.phase = OVER
        else:
            self.leftover_killed = len(self._holder.pids())
            self.phase = TERMINATE

    def _nothing_left(self) -> bool:
        return self._leader.over and self._holder.empty()

    def _begin_kill(self, now: float) -> None:
        self.phase, self._deadline = KILL, now + self._launch.kill_wait_seconds
        self._kill_again, self._look = now, _LOOK_SECONDS

    def _go_on_killing(self, now: float) -> None:
        if self._nothing_left():
            self.phase = OVER
            return
        if now >= self._kill_again:
            self._kill(now)
        if self._nothing_left() or now >= self._deadline:
            self.phase = OVER

    def _kill(self, now: float) -> None:
        self.killed_at = self.killed_at or now_iso()
        self._holder.kill()
        self._leader.send(signal.SIGKILL)  # where it has left its group
        self._kill_again = now + _KILL_AGAIN_SECONDS

    def _next(self, now: float) -> float | None:
        if self.phase == GRACE:
            return self._deadline
        if self.phase == TERMINATE:
            return self._before_kill.deadline
        if self.phase in (SETTLE, KILL):
            self._look = min(self._look * 1.5, _LOOK_MOST_SECONDS)
            return min(now + self._look, self._deadline)
        return None
