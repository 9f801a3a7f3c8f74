"""The calls made to a cgroup file system, and what is done with a whole tree of groups: list, kill, remove.

Invariant: a kill leaves out nobody below the group and hits nobody beside it. Standard library alone, and light: the
shim of every job loads this file.
"""

from __future__ import annotations

import errno
import os
import time

PAUSE_SECONDS = 0.002
GONE = (errno.ENOENT, errno.ENODEV)
_FREEZE_SECONDS = 2.0
_KILL_ROUNDS = 50
_FD_BATCH = 256
_SIGKILL = 9


class Kernel:
    """The few calls that are made to a cgroup file system; tests put a recording one in its place."""

    def mkdir(self, path: str) -> None:
        os.mkdir(path, 0o755)

    def rmdir(self, path: str) -> None:
        os.rmdir(path)

    def read(self, path: str) -> str:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            parts = []
            while part := os.read(descriptor, 65536):
                parts.append(part)
        finally:
            os.close(descriptor)
        return b"".join(parts).decode("ascii", "replace").strip()

    def write(self, path: str, text: str) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)

    def folders(self, path: str) -> list[str]:
        """Paths of the groups right below; none where the group is gone."""
        try:
            with os.scandir(path) as entries:
                return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError:
            return []


def kill_tree(kernel: Kernel, folder: str, unified: bool) -> None:
    """SIGKILL for every process in and below a group, by the best means that this kernel has."""
    if unified:
        try:
            return kernel.write(f"{folder}/cgroup.kill", "1")
        except OSError as error:
            if error.errno == errno.ENODEV or not os.path.isdir(folder):
                return
    freezer = _freezer(folder, unified)
    for _ in range(_KILL_ROUNDS):
        if freezer:
            _freeze(kernel, *freezer)
        try:
            left = _kill_all(kernel, folder)
        finally:
            if freezer:
                _try_write(kernel, freezer[0], freezer[2])
        if not left:
            return
        time.sleep(PAUSE_SECONDS)


def remove_trees(kernel: Kernel, folders: list[str], seconds: float) -> bool:
    """Removes groups and all below them. True: they are gone. A group that is in use stays."""
    deadline = time.monotonic() + seconds
    pause = PAUSE_SECONDS
    while True:
        folders = [folder for folder in folders if not _remove_tree(kernel, folder)]
        if not folders or time.monotonic() >= deadline:
            return not folders
        time.sleep(pause)
        pause = min(pause * 2, 0.05)


def wait_empty(kernel: Kernel, folder: str, seconds: float) -> bool:
    """Whether a group has no process within that time."""
    deadline = time.monotonic() + seconds
    while tree_pids(kernel, folder):
        if time.monotonic() >= deadline:
            return False
        time.sleep(PAUSE_SECONDS)
    return True


def _kill_all(kernel: Kernel, folder: str) -> int:
    """Signals who is there; how many that were. By pidfd, looked at twice: a recycled pid is never hit."""
    from signal import pidfd_send_signal

    found = tree_pids(kernel, folder)
    for start in range(0, len(found), _FD_BATCH):
        descriptors: dict[int, int] = {}
        try:
            for pid in found[start : start + _FD_BATCH]:
                try:
                    descriptors[pid] = os.pidfd_open(pid)
                except OSError:
                    continue
            for pid in set(descriptors).intersection(tree_pids(kernel, folder)):
                try:
                    pidfd_send_signal(descriptors[pid], _SIGKILL)
                except OSError:
                    continue
        finally:
            for descriptor in descriptors.values():
                os.close(descriptor)
    return len(found)


def _freezer(folder: str, unified: bool) -> tuple[str, str, str] | None:
    """File, and the texts that freeze and thaw."""
    name, freeze, thaw = ("cgroup.freeze", "1", "0") if unified else ("freezer.state", "FROZEN", "THAWED")
    path = f"{folder}/{name}"
    return (path, freeze, thaw) if os.path.exists(path) else None


def _freeze(kernel: Kernel, path: str, freeze: str, thaw: str) -> None:
    """Waits until it is so: before that a fork slips. Not for ever: a task in the kernel's hands cannot be frozen."""
    deadline = time.monotonic() + _FREEZE_SECONDS
    while True:
        _try_write(kernel, path, freeze)
        try:
            if freeze == "FROZEN":
                frozen = kernel.read(path) == "FROZEN"
            else:
                frozen = table(kernel.read(f"{path.rpartition('/')[0]}/cgroup.events")).get("frozen") == 1
        except OSError:
            return
        if frozen or time.monotonic() >= deadline:
            return
        time.sleep(PAUSE_SECONDS)


def _try_write(kernel: Kernel, path: str, text: str) -> None:
    try:
        kernel.write(path, text)
    except OSError:
        pass  # the group went away: there is nothing to freeze or thaw


def _remove_tree(kernel: Kernel, folder: str) -> bool:
    for path in reversed(tree(kernel, folder)):
        try:
            kernel.rmdir(path)
        except OSError as error:
            if error.errno not in GONE:
                return False
    return True


def tree(kernel: Kernel, folder: str) -> list[str]:
    """A group and all below it, parents first. Not recursive: a job may nest deeper than Python's stack."""
    found = [folder]
    for path in found:
        found.extend(kernel.folders(path))
    return found


def tree_pids(kernel: Kernel, folder: str) -> list[int]:
    found: dict[int, None] = {}
    for path in tree(kernel, folder):
        try:
            text = kernel.read(f"{path}/cgroup.procs")
        except OSError:
            continue  # gone meanwhile, or a threaded group, whose processes its parent lists
        found.update((int(pid), None) for pid in text.split() if pid != "0")
    return list(found)


def table(text: str) -> dict[str, int]:
    """`name value` lines; what is no number is left out."""
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}
