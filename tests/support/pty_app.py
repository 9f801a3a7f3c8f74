"""The app on a pseudo-terminal that takes as many bytes a second as a test wants, and a child that shows 1,000 changing rows.

Invariant: what the child writes is read by one thread, at the pace of the moment; closing it ends the child.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class SlowTerminal:
    """`pace`: bytes a second that are taken; None for all there are."""

    def __init__(self, arguments: list[str], size: tuple[int, int] = (120, 40), **environ: str) -> None:
        self.pace: float | None = None
        self.taken = 0
        self.newest = b""
        self._closed = threading.Event()
        self.pid, self._master = pty.fork()
        if self.pid == 0:
            os.chdir(ROOT)
            for name in ("COLORTERM", "TMUX", "STY", "NO_COLOR", "SSH_CONNECTION"):
                os.environ.pop(name, None)
            os.environ.update({"TERM": "xterm-256color", "LANG": "C.UTF-8", "PYTHONPATH": str(ROOT), **environ})
            os.execv(sys.executable, [sys.executable, *arguments])
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
        self._thread = threading.Thread(target=self._pump, daemon=True)
        self._thread.start()

    def _pump(self) -> None:
        while not self._closed.is_set():
            if not select.select([self._master], [], [], 0.05)[0]:
                continue
            try:
                data = os.read(self._master, 256 if self.pace else 65_536)
            except OSError:
                return
            self.taken += len(data)
            self.newest = (self.newest + data)[-65_536:]
            if self.pace:
                time.sleep(len(data) / self.pace)

    def send(self, data: bytes) -> None:
        """As if typed."""
        os.write(self._master, data)

    def wait(self, part: bytes, seconds: float = 60.0) -> float:
        """Seconds until it was written. AssertionError when it never was."""
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            if part in self.newest:
                return time.monotonic() - began
            time.sleep(0.01)
        raise AssertionError(f"{part!r} was not written: {self.newest[-600:]!r}")

    def count(self, seconds: float) -> int:
        """Bytes that come within so many seconds."""
        before = self.taken
        time.sleep(seconds)
        return self.taken - before

    def is_alive(self) -> bool:
        try:
            return Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[0] != "Z"
        except OSError:
            return False

    def close(self) -> None:
        self._closed.set()
        self._thread.join(2)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
        with contextlib.suppress(OSError):
            os.close(self._master)


def main(budget: str) -> None:
    """1,000 nodes, all of which change each second, on the terminal; `budget`: bytes a second."""
    import itertools

    from tests.support import fleets
    from tui.ui.app import RackrateApp
    from tui.ui.governor import Governor

    fleet = fleets.many(1000, gpus=4)
    names = [view.name for view in fleet]

    def changed(turn: int, number: int, name: str):  # noqa: ANN202
        gpus = tuple(fleets.gpu(i, node=name, util=(turn * 37 + number + i) % 100 / 100) for i in range(4))
        return fleets.wire.SampleEvent(sample=fleets.sample(name, gpus, turn))

    rounds = [[(name, changed(turn, number, name)) for number, name in enumerate(names[:60])] for turn in range(5)]
    app = RackrateApp(fleet, clock=lambda: fleets.NOW, theme="rackrate-dark", governor=Governor(float(budget)))
    coming = itertools.cycle(rounds)

    def change() -> None:
        for name, event in next(coming):
            fleet.apply(name, event, fleets.NOW)

    app.call_later(app.set_interval, 0.5, change)
    app.run()
    sys.exit(app.return_code or 0)


if __name__ == "__main__":
    main(sys.argv[1])
