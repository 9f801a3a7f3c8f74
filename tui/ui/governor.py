"""How many bytes the app writes to the terminal, and how often it may refresh so that a slow line is not drowned.

Invariant: only the refreshes that nobody asked for wait: what a key changes is painted at once, and is paid for by later
refreshes. No picture is queued behind one that the terminal has not taken yet.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

WINDOW_SECONDS = 5
BURST_SECONDS = 3.0
"""What may be written at once after a quiet time, in seconds of the budget."""
DEBT_SECONDS = 60.0
"""The longest that pictures are paid for: many keys on a very slow line should not stop the refreshes for longer."""
BLURRED_SECONDS = 5.0
"""How often a terminal that nobody looks at is refreshed."""
SKIPS_BEFORE_PLOTS = 2
PLOTS_AGAIN_SECONDS = 60.0


class Governor:
    """`budget`: bytes a second, 0 for none. `queued` is called by the loop, `written` by the thread that writes."""

    def __init__(self, budget: float = 0.0, clock: Callable[[], float] = time.monotonic) -> None:
        self.budget = budget
        self.blurred = False
        self.plots = True
        """Whether plots are drawn: they go first."""
        self._clock = clock
        self._credit = budget * BURST_SECONDS
        self._credit_at = clock()
        self._window: deque[tuple[int, int]] = deque(maxlen=WINDOW_SECONDS + 1)
        self._lock = threading.Lock()
        self._pending = 0
        self._refreshed_at = float("-inf")
        self._skipped = 0
        self._plots_off_at = 0.0

    # -- what was written -----------------------------------------------------------------------------------------

    def queued(self, count: int) -> None:
        """So many bytes are on their way to the terminal."""
        second = int(self._clock())
        if self._window and self._window[-1][0] == second:
            count_before = self._window.pop()[1]
            self._window.append((second, count_before + count))
        else:
            self._window.append((second, count))
        with self._lock:
            self._pending += count
        self._pay(count)

    def written(self, count: int) -> None:
        """The terminal has taken so many of them."""
        with self._lock:
            self._pending = max(0, self._pending - count)

    @property
    def pending(self) -> int:
        """Bytes that the terminal has not taken yet."""
        return self._pending

    def _pay(self, count: int) -> None:
        now = self._clock()
        earned = (now - self._credit_at) * self.budget
        self._credit_at = now
        self._credit = max(min(self._credit + earned, self.budget * BURST_SECONDS) - count, -self.budget * DEBT_SECONDS)

    def rate(self) -> float:
        """Bytes a second, over the last five whole seconds."""
        now = int(self._clock())
        return sum(count for second, count in self._window if now - WINDOW_SECONDS <= second < now) / WINDOW_SECONDS

    def rate_text(self) -> str:
        """`12 kB/s` where there is a budget; empty where there is none."""
        if not self.budget:
            return ""
        kilobytes = self.rate() / 1000
        text = f"{kilobytes:.0f}" if kilobytes >= 9.5 or kilobytes < 0.05 else f"{kilobytes:.1f}"
        return f"{text} kB/s"

    # -- what may be written ----------------------------------------------------------------------------------------

    def may_refresh(self) -> bool:
        """Whether the second that has passed is shown now. Answers differ as time goes on: ask once a second."""
        now = self._clock()
        if self.blurred and now - self._refreshed_at < BLURRED_SECONDS:
            return False
        if self._pending or self._is_in_debt():
            self._skipped += 1
            if self._skipped >= SKIPS_BEFORE_PLOTS and self.plots:
                self.plots, self._plots_off_at = False, now
            return False
        self._skipped = 0
        self._refreshed_at = now
        if not self.plots and now - self._plots_off_at >= PLOTS_AGAIN_SECONDS and self.rate() * 4 <= self.budget:
            self.plots = True
        return True

    def _is_in_debt(self) -> bool:
        if not self.budget:
            return False
        self._pay(0)
        return self._credit < 0

    def wait_seconds(self, usual: float) -> float:
        """How long news that come by themselves (lines of a log) are gathered before they are painted."""
        if not self.budget:
            return usual
        self._pay(0)
        return max(usual, -self._credit / self.budget)
