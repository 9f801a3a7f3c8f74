"""How the app writes to the terminal and reads from it: measured, never waiting, and not hurt by what a terminal sends.

Invariant: the app's loop never waits for a terminal that takes no bytes; what was pasted, and what cannot be understood, is no key.
"""

from __future__ import annotations

import os
import selectors
import time
from codecs import getincrementaldecoder
from typing import IO, Any

from textual import events
from textual._parser import ParseError
from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import LinuxDriver
from textual.widgets import Input

from tui.ui.governor import Governor

READ_BYTES = 4096
READ_SECONDS = 0.1
X10 = b"\x1b[M"
X10_BYTES = 6
PASTED_LETTERS = 4
PASTED_DIFFERENT = 3
LINE_SIGNS = "/:"
"""Keys that open a line to type into."""
OPENING_SECONDS = 2.0
"""So long a busy app may take to open one."""


class MouseOfOld:
    """Mouse reports of three bare bytes (X10) become those of digits (SGR).

    Terminals send them after tmux was attached anew. The bytes are no UTF-8 past column 95, and letters before: a click at
    column 81 would be `q`.
    """

    def __init__(self) -> None:
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """The same bytes, with the reports translated; a report that is cut waits for its end."""
        data, self._held = self._held + data, b""
        out: list[bytes] = []
        at = 0
        while (start := data.find(X10, at)) >= 0:
            out.append(data[at:start])
            if len(data) - start < X10_BYTES:
                self._held = data[start:]
                return b"".join(out)
            out.append(_sgr(*data[start + 3 : start + X10_BYTES]))
            at = start + X10_BYTES
        out.append(data[at:])
        return b"".join(out)


def _sgr(button: int, column: int, row: int) -> bytes:
    code = button - 32
    if min(code, column - 33, row - 33) < 0:
        return b""
    released = code & 3 == 3 and not code & 96  # neither a move nor the wheel
    return b"\x1b[<%d;%d;%d%s" % (code & ~3 if released else code, column - 32, row - 32, b"m" if released else b"M")


def looks_pasted(text: str) -> bool:
    """Whether a terminal without bracketed paste may have pasted what came in one read: several letters that nobody types so fast.

    A key that is held is typed, and so is a filter or a command from its first sign on, as a script sends it.
    """
    least = PASTED_LETTERS - any(sign in "\r\n" for sign in text)
    if len(text) < least or not all(sign.isprintable() or sign in "\r\n\t" for sign in text):
        return False
    if text[0] in LINE_SIGNS and not any(sign in "\r\n" for sign in text[:-1]):
        return False
    return len(set(text)) >= PASTED_DIFFERENT


class Pastes:
    """`looks_pasted` over several reads: what follows the sign that opens a line belongs to it, though the app is slow to open it."""

    def __init__(self) -> None:
        self._line_until = 0.0

    def has(self, text: str, now: float) -> bool:
        """Whether this read was pasted. `now`: monotonic seconds."""
        goes_on = now < self._line_until
        if looks_pasted(LINE_SIGNS[0] + text if goes_on else text):
            return True
        is_line = text.isprintable() and (goes_on or text[:1] in tuple(LINE_SIGNS))
        self._line_until = now + OPENING_SECONDS if is_line else 0.0
        return False


class MeteredFile:
    """The terminal's file: tells what it has taken."""

    def __init__(self, file: IO[str], governor: Governor) -> None:
        self._file = file
        self._governor = governor
        self._since_flush = 0

    def write(self, text: str) -> None:
        self._file.write(text)
        self._since_flush += size(text)

    def flush(self) -> None:
        self._file.flush()
        self._governor.written(self._since_flush)
        self._since_flush = 0

    def fileno(self) -> int:
        return self._file.fileno()


def size(text: str) -> int:
    """Bytes of it in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


class TerminalDriver(LinuxDriver):
    """The terminal that the app was started in."""

    def __init__(self, app: Any, **options: Any) -> None:
        super().__init__(app, **options)
        self._governor: Governor = getattr(app, "governor", None) or Governor()
        if self._file is not None:
            self._file = MeteredFile(self._file, self._governor)  # type: ignore[assignment]

    def start_application_mode(self) -> None:
        super().start_application_mode()
        if self._writer_thread is not None:
            self._writer_thread._queue.maxsize = 0  # a full queue would hold up the loop, and the signals with it

    def write(self, data: str) -> None:
        self._governor.queued(size(data))
        super().write(data)

    def run_input_thread(self) -> None:
        """Reads until the app ends or the terminal is gone (`terminal.tty_is_gone` ends the app then)."""
        parser = XTermParser(self._debug)
        decode = getincrementaldecoder("utf-8")("replace").decode
        mouse, pastes = MouseOfOld(), Pastes()
        with selectors.SelectSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            while not self.exit_event.is_set():
                if selector.select(READ_SECONDS):
                    data = _read(self.fileno)
                    if not data:
                        self.exit_event.wait(READ_SECONDS)
                        continue
                    text = decode(mouse.feed(data))
                    if pastes.has(text, time.monotonic()) and not _takes(self._app.focused, text):
                        self.process_message(events.Paste(text))
                    elif text:
                        self._tell(parser.feed(text))
                self._tell(parser.tick())
        try:
            for _ in parser.feed(""):
                pass
        except (EOFError, ParseError):
            pass

    def _tell(self, messages: Any) -> None:
        for message in messages:
            self.process_message(message)


def _takes(focused: Any, text: str) -> bool:
    """Whether text, pasted or not, is for what has the focus: a line, or another part of a form that one line is typed into."""
    return isinstance(focused, Input) or (getattr(focused, "IN_TURN", False) and not any(sign in "\r\n" for sign in text))


def _read(fileno: int) -> bytes:
    try:
        return os.read(fileno, READ_BYTES)
    except OSError:  # the terminal is gone
        return b""
