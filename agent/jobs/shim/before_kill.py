"""Commands that run before a kill (MPS wants its clients terminated first), one after the other, each with its time.

Invariant: they can delay a kill by no more than their times together, and never prevent it.
"""

from __future__ import annotations

import os
import signal

TYPE_CHECKING = False  # the module `typing` would cost a tenth of the shim's memory
if TYPE_CHECKING:
    from collections.abc import Callable

_PIDS = b"{cgroup_pids}"
_NO_FILES = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1, 2)]


class BeforeKill:
    """`step` until it says that all are done; `ended` takes the dead ones."""

    def __init__(self, commands: list[tuple[list[bytes], dict[bytes, bytes], float]], pids: Callable[[], list[int]]) -> None:
        self._waiting = list(commands)
        self._pids = pids
        self._running: int | None = None
        self.deadline: float | None = None
        """Of the command that runs; None: none does."""

    def step(self, now: float) -> bool:
        """Starts the next one, or ends one whose time is over; True: nothing more to do."""
        if self._running is not None and self.deadline is not None and now >= self.deadline:
            _end(self._running)
            self._running = None
        while self._running is None and self._waiting:
            argv, environment, seconds = self._waiting.pop(0)
            self._running = self._spawn(argv, environment)
            self.deadline = now + seconds
        if self._running is None:
            self.deadline = None
        return self._running is None

    def ended(self, pid: int) -> None:
        """A child of the shim has ended; it may have been ours."""
        if pid == self._running:
            self._running = None

    def _spawn(self, argv: list[bytes], environment: dict[bytes, bytes]) -> int | None:
        pids = b",".join(b"%d" % pid for pid in self._pids())
        argv = [part.replace(_PIDS, pids) for part in argv]
        every = [number for number in signal.valid_signals() if number not in (signal.SIGKILL, signal.SIGSTOP)]
        try:
            return os.posix_spawnp(
                argv[0], argv, environment, file_actions=_NO_FILES, setpgroup=0, setsigmask=(), setsigdef=every
            )
        except (OSError, ValueError, IndexError):
            return None


def _end(group: int) -> None:
    """The command with all that it started, as long as that stayed in its process group."""
    try:
        os.killpg(group, signal.SIGKILL)
    except OSError:
        pass
