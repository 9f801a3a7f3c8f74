"""The terminal around the app: is there one, what can it draw, and how it is given back.

Invariant: whatever ends the program (a signal, a vanished tty), the terminal is left as it was found.
No Textual here: the commands ask the same questions.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Literal

Ground = Literal["", "dark", "light", "console"]
SIGNALS = (signal.SIGTERM, signal.SIGHUP)
HEARTBEAT_SECONDS = 1.0
"""How often the tty is looked for: without it Textual's input thread would spin for ever."""
SSH_KBPS = 256.0
"""32 kB/s: a usual fleet stays below it, and a line of SSH is not filled by 200 columns that all change."""
LOST_TTY_CODE = 128 + signal.SIGHUP


def has_terminal() -> bool:
    """The app reads keys from stdin and draws on stderr; both must be a terminal, and stdout too, or it is a pipe."""
    streams = (sys.__stdin__, sys.__stdout__, sys.__stderr__)
    try:
        return all(stream is not None and os.isatty(stream.fileno()) for stream in streams)
    except (ValueError, OSError):
        return False


def kbps(wanted: float | None, environ: Mapping[str, str] = os.environ) -> float:
    """Kilobits a second that the app may write: what is asked for, else a limit over SSH alone; 0 is none."""
    return wanted if wanted is not None else SSH_KBPS if environ.get("SSH_CONNECTION") else 0.0


def mouse_works(environ: Mapping[str, str] = os.environ) -> bool:
    """GNU screen with mouse reports on keeps Esc to itself until another key comes. `TERM=screen` without `TMUX` may be it, far away."""
    return not environ.get("STY") and (bool(environ.get("TMUX")) or not environ.get("TERM", "").startswith("screen"))


def is_served(environ: Mapping[str, str] = os.environ) -> bool:
    """A browser is at the other end of stdin and stdout: `rackrate serve` (or textual-serve) says so."""
    return "web_driver" in environ.get("TEXTUAL_DRIVER", "") and not has_terminal()


def draws_unicode(environ: Mapping[str, str] = os.environ) -> bool:
    """True when what is drawn (on stderr, or by a browser) is encoded as UTF-8; otherwise only ASCII is safe."""
    if is_served():
        return True
    if environ.get("LC_ALL") in ("C", "POSIX") and not environ.get("PYTHONIOENCODING"):
        return False  # Python writes UTF-8 all the same; the terminal was said to know ASCII alone
    encoding = getattr(sys.__stderr__, "encoding", None) or "ascii"
    return encoding.lower().replace("-", "").replace("_", "") == "utf8"


def tolerate_encoding() -> None:
    """A character that the terminal's encoding lacks becomes `?` instead of an escape sequence of several cells."""
    reconfigure = getattr(sys.__stderr__, "reconfigure", None)
    if reconfigure is not None and not draws_unicode():
        reconfigure(errors="replace")


def follow_real_size() -> None:
    """COLUMNS and LINES, exported by some shells, would hold the size still when the window is resized."""
    if not is_served():  # there they are the size of the browser's window
        os.environ.pop("COLUMNS", None)
        os.environ.pop("LINES", None)


def no_color(environ: Mapping[str, str] = os.environ) -> bool:
    """https://no-color.org: set and not empty."""
    return bool(environ.get("NO_COLOR"))


def few_colors(environ: Mapping[str, str] = os.environ) -> bool:
    """The terminal says that it has 16 colours or fewer, so themes of exact colours would be guessed at."""
    term = environ.get("TERM", "")
    if environ.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return False
    return term in ("linux", "vt100", "vt220", "ansi", "xterm-16color", "screen", "xterm", "dumb")


def ground(environ: Mapping[str, str] = os.environ) -> Ground:
    """What the sixteen colours lie on, where the terminal says so: Linux's console is dark; others put it into COLORFGBG."""
    if environ.get("TERM") == "linux":
        return "console"
    behind = environ.get("COLORFGBG", "").rpartition(";")[2]
    if not behind.isdecimal():
        return ""
    return "light" if int(behind) in (7, *range(9, 16)) else "dark"


def allow_many_files() -> None:
    """A stream to each of 1,000 nodes needs more files than the usual soft limit of 1,024."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = hard if hard != resource.RLIM_INFINITY else 65_536
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def exit_on_signals(loop: asyncio.AbstractEventLoop, leave: Callable[[int], None]) -> None:
    """SIGTERM and SIGHUP call `leave(128 + number)` in the loop, instead of ending the process at once."""
    for number in SIGNALS:
        try:
            loop.add_signal_handler(number, leave, 128 + number)
        except (NotImplementedError, RuntimeError, ValueError):
            return


def ending() -> asyncio.Future[int]:
    """Done with the number of the signal that asks for the end."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[int] = loop.create_future()

    def end(number: int) -> None:
        if not ended.done():
            ended.set_result(number)

    for number in (signal.SIGINT, *SIGNALS):
        with contextlib.suppress(ValueError, NotImplementedError, RuntimeError):  # not in the main thread
            loop.add_signal_handler(number, end, number)
    return ended


def tty_is_gone() -> bool:
    """The terminal was closed while SIGHUP is ignored (nohup, a dead SSH): reads would return nothing for ever.

    Where the app is served: the server is gone, killed perhaps.
    """
    import termios

    stream = sys.__stdin__
    if is_served():
        return stream is None or _writer_is_gone(stream.fileno())
    if stream is None:
        return False
    try:
        termios.tcgetattr(stream.fileno())
    except (termios.error, OSError, ValueError):
        return True
    return False


def _writer_is_gone(pipe: int) -> bool:
    import select

    poll = select.poll()
    poll.register(pipe, 0)
    return any(found & (select.POLLHUP | select.POLLERR | select.POLLNVAL) for _, found in poll.poll(0))
