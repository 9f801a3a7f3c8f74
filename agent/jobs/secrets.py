"""A job's secrets: files of mode 0600 that only the job's own user can read, and only while it runs.

Invariant: a value is written nowhere but into its file; names that would lead out of the folder are refused, and nothing
that somebody put in the place of a folder is followed.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from agent.errors import JobRefused, StateDirectoryError
from agent.jobs.users import RunAs
from agent.private_files import write_private
from agent.state import worded

FOLDER = "secrets"
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
LARGEST_BYTES = 256 * 1024
MOST = 100


def faults(secrets: Mapping[str, str]) -> list[str]:
    """What is wrong with names and sizes, a sentence each; no value is ever in it."""
    found = [f"{_shown(name)} is no name of a secret: use letters, digits, dots, dashes and underscores" for name in secrets
             if not NAME.fullmatch(name)]  # fmt: skip
    if len(secrets) > MOST:
        found.append(f"{len(secrets)} secrets are more than the {MOST} that a job may have")
    if sum(len(value.encode("utf-8", "surrogatepass")) for value in secrets.values()) > LARGEST_BYTES:
        found.append(f"the secrets are larger than {LARGEST_BYTES} bytes together")
    return found


def keep(job_folder: Path, secrets: Mapping[str, str]) -> None:
    """Keeps the values beside the job until it has ended for good. Raises StateDirectoryError."""
    if not secrets:
        return
    folder = job_folder / FOLDER
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise worded(error, folder, "cannot be made") from None
    for name, value in secrets.items():
        if not NAME.fullmatch(name):
            raise JobRefused(f"{_shown(name)} is no name of a secret")
        write_private(folder / name, value.encode("utf-8", "surrogateescape"))


def forget(job_folder: Path) -> None:
    shutil.rmtree(job_folder / FOLDER, ignore_errors=True)


def place(job_folder: Path, names: Iterable[str], runtime: Path, user: RunAs) -> Path:
    """Copies the secrets to where the job may read them: `runtime`/secrets, 0700, files 0600, all the user's.

    Raises StateDirectoryError, naming the secret that is gone.
    """
    folder = runtime / FOLDER
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        for name in names:
            _copy(job_folder / FOLDER / name, folder / name, user)
        _give(folder, user)
    except OSError as error:
        name = Path(str(error.filename or folder)).name
        raise StateDirectoryError(f"the secret {name!r} cannot be given to the job ({error.strerror})") from None
    return folder


def runtime_folder(root: Path, unit: str, user: RunAs) -> Path:
    """`root`/`unit`, made new and given to the user: what an attempt needs outside the agent's own folders."""
    try:
        root.mkdir(mode=0o711, parents=True, exist_ok=True)
        folder = root / unit
        remove_runtime(folder)
        folder.mkdir(mode=0o700)
        _give(folder, user)
    except OSError as error:
        raise worded(error, root, "cannot take what the job needs") from None
    return folder


def remove_runtime(folder: Path) -> None:
    """Also one that the job's user has changed: rmtree follows no link."""
    if folder.is_symlink():
        folder.unlink(missing_ok=True)
        return
    shutil.rmtree(folder, ignore_errors=True)


def _copy(source: Path, target: Path, user: RunAs) -> None:
    descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        data = file.read()
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        if user.switch:
            os.fchown(descriptor, user.uid, user.gid)


def _give(folder: Path, user: RunAs) -> None:
    if user.switch:
        os.chown(folder, user.uid, user.gid, follow_symlinks=False)


def _shown(name: str) -> str:
    return repr(name[:80])
