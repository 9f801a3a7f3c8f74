"""`agent.jobs.attempt_dir`: where an attempt stands after a crash of anybody, and orders that are not lost."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from agent.errors import JobConflict, StateDirectoryError
from agent.jobs.attempt_dir import AttemptDir, Counters, ExitRecord, StopOrder, boot_id, shim_argv

LAUNCH = {"version": 1, "job": "0123456789ab", "attempt": 2, "boot_id": boot_id()}
ORDER = StopOrder(cause="cancelled", requested_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))


@pytest.fixture
def attempt(tmp_path: Path) -> AttemptDir:
    made = AttemptDir(tmp_path / "0123456789ab/2")
    made.prepare(LAUNCH)
    return made


@pytest.fixture
def held(attempt: AttemptDir) -> Iterator[int]:
    """The lock, as a shim holds it."""
    lock = os.open(attempt.path / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    yield lock
    os.close(lock)


def test_it_is_made_private_with_its_launch_and_only_once(attempt: AttemptDir) -> None:
    assert stat.S_IMODE(attempt.path.stat().st_mode) == 0o700
    assert stat.S_IMODE((attempt.path / "launch.json").stat().st_mode) == 0o600
    assert msgspec.json.decode((attempt.path / "launch.json").read_bytes()) == LAUNCH
    with pytest.raises(JobConflict, match="attempt 2 of job 0123456789ab has been prepared already"):
        attempt.prepare(LAUNCH)


def test_a_shim_that_holds_the_lock_runs(attempt: AttemptDir, held: int) -> None:
    assert attempt.look(boot_id()) == "running"
    assert not (attempt.path / "abandoned").exists()


def test_what_never_began_is_given_up_for_good(attempt: AttemptDir) -> None:
    assert attempt.look(boot_id()) == "not_started"
    assert (attempt.path / "abandoned").exists()
    assert attempt.look(boot_id()) == "not_started"


def test_a_folder_that_is_not_there_never_began(tmp_path: Path) -> None:
    attempt = AttemptDir(tmp_path / "gone/1")
    assert attempt.look(boot_id()) == "not_started"
    assert (attempt.shim(), attempt.exit(), attempt.signal(15), attempt.orphans()) == (None, None, False, {})


def test_one_that_began_without_an_end_is_lost_or_of_another_boot(attempt: AttemptDir) -> None:
    (attempt.path / "log").touch()
    assert attempt.look(boot_id()) == "lost"
    assert attempt.look("another boot") == "rebooted"
    (attempt.path / "exit.json").write_text("{")
    assert attempt.look("another boot") == "exited"


def test_a_damaged_record_is_a_sentence(attempt: AttemptDir) -> None:
    (attempt.path / "exit.json").write_text('{"job": 1}')
    with pytest.raises(StateDirectoryError, match="exit.json is damaged"):
        attempt.exit()


def test_a_record_of_a_later_version_with_more_in_it_is_read(attempt: AttemptDir) -> None:
    (attempt.path / "exit.json").write_text(
        '{"job":"0123456789ab","attempt":2,"exit_code":3,"new":1,"counters":{"oom_kills":2,"new":1}}'
    )
    assert attempt.exit() == ExitRecord(job="0123456789ab", attempt=2, exit_code=3, counters=Counters(oom_kills=2))


def test_an_order_is_durable_also_where_nobody_listens(attempt: AttemptDir) -> None:
    assert attempt.stop(ORDER) is False
    assert msgspec.json.decode((attempt.path / "stop.json").read_bytes()) == {
        "cause": "cancelled", "signal": 15, "grace_seconds": 30.0, "requested_at": "2026-01-02T03:04:05Z",
    }  # fmt: skip
    assert stat.S_IMODE((attempt.path / "stop.json").stat().st_mode) == 0o600


def test_orders_and_signals_are_lines_in_the_control_pipe(attempt: AttemptDir) -> None:
    os.mkfifo(attempt.path / "control", 0o600)
    assert attempt.stop(ORDER) is False  # a pipe that nobody reads
    control = os.open(attempt.path / "control", os.O_RDWR | os.O_NONBLOCK)
    try:
        assert attempt.stop(ORDER) and attempt.signal(10)
        assert os.read(control, 100) == b"stop\nsignal 10\n"
        with pytest.raises(BlockingIOError):
            while True:
                os.write(control, bytes(4096))
        assert attempt.signal(10) is False  # full: the caller hears of it, and is not held
    finally:
        os.close(control)


def test_what_is_no_pipe_is_not_written(attempt: AttemptDir, tmp_path: Path) -> None:
    (attempt.path / "control").write_text("")
    assert attempt.signal(9) is False
    assert (attempt.path / "control").read_text() == ""
    (attempt.path / "control").unlink()
    (attempt.path / "control").symlink_to(tmp_path / "elsewhere")
    assert attempt.signal(9) is False and not (tmp_path / "elsewhere").exists()


def test_a_pid_of_another_time_is_nobody(attempt: AttemptDir) -> None:
    record = {
        "shim_pid": os.getpid(), "shim_start_ticks": 1, "job_pid": os.getpid(), "job_start_ticks": 1, "boot_id": boot_id(),
        "started_at": "2026-01-02T03:04:05.006Z", "started_boottime_ns": 5,
    }  # fmt: skip
    (attempt.path / "shim.json").write_bytes(msgspec.json.encode(record))
    assert (attempt.leader_pidfd(), attempt.shim_pidfd(), attempt.orphans()) == (None, None, {})
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    (attempt.path / "shim.json").write_bytes(msgspec.json.encode({**record, "job_start_ticks": ticks}))
    pidfd = attempt.leader_pidfd()
    assert pidfd is not None
    os.close(pidfd)
    (attempt.path / "shim.json").write_bytes(msgspec.json.encode({**record, "job_start_ticks": ticks, "boot_id": "before"}))
    assert attempt.leader_pidfd() is None


def test_the_command_of_a_shim_needs_nothing_of_the_environment(tmp_path: Path) -> None:
    argv = shim_argv(tmp_path / "1")
    assert argv[1:5] == ["-I", "-S", "-X", "utf8"]
    assert os.path.isfile(argv[5]) and argv[6] == str(tmp_path / "1")
