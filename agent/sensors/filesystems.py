"""How full the local, writable file systems are, looked at in a slow lane of its own.

Invariant: `latest` never waits for a file system (but for the first look, and then half a second at most), and a remote
one is never asked: a dead NFS server would hold the asking thread for ever.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from typing import Any

import psutil

from agent import wire
from agent.sensors.lane import Lane

log = logging.getLogger(__name__)

INTERVAL_SECONDS = 10.0
STALE_SECONDS = 60.0
_FIRST_LOOK_SECONDS = 0.5
_NOT_LOCAL = frozenset(("nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "glusterfs", "lustre", "gpfs", "beegfs", "afs", "squashfs", "iso9660"))


class FilesystemLane:
    """Looks at the file systems every ten seconds in a daemon thread, which starts with the first question."""

    def __init__(self) -> None:
        self._lane = Lane("filesystems", "file system")
        self._looked = threading.Event()
        self._found: tuple[wire.Filesystem, ...] = ()
        self._found_at = 0.0

    def latest(self) -> tuple[wire.Filesystem, ...]:
        """What the last look found; empty when that is more than a minute ago (a disk hangs)."""
        if not self._lane.started:
            self._lane.start(self._run)
            self._looked.wait(_FIRST_LOOK_SECONDS)
        return self._found if time.monotonic() - self._found_at < STALE_SECONDS else ()

    def close(self) -> None:
        """Tells the thread to end; a hanging one is left behind."""
        self._lane.stop(_FIRST_LOOK_SECONDS)

    def _run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                self._found = filesystems()
                self._found_at = time.monotonic()
            except Exception:
                log.exception("the file systems could not be listed")
            self._looked.set()
            stop.wait(INTERVAL_SECONDS)


def filesystems() -> tuple[wire.Filesystem, ...]:
    """Each local writable device once, under its shortest mount point; `/` always, also where it is an overlay."""
    mounts = [part for part in psutil.disk_partitions(all=True) if part.mountpoint == "/"][-1:] + local_mounts()
    seen: set[str] = set()
    found = []
    for part in mounts:
        if part.mountpoint not in seen and (part.device not in seen):
            seen.update((part.mountpoint, part.device))
            found.append(_usage(part.mountpoint))
    return tuple(filesystem for filesystem in found if filesystem is not None)


def local_mounts() -> list[Any]:
    """Mounts of block devices that can be written, shortest path first; read from the mount table alone."""
    return sorted(filter(_is_local, psutil.disk_partitions(all=False)), key=lambda part: (len(part.mountpoint), part.mountpoint))


def _is_local(part: Any) -> bool:
    return part.fstype not in _NOT_LOCAL and "ro" not in part.opts.split(",") and os.path.isdir(part.mountpoint)


def _usage(mount: str) -> wire.Filesystem | None:
    try:
        status = os.statvfs(mount)
    except OSError:
        return None
    if not status.f_blocks:
        return None
    size = status.f_frsize
    return wire.Filesystem(
        mount=mount,
        total_bytes=status.f_blocks * size,
        used_bytes=(status.f_blocks - status.f_bfree) * size,
        available_bytes=status.f_bavail * size,
    )
