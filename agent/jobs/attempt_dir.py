"""The directory of one attempt, as the agent sees it: where the job stands, and how to stop or signal it.

Invariant: what stands here is true after any crash of either side: a shim lives exactly while it holds `lock`, never by its
pid, and an attempt that the agent has given up can never begin any more.
"""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from agent.errors import JobConflict, StateDirectoryError
from agent.jobs.shim import __file__ as _shim_file
from agent.jobs.shim import records
from agent.private_files import write_private
from agent.state import worded

_T = TypeVar("_T")
Standing = Literal["not_started", "running", "exited", "rebooted", "lost"]
LAUNCH, LOCK, ABANDONED, SHIM, STOP, CONTROL, LOG, EXIT = (
    "launch.json", "lock", "abandoned", "shim.json", "stop.json", "control", "log", "exit.json",
)  # fmt: skip


class ShimRecord(msgspec.Struct, frozen=True, kw_only=True):
    """shim.json: the job's process has begun its program."""

    version: int = 1
    shim_pid: int
    shim_start_ticks: int
    job_pid: int
    job_start_ticks: int
    boot_id: str
    started_at: datetime
    started_boottime_ns: int
    applied: dict[str, str] = {}
    """Cgroup file -> what it read back as."""
    failed: tuple[dict[str, Any], ...] = ()
    steps: tuple[tuple[Any, ...], ...] = ()


class StopOrder(msgspec.Struct, frozen=True, kw_only=True):
    """stop.json: `grace_seconds` 0 kills at once. A later order can only shorten the grace of the first."""

    cause: str
    signal: int = int(signal.SIGTERM)
    grace_seconds: float = 30.0
    requested_at: datetime


class Stopped(msgspec.Struct, frozen=True, kw_only=True):
    """What was done for the first order; None: not done (the job ended before it was needed)."""

    cause: str
    signalled_at: datetime | None = None
    killed_at: datetime | None = None


class Counters(msgspec.Struct, frozen=True, kw_only=True):
    """Of the whole group of processes, read after its end. None: the host does not count it."""

    oom_kills: int | None = None
    oom_events: int | None = None
    memory_peak_bytes: int | None = None
    memory_limit_bytes: int | None = None
    cpu_seconds: float | None = None
    throttled_seconds: float | None = None
    io_read_bytes: int | None = None
    io_write_bytes: int | None = None
    pids_peak: int | None = None
    pids_refused: int | None = None


class ExitRecord(msgspec.Struct, frozen=True, kw_only=True):
    """exit.json. `exit_code` and `signal` are both None where no program of the job began, or where it cannot be killed."""

    version: int = 1
    job: str
    attempt: int
    start_error: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    stop: Stopped | None = None
    counters: Counters = Counters()
    leftover_killed: int = 0
    """Processes that outlived the job's first one by itself, and were killed."""
    empty: bool = True
    left: tuple[int, ...] = ()
    """Processes that could not be killed within the time."""
    group_removed: bool = True
    log_bytes: int = 0
    log_dropped_lines: int = 0
    boot_id: str = ""


def shim_argv(attempt_dir: Path | str) -> list[str]:
    """The command that owns this attempt. Start it with a session of its own, and without pipes to the agent."""
    main = os.path.join(os.path.dirname(os.path.abspath(_shim_file)), "__main__.py")
    return [sys.executable, "-I", "-S", "-X", "utf8", main, str(Path(attempt_dir).absolute())]


def boot_id() -> str:
    """Changes with every boot of the machine; empty where the kernel does not say."""
    return records.boot_id()


