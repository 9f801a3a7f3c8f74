"""One run a folder of checkpoints: two would write over each other's.

Invariant: the lock goes with the process that holds it, however that ends; a file system without locks stops nobody.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from agent.recipes.faults import CheckpointFault

LOCK = "running.lock"
_HERE = " on "


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Holds the folder meanwhile. Raises `CheckpointFault` where another run does, or where nothing can be written."""
    try:
        opened = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise CheckpointFault(f"{folder}: checkpoints cannot be kept there ({error.strerror}).") from None
    with os.fdopen(opened, "r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CheckpointFault(_in_use(folder, file.read(200).strip())) from None
        except OSError:
            pass  # no locks here
        file.truncate(0)
        file.write(f"process {os.getpid()}{_HERE}{socket.gethostname()}\n")
        file.flush()
        yield


def _in_use(folder: Path, who: str) -> str:
    """This machine's locks end with their processes; a file server may keep those of a machine that is gone."""
    told = f" ({who})" if who else ""
    gone = "" if who.endswith(f"{_HERE}{socket.gethostname()}") else (
        f"; where that machine is gone and its lock has outlived it, as on NFS, remove {folder / LOCK}"
    )  # fmt: skip
    return f"{folder} is in use by another run{told}; wait until that has ended, or name another folder{gone}."
