"""Whose processes these are: the job of an MPS client, the user of a server, the way to the daemon's folder.

Invariant: nothing here raises for a process that is gone or may not be looked at; it is not known then.
"""

from __future__ import annotations

import os
import pwd
import re
import stat
from pathlib import Path

from agent.wire.jobs import JOB_ID

_UNIT = re.compile(rf"job-({JOB_ID})-[0-9]+", re.ASCII)


def job_of(pid: int) -> str | None:
    """The job whose cgroup a process is in, else the one that its environment names."""
    try:
        groups = Path(f"/proc/{pid}/cgroup").read_text(errors="replace")
        if found := _UNIT.search(groups):
            return found[1]
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    named = next((word.partition(b"=")[2] for word in words if word.startswith(b"RACKRATE_JOB=")), b"")
    name = named.decode("ascii", errors="replace")
    return name if re.fullmatch(JOB_ID, name, re.ASCII) else None


def process_uid(pid: int) -> int | None:
    """The user that a process runs as."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as lines:
            return next((int(line.split()[2]) for line in lines if line.startswith("Uid:")), None)
    except OSError:
        return None


def user_name(uid: int | None) -> str:
    """`user alice`, or the number where it has no name."""
    try:
        return f"user {pwd.getpwuid(-1 if uid is None else uid).pw_name}"
    except (KeyError, OverflowError):
        return f"user {uid}"


def closed_to(uid: int, folder: Path) -> Path | None:
    """The first folder on the way down that a user may not pass; None where the way is open."""
    for part in [*reversed(folder.absolute().parents), folder.absolute()]:
        try:
            status = os.stat(part)
        except OSError:
            return None  # made by us later, and open
        if uid not in (0, status.st_uid) and not stat.S_IMODE(status.st_mode) & stat.S_IXOTH:
            return part
    return None