class AttemptDir:
    """One attempt's directory. No method keeps anything open."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    def prepare(self, launch: dict[str, Any]) -> None:
        """Makes it (0700) with its launch.json, durably. Raises StateDirectoryError, or JobConflict where one is there."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise worded(error, self.path, "cannot be made") from None
        if os.path.lexists(self.path / LAUNCH):
            raise JobConflict(f"attempt {launch.get('attempt')} of job {launch.get('job')} has been prepared already")
        write_private(self.path / LAUNCH, msgspec.json.encode(launch))
        _sync(self.path)
        _sync(self.path.parent)

    def look(self, boot_id: str) -> Standing:
        """Where the attempt stands, for an agent that finds it (not for one that has just started the shim: too early a look
        gives the attempt up). `not_started` is for good: a shim that comes later runs nothing.

        `boot_id`: of now. `lost`: the shim is gone without a record; what the job did and whether it runs is not known.
        """
        if os.path.lexists(self.path / EXIT):
            return "exited"
        try:
            lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except FileNotFoundError:
            return "not_started"  # no directory, so no shim can begin in it
        except OSError as error:
            raise worded(error, self.path, "cannot be locked") from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return self._look_locked(boot_id)
        except BlockingIOError:
            return "running"
        finally:
            os.close(lock)

    def _look_locked(self, boot_id: str) -> Standing:
        if os.path.lexists(self.path / EXIT):  # written between our first look and the lock
            return "exited"
        launched_in = _boot_of(_read(self.path / LAUNCH))
        if launched_in is not None and launched_in != boot_id:
            return "rebooted"
        if os.path.lexists(self.path / LOG):  # the last thing a shim makes before it starts the job
            return "lost"
        self._abandon()
        return "not_started"

    def _abandon(self) -> None:
        try:
            os.close(os.open(self.path / ABANDONED, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
        except OSError as error:
            raise worded(error, self.path, "cannot be marked as abandoned") from None
        _sync(self.path)

    def shim(self) -> ShimRecord | None:
        """None until the job's program has begun. Raises StateDirectoryError where the record cannot be read."""
        return _decode(self.path / SHIM, ShimRecord)

    def exit(self) -> ExitRecord | None:
        """None until everything is over. Raises StateDirectoryError where the record cannot be read."""
        return _decode(self.path / EXIT, ExitRecord)

    def stop(self, order: StopOrder) -> bool:
        """Leaves the order durably and wakes the shim; False where no shim listens now (it is gone, or not there yet).

        On a full or broken disk the order goes over the control FIFO alone. Raises StateDirectoryError where neither way is open.
        """
        data = msgspec.json.encode(order)
        try:
            write_private(self.path / STOP, data)
            _sync(self.path)
        except StateDirectoryError:
            if not self._poke(b"stop " + data + b"\n"):
                raise
            return True
        return self._poke(b"stop\n")

    def signal(self, number: int) -> bool:
        """Asks the shim to signal the job's first process once; False where no shim listens."""
        return self._poke(b"signal %d\n" % number)

    def _poke(self, line: bytes) -> bool:
        try:
            control = os.open(self.path / CONTROL, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:  # ENXIO: nobody reads it; ENOENT: not made yet, or removed at the end
            return False
        try:
            return stat.S_ISFIFO(os.fstat(control).st_mode) and os.write(control, line) == len(line)
        except OSError:
            return False
        finally:
            os.close(control)

    def leader_pidfd(self) -> int | None:
        """A pidfd (close it) of the job's first process; None where it has ended, or another has its pid now."""
        record = self._of_this_boot()
        return None if record is None else _pidfd(record.job_pid, record.job_start_ticks)

    def shim_pidfd(self) -> int | None:
        """As `leader_pidfd`, of the shim."""
        record = self._of_this_boot()
        return None if record is None else _pidfd(record.shim_pid, record.shim_start_ticks)

    def _of_this_boot(self) -> ShimRecord | None:
        record = self.shim()
        return record if record is not None and record.boot_id == boot_id() else None

    def orphans(self) -> dict[int, int]:
        """pid -> start ticks of a job whose shim was killed, where no cgroup holds it: the leader's session and descendants.

        What had left both session and tree before is not found; with a cgroup ask the group instead.
        """
        record = self._of_this_boot()
        return {} if record is None else _session(record.job_pid, record.job_start_ticks)

    def kill_orphans(self) -> int:
        """SIGKILL to all `orphans`, again and again while new ones appear; how many there were."""
        killed: set[int] = set()
        for _ in range(20):
            found = {pid for pid, ticks in self.orphans().items() if _kill(pid, ticks)}
            if not found:
                break
            killed.update(found)
            time.sleep(0.01)
        return len(killed)


def _read(path: Path) -> bytes | None:
    try:
        return records.read_file(str(path))
    except OSError as error:
        raise worded(error, path.parent, f"has a file {path.name} that cannot be read") from None


def _decode(path: Path, kind: type[_T]) -> _T | None:
    data = _read(path)
    if data is None:
        return None
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError as error:
        raise StateDirectoryError(f"{path} is damaged ({error}); what it told is lost") from None


def _boot_of(launch: bytes | None) -> str | None:
    try:
        return None if launch is None else str(msgspec.json.decode(launch)["boot_id"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return None


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise worded(error, folder, "cannot be made durable") from None
    finally:
        os.close(descriptor)


def _pidfd(pid: int, ticks: int) -> int | None:
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return None
    fields = records.stat_fields(pid)  # after the open: from here on the descriptor cannot mean another process
    if fields is not None and int(fields[19]) == ticks and fields[0] not in (b"Z", b"X"):
        return descriptor
    os.close(descriptor)
    return None


def _session(leader: int, ticks: int) -> dict[int, int]:
    """A session's number stays taken while anybody is in it, so it can only be ours unless its leader is another process."""
    found = {int(name): fields for name in os.listdir("/proc") if name.isdigit() and (fields := records.stat_fields(int(name)))}
    if leader in found and int(found[leader][19]) != ticks:
        return {}
    ours = {pid for pid, fields in found.items() if int(fields[3]) == leader and int(fields[19]) >= ticks}
    while more := {pid for pid, fields in found.items() if int(fields[1]) in ours} - ours:
        ours |= more
    return {pid: int(found[pid][19]) for pid in sorted(ours) if found[pid][0] not in (b"Z", b"X")}


def _kill(pid: int, ticks: int) -> bool:
    descriptor = _pidfd(pid, ticks)
    if descriptor is None:
        return False
    try:
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True
