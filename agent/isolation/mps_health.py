"""How one control daemon and its servers do: what the daemon answers, and what its log tells.

Invariant: a daemon that is gone or silent, servers that fail again and again, and a fault of the GPU each have a state
and a sentence for as long as they last; nothing else is called trouble.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Literal, NamedTuple

from agent.errors import MpsFault
from agent.isolation import mps_log
from agent.isolation.mps_control import Control, MpsSilent

PROBE_SECONDS, SILENT_SECONDS = 2.0, 15.0
_READ_BACK_BYTES = 64 * 1024
"""How much of a log is read that was written before we looked."""


class Trouble(NamedTuple):
    """What is wrong; `kind` stays the same while it is the same trouble, though the words may change."""

    state: Literal["degraded", "fault"]
    kind: Literal["gone", "silent", "fault", "loop"]
    reason: str


class Health:
    """Of the daemon of GPU `uuid` that writes its logs to `logs`. `now` is local time as in the log, `clock` monotonic."""

    def __init__(
        self,
        uuid: str,
        control: Control,
        logs: Path,
        now: Callable[[], datetime] = datetime.now,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._uuid = uuid
        self._control = control
        self._logs = logs
        self._now, self._clock = now, clock
        self.forget()

    def forget(self) -> None:
        """A daemon of its own begins."""
        self.servers: tuple[int, ...] = ()
        self._faulted: tuple[int, ...] = ()
        self._unanswered: Trouble | None = None
        self._probe_at = float("-inf")
        self._told: Trouble | None = None
        self._history = mps_log.ServerHistory()
        self._tail = mps_log.LogTail(self._logs / "control.log", from_end=_READ_BACK_BYTES)

    def read_log(self) -> None:
        """Takes in what was written since."""
        self._history.take(self._tail.read())
        for name in ("control.log", "server.log"):
            mps_log.cut(self._logs / name)

    def due(self) -> bool:
        """Whether the daemon should be asked again."""
        return self._clock() >= self._probe_at

    def probe(self) -> None:
        """Asks the daemon which servers it has and how they are."""
        pause = PROBE_SECONDS
        try:
            servers = self._control.servers()
            self._faulted = tuple(server for server in servers if self._control.status(server) == "FAULT")
            self.answered(servers)
        except MpsSilent as fault:
            self.silent(fault)
            pause = SILENT_SECONDS
        except MpsFault:
            self.gone()
        self._probe_at = self._clock() + pause

    def answers(self) -> bool:
        """Whether the daemon answered when it was asked last."""
        return self._unanswered is None

    def answered(self, servers: tuple[int, ...]) -> None:
        """The daemon is there, with these servers."""
        self.servers, self._unanswered = servers, None

    def silent(self, fault: MpsFault) -> None:
        """The daemon is there and hangs."""
        self._unanswered = Trouble("degraded", "silent", f"the MPS control daemon of {self._uuid} hangs: {fault}")

    def gone(self) -> str:
        """The daemon is not there; returns the sentence."""
        reason = f"the MPS control daemon of {self._uuid} has died: its jobs cannot connect again, so stop them"
        self.servers, self._faulted, self._unanswered = (), (), Trouble("degraded", "gone", reason)
        return reason

    def trouble(self) -> Trouble | None:
        """What is wrong now."""
        if self._unanswered is not None:
            return self._unanswered
        if self._faulted or (self._history.fault_at and self.servers):
            server = ", ".join(map(str, self._faulted or self.servers))
            reason = (
                f"a client of the MPS server {server} on {self._uuid} had a fatal GPU exception, which all its clients get;"
                " new ones are refused until they have all ended"
            )
            return Trouble("fault", "fault", reason)
        loop = self._history.crash_loop(self._now())
        return Trouble("degraded", "loop", f"{self._uuid}: {loop}") if loop else None

    def news(self) -> str | None:
        """A sentence when trouble began or ended since the last call."""
        trouble, told = self.trouble(), self._told
        self._told = trouble
        if (trouble and trouble.kind) == (told and told.kind):
            return None
        return trouble.reason if trouble else f"MPS on {self._uuid} works again"
