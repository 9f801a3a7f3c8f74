"""Who a pid is: user, command, start, job and project, from /proc.

The job is that of its cgroup, which no job can forge; only where that names none, the one in its environment.

Invariant: text of other people's programs leaves this module without control characters, and a fact that could not
be read is None. A pid is trusted only together with its start time, so a reused number is never described as its predecessor.
"""

from __future__ import annotations

import os
import pwd
import re
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from agent import wire
from agent.sensors.process_job import PARENT, JobGroups

COMMAND_LENGTH = 200
LABEL_LENGTH = 128
REFRESH_SECONDS = 30.0
"""Programs rename themselves (setproctitle, exec) without a new start time, so a description is read again after this."""
CPU_SECONDS = 0.5
"""Shorter stretches say nothing of the use of a CPU: it is counted in hundredths of a second."""
MOST_ABOVE, MOST_ANCESTORS = 8, 64
_DAEMONS = frozenset(
    ("systemd", "init", "sshd", "sshd:", "tmux", "tmux:", "screen", "SCREEN", "login", "cron", "crond", "containerd",
     "containerd-shim", "containerd-shim-runc-v2", "dockerd", "conmon", "slurmd", "slurmstepd:", "gdm", "sddm", "tini",
     "dumb-init", "docker-init", "supervisord", "sudo", "su", "rackrate-agent")
)  # fmt: skip
"""Where work of a person or a job begins: nothing above these belongs to it."""
_READ_LIMIT = 64 * 1024

# C0, DEL, C1, line separators and the bidirectional controls that let text impersonate other text on a screen.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
_BLANKS = re.compile(r"[\t\n\r\v\f]+")


class ProcessFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one pid. `visible` False: it cannot be resolved here and must never be signalled."""

    user: str | None = None
    command: str | None = None
    started_at: datetime | None = None
    job: str | None = None
    project: str | None = None
    visible: bool = True
    parent_pid: int | None = None
    cpu_ratio: float | None = None
    """Of one CPU since the description before."""
    host_memory_bytes: int | None = None


INVISIBLE = ProcessFacts(visible=False)


class _Stat(NamedTuple):
    """What /proc/PID/stat tells."""

    parent_pid: int
    session: int
    start_ticks: int
    cpu_ticks: int
    resident_pages: int


class _Cached(msgspec.Struct):
    start_ticks: int
    read_at: float
    facts: ProcessFacts
    cpu_ticks: int
    cpu_at: float
    cpu_ratio: float | None = None


def clean_text(raw: bytes | str, length: int = COMMAND_LENGTH) -> str:
    """Outside text made fit for a terminal: decoded with replacement, control characters stripped, cut at `length`."""
    text = raw.decode("utf-8", errors="replace") if isinstance(raw, bytes) else raw
    text = _UNPRINTABLE.sub("", _BLANKS.sub(" ", text)).strip()
    return text if len(text) <= length else text[: length - 1] + "…"


class ProcessTable:
    """Describes pids from /proc, and remembers each (pid, start time) for half a minute.

    `proc_root` is where /proc is mounted; `clock` is a monotonic clock in seconds; `cgroup_parent` holds our jobs.
    """

    def __init__(
        self, proc_root: str | Path = "/proc", *, clock: Callable[[], float] = time.monotonic, cgroup_parent: str = PARENT
    ) -> None:
        self._root = str(proc_root)
        self._groups = JobGroups(proc_root, cgroup_parent)
        self._clock = clock
        self._cache: dict[int, _Cached] = {}
        self._users: dict[int, str] = {}
        self._ticks_per_second = os.sysconf("SC_CLK_TCK")
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")
        self._boot_seconds: float | None = None
        self._forget_at = float("-inf")

    def describe(self, pids: Iterable[int]) -> Mapping[int, ProcessFacts]:
        """pid -> facts for each pid asked for; never raises, and forgets pids that are no longer asked for."""
        now = self._clock()
        if now >= self._forget_at:
            self._forget(now)
        return {pid: self._known(pid, now) for pid in pids}

    def _forget(self, now: float) -> None:
        # one that is still asked for has been read again in this time
        self._cache = {pid: entry for pid, entry in self._cache.items() if now - entry.read_at < 2 * REFRESH_SECONDS}
        self._forget_at = now + REFRESH_SECONDS

    def _known(self, pid: int, now: float) -> ProcessFacts:
        stat = self._stat(pid)
        if stat is None:
            return INVISIBLE
        cached = self._cache.get(pid)
        if cached is None or cached.start_ticks != stat.start_ticks:
            facts = self._facts(pid, stat.start_ticks)
            cached = self._cache[pid] = _Cached(stat.start_ticks, now, facts, stat.cpu_ticks, now)
        elif now - cached.read_at >= REFRESH_SECONDS:
            cached.facts, cached.read_at = self._facts(pid, stat.start_ticks), now
        self._take_cpu(cached, stat, now)
        return msgspec.structs.replace(
            cached.facts, parent_pid=stat.parent_pid, cpu_ratio=cached.cpu_ratio,
            host_memory_bytes=stat.resident_pages * self._page_bytes,
        )  # fmt: skip

    def _take_cpu(self, cached: _Cached, stat: _Stat, now: float) -> None:
        seconds = now - cached.cpu_at
        if seconds >= CPU_SECONDS:  # a process on several GPUs is described several times at once
            used = (stat.cpu_ticks - cached.cpu_ticks) / self._ticks_per_second
            cached.cpu_ratio = round(max(0.0, used / seconds), 3)
            cached.cpu_ticks, cached.cpu_at = stat.cpu_ticks, now

    def ancestors(self, pids: Iterable[int]) -> tuple[wire.Ancestor, ...]:
        """Who started these, of the same user, up to the leader of the session: a job's shell, or the one at a terminal.

        A launcher that gives each of its ranks a session of its own (torchrun) and what is above it in its own belong to them.
        """
        pids, now = set(pids), self._clock()
        found: dict[int, wire.Ancestor] = {}
        for pid in sorted(pids):
            stat = self._stat(pid)
            if stat is None or len(found) >= MOST_ANCESTORS:
                continue
            user, above = self._known(pid, now).user, stat.parent_pid
            parent = self._stat(above)
            sessions = {stat.session, parent.session if parent else 0}
            for _ in range(MOST_ABOVE):
                if above in found or above in pids or not self._climb(above, sessions, user, now, found):
                    break
                above = found[above].parent_pid or 0
        return tuple(found.values())

    def _climb(self, pid: int, sessions: set[int], user: str | None, now: float, found: dict[int, wire.Ancestor]) -> bool:
        """Adds one more ancestor; False where the work ends."""
        stat = self._stat(pid) if pid > 1 and pid != os.getpid() else None
        if stat is None or stat.session not in sessions:
            return False
        facts = self._known(pid, now)
        if not facts.visible or facts.user != user or _is_daemon(facts.command):
            return False
        found[pid] = wire.Ancestor(
            pid=pid, parent_pid=stat.parent_pid, user=facts.user, command=facts.command, job=facts.job, started_at=facts.started_at
        )
        return True

    def _facts(self, pid: int, start_ticks: int) -> ProcessFacts:
        environment = self._environment(pid)
        return ProcessFacts(
            user=self._user(pid),
            command=self._command(pid),
            started_at=self._started_at(start_ticks),
            job=self._groups.job_of(self._read(pid, "cgroup") or b"") or _job(environment),
            project=_label(environment.get(b"RACKRATE_PROJECT") or environment.get(b"SLURM_JOB_ACCOUNT")),
        )

    def _read(self, pid: int, name: str) -> bytes | None:
        try:
            descriptor = os.open(f"{self._root}/{pid}/{name}", os.O_RDONLY)
        except OSError:
            return None
        try:
            return os.read(descriptor, _READ_LIMIT)
        except OSError:
            return None  # the process ended between open and read
        finally:
            os.close(descriptor)

    def _stat(self, pid: int) -> _Stat | None:
        stat = self._read(pid, "stat") or b""
        # the name in parentheses may hold blanks and parentheses itself, so the fields are counted from the last one
        fields = stat[stat.rfind(b")") + 2 :].split()
        if len(fields) <= 21:
            return None
        return _Stat(int(fields[1]), int(fields[3]), int(fields[19]), int(fields[11]) + int(fields[12]), int(fields[21]))

    def _command(self, pid: int) -> str | None:
        arguments = self._read(pid, "cmdline")
        command = clean_text((arguments or b"").rstrip(b"\0").replace(b"\0", b" "))
        if command:
            return command
        name = clean_text(self._read(pid, "comm") or b"")  # kernel threads and zombies have no arguments
        return f"[{name}]" if name else None

    def _user(self, pid: int) -> str | None:
        for line in (self._read(pid, "status") or b"").splitlines():
            if line.startswith(b"Uid:"):
                return self._user_name(int(line.split()[1]))
        return None

    def _user_name(self, uid: int) -> str:
        if uid not in self._users:
            self._users[uid] = _name_of(uid)
        return self._users[uid]

    def _environment(self, pid: int) -> dict[bytes, bytes]:
        pairs = (entry.split(b"=", 1) for entry in (self._read(pid, "environ") or b"").split(b"\0") if b"=" in entry)
        return {name: value for name, value in pairs}

    def _started_at(self, start_ticks: int) -> datetime | None:
        boot = self._boot()
        if boot is None:
            return None
        return datetime.fromtimestamp(boot + start_ticks / self._ticks_per_second, UTC)

    def _boot(self) -> float | None:
        if self._boot_seconds is None:
            self._boot_seconds = _boot_seconds(Path(self._root) / "stat")
        return self._boot_seconds


def _boot_seconds(stat: Path) -> float | None:
    try:
        lines = stat.read_bytes().splitlines()
    except OSError:
        return None
    return next((float(line.split()[1]) for line in lines if line.startswith(b"btime ")), None)


def _name_of(uid: int) -> str:
    try:
        return clean_text(pwd.getpwuid(uid).pw_name, LABEL_LENGTH)
    except (KeyError, OSError):
        return str(uid)


def _is_daemon(command: str | None) -> bool:
    words = (command or "").split()
    return bool(words) and (words[0].rpartition("/")[2] in _DAEMONS or words[0].startswith("["))


def _label(raw: bytes | None) -> str | None:
    return (clean_text(raw, LABEL_LENGTH) or None) if raw else None


def _job(environment: Mapping[bytes, bytes]) -> str | None:
    own = _label(environment.get(b"RACKRATE_JOB"))
    if own is not None:
        return own
    slurm = _label(environment.get(b"SLURM_JOB_ID"))
    return f"slurm-{slurm}" if slurm else None
