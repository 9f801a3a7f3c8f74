"""The shim's life: take the attempt, start the job, stand by until nothing of it is left, write how it ended.

Invariant: an attempt is begun at most once (the lock, the mark of an agent that gave it up, and a log that can be made only
once see to that); from then on no fault of a file, a pipe or an order ends the shim before the exit record is written.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import stat
import time

from agent.jobs.shim import child, records
from agent.jobs.shim.control import Control
from agent.jobs.shim.holder import Holder, forget
from agent.jobs.shim.ladder import OVER, RUN, Ladder
from agent.jobs.shim.launch import Launch, Order, StartError, read_launch, read_order, signal_in
from agent.jobs.shim.leader import Leader
from agent.jobs.shim.log_pipe import LogPipe
from agent.jobs.shim.log_writer import LogWriter
from agent.jobs.shim.prctl import become_subreaper

TYPE_CHECKING = False  # the module `typing` would cost a tenth of the shim's memory
if TYPE_CHECKING:
    from typing import Any

DONE, USAGE, NOT_OURS = 0, 2, 3
_ABANDONED_FILE, _LOCK_FILE = "abandoned", "lock"
_LOCK_TRIES, _LOCK_PAUSE_SECONDS = 5, 0.02
_MOST_LEFT = 200
_LONGEST_SLEEP_SECONDS = 20.0
"""While there is a time limit: poll's clock stands still while the machine sleeps, the limit's does not."""
_RECORD_AGAIN_SECONDS = 1.0
_IGNORED = (
    signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE, signal.SIGUSR1, signal.SIGUSR2,
    signal.SIGALRM, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU,
)  # fmt: skip


def main(argv: list[str]) -> int:
    """0: the exit record is written. 2: wrong usage. 3: this attempt is another's, given up, or was begun before."""
    if len(argv) != 2:
        return USAGE
    _shed_inherited()
    os.chdir(argv[1])
    lock = _take_lock()
    if lock is None or any(map(os.path.lexists, (_ABANDONED_FILE, records.EXIT_FILE, "log"))):
        return NOT_OURS
    _detach()
    Attempt().run()
    return DONE


