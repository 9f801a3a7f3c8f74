"""Brings an attempt to life: its folders and files, then the shim, which is nobody's child but its own session's.

Invariant: everything that the shim reads is on the disk before it is spawned, and it is spawned once per attempt.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path

import msgspec

from agent.errors import JobRefused, StateDirectoryError
from agent.jobs import secrets
from agent.jobs.attempt_dir import AttemptDir, shim_argv
from agent.jobs.context import Context
from agent.jobs.launch import DEFAULT_PATH
from agent.jobs.plan import WORK, Prepared
from agent.jobs.rows import without_secrets
from agent.jobs.uploads import own_folder
from agent.jobs.users import RunAs
from agent.private_files import write_private
from agent.state import worded
from agent.wire import JobSpec

SPEC = "spec.json"
SHIM_ERRORS = "shim.stderr"
_FOR_SYSTEMD = ("XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "DBUS_SYSTEM_BUS_ADDRESS")
_RESET = [signal.SIGPIPE, signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGUSR1, signal.SIGUSR2]


def keep_spec(context: Context, id: str, spec: JobSpec) -> None:
    """The job's folder with what was asked for, and its secrets apart. Raises StateDirectoryError."""
    folder = context.job_folder(id)
    make_folder(folder)
    write_private(folder / SPEC, msgspec.json.encode(without_secrets(spec)))
    secrets.keep(folder, spec.secrets)


def make_folder(folder: Path) -> None:
    """One that others may pass through to what is theirs in it."""
    try:
        folder.mkdir(mode=0o711, parents=True, exist_ok=True)
        folder.chmod(0o711)
    except OSError as error:
        raise worded(error, folder, "cannot be made") from None


async def put_files(context: Context, prepared: Prepared) -> AttemptDir:
    """All that the shim and the job need. Raises JobRefused or StateDirectoryError: then nothing was started."""
    places, user, spec = prepared.places, prepared.user, prepared.spec
    make_folder(places.job)
    attempt = AttemptDir(places.attempt)
    attempt.prepare(prepared.launch(context))
    own_folder(places.checkpoint, user)
    if spec.upload is not None and not (places.job / WORK).exists():
        await asyncio.to_thread(_unpack, context, spec.upload, places.job, user)
    runtime = secrets.runtime_folder(places.runtime.parent, places.runtime.name, user)
    if spec.secrets:
        owner = context.job_folder(prepared.part.array or prepared.part.job)
        secrets.place(owner, spec.secrets, runtime, user)
    return attempt


def _unpack(context: Context, upload: str, job: Path, user: RunAs) -> None:
    """In one step, so that a half unpacked folder is never run in."""
    scratch = job / f".{WORK}"
    context.uploads.unpack(upload, scratch, user)
    os.rename(scratch, job / WORK)


def spawn(prepared: Prepared, environ: Mapping[str, str]) -> tuple[int, int]:
    """(pid, pidfd) of the shim. It has a session of its own and shares no pipe with us. Raises JobRefused."""
    folder = prepared.places.attempt
    argv = [*prepared.group.launcher, *shim_argv(folder)]
    environment = {"PATH": environ.get("PATH", DEFAULT_PATH), "LANG": "C.UTF-8"}
    environment |= {name: environ[name] for name in _FOR_SYSTEMD if name in environ}
    null, errors = os.devnull, str(folder / SHIM_ERRORS)
    files = [
        (os.POSIX_SPAWN_OPEN, 0, null, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, null, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_OPEN, 2, errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600),
    ]
    try:
        pid = os.posix_spawnp(argv[0], argv, environment, file_actions=files, setsid=True, setsigmask=[], setsigdef=_RESET)
    except OSError as error:
        raise JobRefused(f"the job's supervising process cannot be started ({error.strerror})") from None
    return pid, os.pidfd_open(pid)  # it is our child: until we reap it the pid can be no other's


def reap(pidfd: int) -> None:
    """Takes the status of a shim that ended, so that no zombie stays. One that is not our child is left alone."""
    try:
        os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)
    except ChildProcessError:
        pass


def shim_errors(attempt: AttemptDir) -> str:
    """The last words of a shim that did not get as far as a record."""
    try:
        descriptor = os.open(attempt.path / SHIM_ERRORS, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            lines = file.read(65_536).decode("utf-8", "replace").strip().splitlines()
    except OSError:
        return ""
    return "".join(letter for letter in lines[-1] if letter.isprintable())[:300] if lines else ""


def clean_up(context: Context, id: str, number: int) -> None:
    """What an attempt needs only while it runs."""
    runtime = context.runtime(id, number)
    try:
        secrets.remove_runtime(runtime)
    except OSError as error:
        raise StateDirectoryError(f"{runtime} cannot be removed ({error.strerror})") from None


def remove_folder(folder: Path) -> None:
    """A job's folder with all that is in it; links in it are not followed."""
    shutil.rmtree(folder, ignore_errors=True)
