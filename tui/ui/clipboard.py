"""Copying: text goes to the clipboard of whoever sits at the terminal, also through SSH, tmux and screen.

Invariant: nothing is written to a terminal but the app's own, no control character is copied, and what became of it is said:
a text that is too large for a terminal is a file of the user's alone.

OSC 52 is the way that needs nothing but the terminal. Programs go first where they reach further: tmux takes a buffer from its
own command while it drops an application's OSC 52 by default, and Terminal.app and most of VTE know no OSC 52 at all, so on the
user's own machine (no `SSH_*`) pbcopy, wl-copy, xclip or xsel is asked.
"""

from __future__ import annotations

import base64
import contextlib
import io
import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from textual.app import App

from tui.money_files import MoneyFiles
from tui.ui.screens.base import RackrateScreen

LARGEST_BASE64 = 74_994
"""Bytes that terminals take in one OSC 52: xterm's and hterm's limit of 100,000 for the sequence, and less elsewhere."""
SCREEN_CHUNK = 240
"""GNU screen cuts a string sequence off at 256 bytes."""
PROGRAM_SECONDS = 2.0
SSH = ("SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY")
TMUX_HINT = "tmux takes it with `set -g set-clipboard on`"
FILE_NAME = "copied.txt"

_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def osc52(text: str, environ: Mapping[str, str]) -> str | None:
    """The bytes for the terminal, wrapped for what stands between; None where the text is too large."""
    encoded = base64.b64encode(text.encode("utf-8", "replace")).decode("ascii")
    if len(encoded) > LARGEST_BASE64:
        return None
    plain = f"\x1b]52;c;{encoded}\x07"
    if environ.get("STY"):
        pieces = (plain[at : at + SCREEN_CHUNK] for at in range(0, len(plain), SCREEN_CHUNK))
        return "".join(f"\x1bP{piece}\x1b\\" for piece in pieces)
    if in_tmux(environ):  # the bare one for set-clipboard, the wrapped one for allow-passthrough
        doubled = plain.replace("\x1b", "\x1b\x1b")
        return f"{plain}\x1bPtmux;{doubled}\x1b\\"
    return plain


def in_tmux(environ: Mapping[str, str]) -> bool:
    """Also where tmux runs at the other end of SSH. `TERM=screen` alone may be either, and screen would print the wrapping."""
    return bool(environ.get("TMUX")) or environ.get("TERM", "").startswith("tmux")


def programs(environ: Mapping[str, str], which: Callable[[str], str | None] = shutil.which) -> list[list[str]]:
    """Commands that take the text on stdin: tmux's own, and the one of this machine's screen unless it is far away."""
    found: list[list[str]] = []
    if environ.get("TMUX") and which("tmux"):
        found.append(["tmux", "load-buffer", "-w", "-"])
    if any(environ.get(name) for name in SSH):
        return found
    for name, needs, options in (
        ("pbcopy", None, []),
        ("wl-copy", "WAYLAND_DISPLAY", []),
        ("xclip", "DISPLAY", ["-selection", "clipboard"]),
        ("xsel", "DISPLAY", ["--clipboard", "--input"]),
    ):
        if (needs is None or environ.get(needs)) and which(name):
            return [*found, [name, *options]]
    return found


def took(command: list[str], text: str) -> bool:
    """Whether the program took it, within two seconds."""
    try:
        done = subprocess.run(
            command, input=text.encode("utf-8", "replace"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            timeout=PROGRAM_SECONDS, check=False,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0


def write_private(text: str, folder: Path) -> Path:
    """The newest text that was too large, readable by the user alone; the one of before is replaced. OSError."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, name = tempfile.mkstemp(dir=folder, prefix=".copied-")
    try:
        with open(handle, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
        os.replace(name, folder / FILE_NAME)
    except OSError:
        os.unlink(name)
        raise
    return folder / FILE_NAME


class Copying(App[None]):
    """`files` is the app's."""

    files: MoneyFiles
    copy_environ: Mapping[str, str] = os.environ
    _tmux_told = False

    def copy_text(self, text: str, what: str) -> None:
        """Copies `text`; `what` is how it is called in the status line: `3 names`."""
        text = _UNSAFE.sub("", text)
        if not text:
            self.tell_copied("There is nothing to copy.", "dim")
            return
        self._clipboard = text  # what Ctrl+V puts into a field
        commands = [] if self.is_headless or self.is_web else programs(self.copy_environ)
        sequence = osc52(text, self.copy_environ)
        if sequence is None and self.is_web:
            self.hand_over(FILE_NAME, text.encode("utf-8", "replace"))
        elif not commands and sequence is not None:
            self._by_terminal(sequence, what)
        else:
            threading.Thread(target=self._by_others, args=(text, what, commands, sequence), daemon=True, name="rackrate-copy").start()

    def _by_others(self, text: str, what: str, commands: list[list[str]], sequence: str | None) -> None:
        """In a thread: programs, else the terminal, else a file."""
        names = [command[0] for command in commands if took(command, text)]
        if names:
            tell = partial(self.tell_copied, f"copied {what} ({', '.join(names)})")
        elif sequence is not None:
            tell = partial(self._by_terminal, sequence, what)
        else:
            tell = partial(self.tell_copied, *self._by_file(text, what))
        with contextlib.suppress(RuntimeError):  # the app has ended meanwhile
            self.call_later(tell)

    def _by_terminal(self, sequence: str, what: str) -> None:
        if self._driver is not None:
            self._driver.write(sequence)
            self._driver.flush()
        hint = ""
        if in_tmux(self.copy_environ) and not self._tmux_told:
            self._tmux_told, hint = True, f"; {TMUX_HINT}"
        self.tell_copied(f"copied {what} (OSC 52{hint})")

    def _by_file(self, text: str, what: str) -> tuple[str, str]:
        try:
            path = str(write_private(text, self._copy_folder()))
        except OSError as error:
            return f"{what}: too large for the terminal's clipboard, and no file could be written: {error.strerror}.", "lost"
        home = os.path.expanduser("~")
        shown = f"~{path.removeprefix(home)}" if path.startswith(f"{home}/") else path
        return f"{what}: too large for the terminal's clipboard, written to {shown}", "idle"

    def hand_over(self, name: str, content: bytes) -> None:
        """A file for the person at the browser: a path of this machine would help nobody there."""
        self.deliver_binary(io.BytesIO(content), save_filename=name)
        self.tell_copied(f"sent {name} to the browser")

    def _copy_folder(self) -> Path:
        if self.files.data_dir is not None:
            return self.files.data_dir
        import platformdirs

        return Path(platformdirs.user_data_dir("rackrate"))

    def tell_copied(self, text: str, style: str = "accent") -> None:
        """In the status line; in a dialog, which has none, as a notice."""
        if isinstance(self.screen, RackrateScreen):
            self.screen.note(text, style)
        else:
            self.notify(text, markup=False)
