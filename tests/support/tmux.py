"""A small driver of a real tmux: start a program, send keys, look at the screen, and see whether the terminal was given back.

Invariant: each instance has a server of its own on a private socket and kills only that.
"""

from __future__ import annotations

import inspect
import shlex
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

MISSING = None if shutil.which("tmux") else "tmux is not installed: the tests in a real terminal are skipped"


class Tmux:
    """One window with `command` in it; `environ` as for env(1)."""

    def __init__(self, command: str, width: int = 80, height: int = 24, **environ: str) -> None:
        self._base = ["tmux", "-L", f"rackrate-{uuid.uuid4().hex[:8]}", "-f", "/dev/null"]
        variables = " ".join(f"{key}={shlex.quote(value)}" for key, value in environ.items())
        shell = f"env {variables} bash --norc --noprofile"
        subprocess.run(
            [*self._base, "new-session", "-d", "-s", "a", "-x", str(width), "-y", str(height), shell], check=True, timeout=60
        )
        self._run("set-option", "-g", "remain-on-exit", "on")
        self._run("set-option", "-g", "default-terminal", "tmux-256color")
        self.keys(command, "Enter")

    def __enter__(self) -> Tmux:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._run("kill-server")

    def _run(self, *arguments: str) -> str:
        return subprocess.run([*self._base, *arguments], capture_output=True, text=True, timeout=60).stdout

    def keys(self, *names: str) -> None:
        """tmux's names of keys: `Enter`, `Escape`, `Up`, or text."""
        self._run("send-keys", "-t", "a", *names)

    def paste(self, text: str, *, bracketed: bool) -> None:
        """As a terminal pastes, with the marks around it or without."""
        self._run("set-buffer", "-b", "pasted", text)
        self._run("paste-buffer", "-d", "-r", *(["-p"] if bracketed else []), "-b", "pasted", "-t", "a")

    def tell(self, *arguments: str) -> str:
        """Any command of this server, such as `show-buffer`."""
        return self._run(*arguments)

    def attach_command(self) -> list[str]:
        """What attaches another client."""
        return [*self._base, "attach-session", "-t", "a"]

    def text(self) -> str:
        """What is on the screen."""
        return self._run("capture-pane", "-p", "-t", "a")

    def colours(self) -> str:
        """The same with escape sequences."""
        return self._run("capture-pane", "-p", "-e", "-t", "a")

    def value(self, expression: str) -> str:
        """A tmux format such as `#{alternate_on}`."""
        return self._run("display-message", "-p", "-t", "a", expression).strip()

    @property
    def given_back(self) -> bool:
        """No alternate screen, no mouse reports, the cursor visible."""
        return self.value("#{alternate_on} #{mouse_any_flag} #{cursor_flag}") == "0 0 1"

    @property
    def shell_pid(self) -> int:
        return int(self.value("#{pane_pid}"))

    def resize(self, width: int, height: int) -> None:
        self._run("resize-window", "-t", "a", "-x", str(width), "-y", str(height))

    def log_to(self, path: str) -> None:
        """Every byte that the program writes, from now on."""
        self._run("pipe-pane", "-t", "a", f"cat >> {shlex.quote(path)}")

    def until(self, holds: Callable[[], bool], seconds: float = 60.0) -> bool:
        """Waits; False when it never held."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if holds():
                return True
            time.sleep(0.05)
        return holds()

    def when(self, holds: Callable[[str], bool], seconds: float = 60.0, what: str = "") -> str:
        """The first picture of which it holds; AssertionError with the last one when there is none.

        A picture may be taken while the terminal still reads the bytes of a frame, and after a change of its size while it
        shows what it kept: whatever is asserted of one picture has to be asked of it here, together.
        """
        deadline = time.monotonic() + seconds
        while not holds(shown := self.text()):
            assert time.monotonic() < deadline, f"this never held: {what or inspect.getsource(holds)}\nof the screen:\n{shown}"
            time.sleep(0.05)
        return shown

    def wait(self, *needles: str, seconds: float = 60.0) -> str:
        """The picture in which each of `needles` stands."""
        return self.when(lambda shown: all(needle in shown for needle in needles), seconds, f"{needles} stand there")


def live_rows(shown: str) -> list[str]:
    """The lines of nodes whose figures are of now."""
    return [line for line in shown.split("\n") if line[1:].lstrip().startswith("live ") and "node-" in line and "$" in line and "now" in line]


ROOT = Path(__file__).resolve().parents[2]


def command(config: Path, *, before: str = "", after: str = "; echo code=$?=") -> str:
    """The shell line that starts the app; `$?` is printed when it ends, with signs around it that typing it has not."""
    return f"cd {shlex.quote(str(ROOT))}; clear; {before}{shlex.quote(sys.executable)} -m tui.cli --config {shlex.quote(str(config))}{after}"


def ended_with(terminal: Tmux, code: int, seconds: float = 60) -> None:
    terminal.wait(f"code={code}=", seconds=seconds)
    assert terminal.until(lambda: terminal.given_back, 10)


def app_pid(terminal: Tmux) -> int:
    """The app below the shell."""

    def find() -> list[int]:
        children = Path(f"/proc/{terminal.shell_pid}/task/{terminal.shell_pid}/children").read_text(encoding="ascii").split()
        return [int(pid) for pid in children if b"tui.cli" in Path(f"/proc/{pid}/cmdline").read_bytes()]

    assert terminal.until(lambda: bool(find()), 10)
    return find()[0]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
