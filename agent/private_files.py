"""Files that hold a secret: written in one step, closed to other users from their first byte.

Invariant: at no moment does such a file exist half written or with a wider mode than was asked for; one that others can
read is refused, with the command that closes it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import stat
from pathlib import Path

from agent.errors import StateDirectoryError
from agent.state import worded


def write_private(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Puts `data` in the place of `path` in one step; the file never has a wider mode than `mode`. Durable."""
    scratch = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        _write_new(scratch, data, mode)
        os.replace(scratch, path)
        _settle(path.parent)
    except OSError as error:
        scratch.unlink(missing_ok=True)
        raise worded(error, path.parent, f"cannot take the file {path.name}") from None


def sweep(path: Path) -> None:
    """Removes what programs that were killed while they wrote `path` left beside it. Only for whoever alone writes it."""
    for scratch in path.parent.glob(f".{path.name}.*"):
        if len(scratch.suffix) == 9:
            with contextlib.suppress(OSError):
                scratch.unlink()


def _settle(folder: Path) -> None:
    """A name that came or went is on the disk too, as far as the file system knows how."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def create_once(path: Path, data: bytes) -> None:
    """As `write_private`, but an existing file wins: two agents that start at once end up with the same token."""
    scratch = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        _write_new(scratch, data, 0o600)
        os.link(scratch, path)
    except FileExistsError:
        pass
    except OSError as error:
        raise worded(error, path.parent, f"cannot take the file {path.name}") from None
    finally:
        scratch.unlink(missing_ok=True)


def _write_new(path: Path, data: bytes, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(descriptor)


def read_private(path: Path, what: str) -> bytes:
    """The content of a secret file; `what` names it in the sentence. Raises StateDirectoryError if others can read it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise StateDirectoryError(f"the {what} file {path} cannot be read ({error.strerror})") from None
    with os.fdopen(descriptor, "rb") as file:
        check_private(path, os.fstat(descriptor), what)
        return file.read(1_000_000)


def check_private(path: Path, status: os.stat_result, what: str) -> None:
    """Raises StateDirectoryError where others can read a secret, with the command that closes it."""
    if not stat.S_ISREG(status.st_mode):
        raise StateDirectoryError(f"the {what} file {path} is not a plain file; remove it")
    if status.st_mode & 0o077:
        mode = stat.S_IMODE(status.st_mode)
        raise StateDirectoryError(
            f"the {what} file {path} can be read by other users (mode {mode:04o}); close it with "
            f"`chmod 600 {shlex.quote(str(path))}`, and replace it if somebody may have read it"
        )
    if status.st_uid not in (0, os.geteuid()):
        raise StateDirectoryError(
            f"the {what} file {path} belongs to user {status.st_uid}, not to this one ({os.geteuid()}); "
            f"put it right with `chown {os.geteuid()} {shlex.quote(str(path))}`"
        )
