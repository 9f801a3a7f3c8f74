"""The job's first process: a child of the shim, so its pid means nobody else until the shim takes its status.

Invariant: its status is taken once, and no signal is sent after that.
"""

from __future__ import annotations

import os
import signal

from agent.jobs.shim.records import start_ticks, stat_fields


class Leader:
    """`begun`: its program has begun; `over`: it has ended. Then one of `exit_code` and `signal` is set."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.start_ticks = start_ticks(pid)  # it is there until its status is taken
        self.begun = False
        self.over = False
        self.exit_code: int | None = None
        self.signal: int | None = None

    def take_status(self) -> None:
        """It is a zombie: waitid has said so."""
        result = os.waitid(os.P_PID, self.pid, os.WEXITED)
        self.over = True
        if result is not None and result.si_code == os.CLD_EXITED:
            self.exit_code = result.si_status
        elif result is not None:
            self.signal = result.si_status

    def send(self, number: int, *, wake: bool = False) -> bool:
        """Whether it was sent. `wake`: also lets a stopped process go on, or it would never see the signal."""
        if self.over:
            return False
        try:
            os.kill(self.pid, number)
            if wake and self._stopped():
                os.kill(self.pid, signal.SIGCONT)
        except OSError:
            return False
        return True

    def _stopped(self) -> bool:
        fields = stat_fields(self.pid)
        return fields is not None and fields[0] == b"T"
