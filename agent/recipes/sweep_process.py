"""A trial's process: started, its lines read as they come, ended with all that it started.

Invariant: after `end` no process of this run is left; a process whose parent dies is told to stop and save. Its end is seen by
its pidfd and it is waited for last of all, so that its group's number is no other's when the group is killed. No Ray here.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import secrets
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent.recipes.sweep_left import end_left
from agent.recipes.sweep_plan import Plan, filled

SAVE_SECONDS = 8.0
"""From the soft signal to the kill."""
LAST = "last.json"
WORDS = "stderr.txt"
FOLDER, RUN = "RACKRATE_CHECKPOINT_DIR", "RACKRATE_TRIAL_RUN"
"""By these variables the processes of a trial, and of one run of it, are known."""
KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)
"""As a shell tells it of its child. Nobody kills itself so: it was the kernel, for its memory, or a person."""
_HIDDEN = ("RAY_AUTH_TOKEN_PATH", "RAY_AUTH_MODE", "RAY_ADDRESS")
_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


class Running:
    """One trial on this node; it goes on from its own checkpoints where it has been here before."""

    def __init__(self, plan: Plan, number: int, values: Mapping[str, Any], *, work: Path, checkpoints: Path) -> None:
        self._plan, self.number = plan, number
        self.folder = checkpoints / "trials" / f"{number:04}"
        self.folder.mkdir(parents=True, exist_ok=True)
        end_left(FOLDER, str(self.folder), SAVE_SECONDS)  # of a lost actor: two would write the same checkpoints
        self._last = self._kept()
        self._news: dict[str, Any] | None = None
        self._lines = 0
        self._changed = threading.Condition()
        self._closed = False
        self._code: int | None = None
        self._ending = threading.Lock()
        self._taken = False
        self._run = f"{number}-{secrets.token_hex(8)}"
        self._began = time.monotonic()
        self._process = self._started(filled(plan.command, {"python": sys.executable, **values}), work)
        self._pidfd = os.pidfd_open(self._process.pid)
        self._reader = threading.Thread(target=self._read, name=f"trial-{number}", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def seconds(self) -> float:
        """Of this run."""
        return time.monotonic() - self._began

    def _started(self, argv: list[str], work: Path) -> subprocess.Popen[str]:
        environment = {name: value for name, value in os.environ.items() if name not in _HIDDEN}
        environment |= {FOLDER: str(self.folder), "RACKRATE_TRIAL": str(self.number), RUN: self._run}
        with (self.folder / WORDS).open("ab") as words:
            return subprocess.Popen(
                argv, cwd=work, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=words, text=True,
                errors="replace", start_new_session=True, preexec_fn=_stop_with_parent,
            )  # fmt: skip

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                report = self._report(line)
                if report is not None:
                    with self._changed:
                        self._news = report
                        self._changed.notify_all()
        self._over(None)
        code = self._exit_code()
        with self._changed:
            self._closed, self._code = True, code
            self._changed.notify_all()

    def _report(self, line: str) -> dict[str, Any] | None:
        """Of a line that has the metric; its step is the line's own, or how many there were."""
        try:
            told = json.loads(line)
        except ValueError:
            return None
        metric = told.get(self._plan.metric) if isinstance(told, dict) else None
        if isinstance(metric, bool) or not isinstance(metric, (int, float)) or not math.isfinite(metric):
            return None
        self._lines += 1
        step = told.get("step")
        return {"metric": float(metric), "step": step if type(step) is int else self._lines}

    def next(self) -> dict[str, Any]:
        """The newest report, waited for; with `ended` where the process has ended well, with `failed` where it has not."""
        with self._changed:
            self._changed.wait_for(lambda: self._news is not None or self._closed)
            closed, report, self._news = self._closed, self._news, None
        if report is not None:
            self._last = report
            self._keep()
        if not closed:
            return {**(report or {}), "run_seconds": self.seconds}
        fault = self._fault()
        end = {"failed": fault, "killed": self._code in KILLED} if fault else {"ended": True, **(self._last or {})}
        return {**end, "run_seconds": self.seconds}

    def _fault(self) -> str | None:
        if code := self._code:
            how = f"exit {code}" if code > 0 else f"signal {-code}"
            said = self._last_words()
            return f"{how}{f': {said}' if said else ''}"
        return None if self._last else f"none of its lines had a number `{self._plan.metric}`"

    def _last_words(self) -> str:
        with contextlib.suppress(OSError):
            data = (self.folder / WORDS).read_bytes()[-2000:].decode("utf-8", "replace")
            lines = [line.strip() for line in data.splitlines() if line.strip()]
            return lines[-1][:300] if lines else ""
        return ""

    def end(self) -> None:
        """Softly, so that it saves; then for good, with all that it started."""
        with self._ending:
            if self._taken:
                return
            for number, seconds in ((signal.SIGTERM, SAVE_SECONDS), (signal.SIGKILL, 5.0)):
                if not self._over(0):
                    os.killpg(self.pid, number)
                    self._over(seconds)
            end_left(RUN, self._run)
            if self._over(0) and self._exit_code() is not None:  # a zombie: the number is its group's, still
                os.killpg(self.pid, signal.SIGKILL)
            self._reader.join(5)
            if self._over(0):
                self._process.wait()
                self._taken = True
            self._keep()

    def _over(self, seconds: float | None) -> bool:
        """Whether it ends within that time; it is not waited for."""
        poller = select.poll()
        poller.register(self._pidfd, select.POLLIN)
        return bool(poller.poll(None if seconds is None else seconds * 1000))

    def _exit_code(self) -> int | None:
        """As `Popen` has it, of one that is over; it stays a zombie."""
        with contextlib.suppress(ChildProcessError):  # a stray that holds its output may outlive `end`
            told = os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOWAIT)
            if told is not None:
                return told.si_status if told.si_code == os.CLD_EXITED else -told.si_status
        return None

    def _keep(self) -> None:
        if self._last is None:
            return
        part = self.folder / f"{LAST}.part"
        part.write_text(json.dumps(self._last))
        part.replace(self.folder / LAST)

    def _kept(self) -> dict[str, Any] | None:
        try:
            kept = json.loads((self.folder / LAST).read_text())
            return kept if isinstance(kept, dict) and "metric" in kept else None
        except (OSError, ValueError):
            return None


def _stop_with_parent() -> None:
    _LIBC.prctl(_SET_PDEATHSIG, signal.SIGTERM)