def _shed_inherited() -> None:
    """Whatever an agent's thread had set: blocked and handled signals, open files, or none in the place of 0, 1 and 2."""
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.umask(0o077)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            try:
                os.close(int(name))
            except OSError:  # the listing's own
                pass
    while (nothing := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(nothing)


def _take_lock() -> int | None:
    """Held until the process ends. An agent that only looks holds it for a moment, so we try for a moment."""
    descriptor = os.open(_LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    for _ in range(_LOCK_TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except BlockingIOError:
            time.sleep(_LOCK_PAUSE_SECONDS)
    os.close(descriptor)
    return None


def _detach() -> None:
    """A session of our own, and nothing of the agent's: neither its terminal nor its pipes. A file for errors may stay."""
    try:
        os.setsid()
    except OSError:  # the agent has given us one already
        pass
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        if number != 2 or not stat.S_ISREG(os.fstat(2).st_mode):
            os.dup2(nothing, number)
    os.close(nothing)


def _tell(error: Exception) -> None:
    """A bug, for whoever looks for it: one line in the file for errors, if there is one."""
    try:
        os.write(2, f"{records.now_iso()} {error!r}\n".encode("utf-8", "replace"))
    except OSError:
        pass


class Attempt:
    """One attempt of a job; the working directory is its directory, and its lock is held."""

    def __init__(self) -> None:
        self._launch: Launch | None = None
        self._holder: Holder | None = None
        self._leader: Leader | None = None
        self._ladder: Ladder | None = None
        self._control: Control | None = None
        self._writer: LogWriter | None = None
        self._pipe: LogPipe | None = None
        self._report: int | None = None
        self._said = b""
        self._order: Order | None = None
        self._start_error: str | None = None
        self._started_at: str | None = None
        self._started_boottime_ns = 0
        self._record_due: float | None = None

    def run(self) -> None:
        """From launch.json to exit.json."""
        records.reserve_exit()
        try:
            self._prepare()
            if self._order is None:
                self._begin()
                self._stand_by()
        except StartError as error:
            self._fail(str(error))
        except Exception as error:  # noqa: BLE001 - before the fork: the loop after it sees to itself
            self._fail(f"the job's process could not be made ready: {error}")
        self._finish()

    def _fail(self, sentence: str) -> None:
        self._start_error = sentence[:2000].encode("utf-8", "replace").decode()

    def _prepare(self) -> None:
        """Everything before the fork. Raises StartError, OSError."""
        become_subreaper()
        self._wake_on_child()
        self._control = Control()
        self._launch = launch = read_launch(records.read_file(records.LAUNCH_FILE))
        self._order = read_order(records.read_file(records.STOP_FILE))  # written while nobody listened
        if self._order is not None:
            return
        holder = Holder(launch.group)
        holder.prepare(self._reap)
        self._holder = holder
        self._writer = LogWriter(launch.rotate_bytes, launch.quota_bytes, launch.free_floor_bytes)
        self._pipe = LogPipe(self._writer)
        self._writer.begin()

    def _begin(self) -> None:
        pid, self._report = child.fork(self._launch, self._holder, self._pipe.sink)
        self._pipe.let_go()
        os.set_blocking(self._report, False)
        self._leader = Leader(pid)
        self._ladder = Ladder(self._launch, self._holder, self._leader)

    def _wake_on_child(self) -> None:
        self._woken, wake = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(wake, False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def _stand_by(self) -> None:
        """The loop. A fault in it is a bug, and still no reason to leave a job alone."""
        pause = 0.05
        while self._ladder.phase != OVER:
            try:
                self._turn()
                pause = 0.05
            except Exception as error:  # noqa: BLE001
                _tell(error)
                time.sleep(pause)
                pause = min(pause * 2, 2.0)

    def _turn(self) -> None:
        self._reap()
        self._hear_child()
        self._keep_record()
        now = time.monotonic()
        self._watch_time(now)
        due = self._ladder.step(now)
        if self._ladder.phase != OVER:
            self._wait(self._milliseconds(due, now))

    def _wait(self, milliseconds: float | None) -> None:
        poll = select.poll()
        for descriptor in (self._woken, self._control.fileno, self._report, self._pipe.source):
            if descriptor is not None:
                poll.register(descriptor, select.POLLIN)
        for descriptor, _ in poll.poll(milliseconds):
            if descriptor == self._woken:
                os.read(self._woken, 4096)
            elif descriptor == self._control.fileno:
                self._obey()
            elif descriptor == self._pipe.source:
                self._pipe.take()

    def _milliseconds(self, due: float | None, now: float) -> float | None:
        dues = [moment for moment in (due, self._record_due) if moment is not None]
        limit = self._limit_left()
        if limit is not None:
            dues.append(now + min(max(limit, 0.0), _LONGEST_SLEEP_SECONDS))
        return max(0.0, (min(dues) - now) * 1000) + 1 if dues else None

    def _limit_left(self) -> float | None:
        """Seconds until the time limit, while it matters; counted also while the machine sleeps."""
        limit = self._launch.time_limit_seconds
        if limit is None or self._started_at is None or self._ladder.phase != RUN:
            return None
        return limit - (time.clock_gettime_ns(time.CLOCK_BOOTTIME) - self._started_boottime_ns) / 1e9

    def _watch_time(self, now: float) -> None:
        left = self._limit_left()
        if left is None or left > 0 or self._leader.over:
            return
        order = Order("time_limit", self._launch.stop_signal, self._launch.grace_seconds)
        self._ladder.stop(order, now)
        text = {"cause": order.cause, "signal": order.signal, "grace_seconds": order.grace_seconds}
        try:
            records.write_durably(records.STOP_FILE, _json({**text, "requested_at": records.now_iso()}))
        except OSError:  # the order stands without its file
            pass

    def _obey(self) -> None:
        for line in self._control.lines():
            word, _, rest = line.strip().partition(b" ")
            if word == b"stop":
                order = read_order(rest or _read_quietly(records.STOP_FILE))
                if order is not None:
                    self._ladder.stop(order, time.monotonic())
            elif word == b"signal" and self._leader.begun:
                number = signal_in(rest)
                if number is not None:
                    self._leader.send(number)

    def _reap(self) -> None:
        """Takes each dead child by its own pid, never a status that somebody waits for."""
        while True:
            try:
                dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if dead is None:
                return
            if self._leader is not None and dead.si_pid == self._leader.pid and not self._leader.over:
                self._leader.take_status()
                continue
            forget(dead.si_pid)
            if self._ladder is not None:
                self._ladder.helper_ended(dead.si_pid)

    def _hear_child(self) -> None:
        """Whether the program has begun, or why not: the pipe ends with the exec, or with the child."""
        if self._report is None:
            return
        try:
            part = os.read(self._report, 65536)
        except BlockingIOError:
            return
        self._said += part
        if part:
            return self._hear_child()
        os.close(self._report)
        self._report = None
        if self._said == child.GO:
            self._has_begun()
        elif self._said:
            self._fail(child.failure(self._launch, self._said))

    def _has_begun(self) -> None:
        self._leader.begun = True
        self._started_at = records.now_iso()
        self._started_boottime_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        self._record_due = time.monotonic()
        self._keep_record()

    def _keep_record(self) -> None:
        """shim.json; on a full disk again later."""
        now = time.monotonic()
        if self._record_due is None or now < self._record_due:
            return
        record = {
            "version": 1, "shim_pid": os.getpid(), "shim_start_ticks": records.start_ticks(os.getpid()),
            "job_pid": self._leader.pid, "job_start_ticks": self._leader.start_ticks, "boot_id": records.boot_id(),
            "started_at": self._started_at, "started_boottime_ns": self._started_boottime_ns,
            "applied": self._holder.applied, "failed": self._holder.failed, "steps": self._holder.steps,
        }  # fmt: skip
        try:
            records.write_durably(records.SHIM_FILE, _json(record))
            self._record_due = None
        except OSError:
            self._record_due = now + _RECORD_AGAIN_SECONDS

    def _finish(self) -> None:
        """The log to its end, the counters, the groups away, and the record."""
        if self._pipe is not None:
            self._pipe.finish()
            self._writer.close()
        record = {**self._outcome(), **self._remains()}
        if self._control is not None:
            self._control.close()
        records.write_exit(_json(record))

    def _outcome(self) -> dict[str, Any]:
        leader = self._leader
        begun = leader is not None and self._start_error is None
        job, attempt = (self._launch.job, self._launch.attempt) if self._launch else _named_by_folder()
        return {
            "version": 1, "job": job, "attempt": attempt,
            "start_error": self._start_error, "exit_code": leader.exit_code if begun else None,
            "signal": leader.signal if begun else None, "started_at": self._started_at, "ended_at": records.now_iso(),
            "stop": self._stopped(), "boot_id": records.boot_id(),
        }  # fmt: skip

    def _stopped(self) -> dict[str, Any] | None:
        if self._ladder is not None and self._ladder.order is not None:
            ladder = self._ladder
            return {"cause": ladder.order.cause, "signalled_at": ladder.signalled_at, "killed_at": ladder.killed_at}
        return self._order and {"cause": self._order.cause, "signalled_at": None, "killed_at": None}

    def _remains(self) -> dict[str, Any]:
        """Counters first: they go with the groups."""
        holder, empty = self._holder, True
        if holder is not None:
            self._reap()
            empty = holder.empty()
        return {
            "counters": holder.counters() if holder else {},
            "leftover_killed": self._ladder.leftover_killed if self._ladder else 0,
            "empty": empty, "left": holder.pids()[:_MOST_LEFT] if holder and not empty else [],
            "group_removed": holder.remove() if holder else True,
            "log_bytes": self._writer.total if self._writer else 0,
            "log_dropped_lines": self._writer.dropped_lines if self._writer else 0,
        }  # fmt: skip


def _named_by_folder() -> tuple[str, int]:
    """Job and attempt where launch.json cannot say it."""
    job, _, attempt = os.getcwd().rpartition("/")
    return os.path.basename(job), int(attempt) if attempt.isdigit() else 0


def _read_quietly(name: str) -> bytes | None:
    try:
        return records.read_file(name)
    except OSError:
        return None


def _json(record: dict[str, Any]) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode()
