"""Stopping: softly to the first process once, then to all, and nothing of the job is left, with and without cgroups."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.jobs.attempt_dir import boot_id
from tests.support.shims import PATH, Shim, Shims, fill, holders, needs_root, python, small_disk, until

STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
"""
TREE = (
    STUBBORN
    + """
if os.fork() == 0:                      # a daemon: two forks and a session of its own
    os.setsid()
    if os.fork() == 0:
        print("daemon", flush=True)
        time.sleep(300)
    os._exit(0)
if os.fork() == 0:                      # forks for ever, and each parent ends at once
    os.setpgid(0, 0)
    count = 0
    while True:
        if os.fork():
            os._exit(0)
        count += 1
        if count == 20:
            print("comet", flush=True)
        time.sleep(0.002)
for depth in range(30):                 # a chain, and a broad tree
    if os.fork():
        break
if depth == 0:
    for _ in range(40):
        if os.fork() == 0:
            time.sleep(300)
print("up", flush=True)
time.sleep(300)
"""
)
COUNTING = """
import os, signal, sys, time
def say(text):                          # not print: a handler may run within it
    os.write(1, text.encode() + b"\\n")
def handle(number, frame):
    say("saved by leader" if os.getpid() == leader else "saved by child")
    if os.getpid() == leader:
        while len(sys.argv) > 1 and not os.path.exists(sys.argv[1]):
            time.sleep(0.01)
        raise SystemExit(3)
leader = os.getpid()
signal.signal(signal.SIGTERM, handle)
signal.signal(signal.SIGUSR1, lambda number, frame: say("usr1"))
if len(sys.argv) > 1 and os.fork() == 0:
    say("child")
    time.sleep(300)
say("up")
while True:
    time.sleep(300)
"""


@pytest.fixture
def shims(tmp_path: Path) -> Iterator[Shims]:
    made = Shims(tmp_path)
    yield made
    made.clear()


def up(shims: Shims, code: str, *arguments: str, **launch: object) -> Shim:
    return shims(python(code, *arguments), **launch).start().begun().wrote("up")  # type: ignore[arg-type]


@holders
def test_nothing_is_left_of_a_job_that_does_everything_to_stay(shims: Shims, holder: str) -> None:
    shim = up(shims, TREE, holder=holder).wrote("daemon").wrote("comet")
    until(lambda: len(shim.left()) > 40)  # "up" is said by each of the chain
    assert shim.stop(grace_seconds=0.2)
    record = shim.end()
    assert shim.left() == []
    assert (record.empty, record.left, record.group_removed) == (True, (), True)
    assert (record.exit_code, record.signal) == (None, 9)
    assert record.stop is not None and record.stop.cause == "cancelled"
    assert record.stop.signalled_at is not None and record.stop.killed_at is not None
    assert record.ended_at is not None and (record.ended_at - record.stop.killed_at).total_seconds() < 60


@holders
def test_the_first_process_is_told_once_and_nobody_else(shims: Shims, tmp_path: Path, holder: str) -> None:
    go = tmp_path / "go"
    shim = up(shims, COUNTING, str(go), holder=holder).wrote("child")
    assert shim.stop(grace_seconds=600)
    assert shim.stop(grace_seconds=500)
    assert shim.dir.signal(signal.SIGUSR1)
    shim.wrote("usr1")  # what came before it was heard
    go.touch()
    record = shim.end()  # the child would have slept on: what is left is killed without waiting for the grace
    assert shim.log().count("saved by") == shim.log().count("saved by leader") == 1
    assert (record.exit_code, record.leftover_killed, shim.left()) == (3, 1, [])
    assert record.stop is not None and record.stop.signalled_at is not None


@holders
def test_what_a_job_leaves_behind_is_killed_and_counted(shims: Shims, holder: str) -> None:
    daemons = "import os, time\nfor _ in range(3):\n if os.fork() == 0:\n  os.setsid(); time.sleep(300)\nprint('done')"
    shim = shims(python(daemons), holder=holder).start()
    record = shim.end()
    assert (record.exit_code, record.leftover_killed, record.empty, record.stop) == (0, 3, True, None)
    assert (shim.left(), shim.log()) == ([], "done\n")


def test_a_later_shorter_grace_shortens(shims: Shims) -> None:
    hears = "import os, signal, time; signal.signal(15, lambda *_: os.write(1, b'heard')); print('up', flush=True); time.sleep(300)"
    shim = up(shims, hears)
    assert shim.stop(grace_seconds=600, cause="after 600")
    shim.wrote("heard")
    assert shim.stop(grace_seconds=0.4, cause="after 0.4")
    record = shim.end()
    assert record.signal == 9
    assert record.stop is not None and record.stop.cause == "after 600"


def test_no_grace_kills_at_once_without_a_signal(shims: Shims) -> None:
    shim = up(shims, COUNTING)
    shim.stop(grace_seconds=0)
    record = shim.end()
    assert record.signal == 9 and "saved" not in shim.log()
    assert record.stop is not None and record.stop.signalled_at is None and record.stop.killed_at is not None


def test_an_order_from_before_the_start_starts_nothing(shims: Shims) -> None:
    shim = shims(["echo", "ran"])
    shim.dir.prepare(shim.launch)
    assert shim.stop(cause="preempted") is False
    record = shim.start().end()
    assert (record.start_error, record.exit_code, record.signal, record.started_at) == (None, None, None, None)
    assert record.stop is not None and (record.stop.cause, record.stop.signalled_at) == ("preempted", None)
    assert not (shim.path / "log").exists() and shim.dir.look(boot_id()) == "exited"


def test_an_order_while_the_job_is_being_started_is_not_lost(shims: Shims) -> None:
    for _ in range(5):
        shim = shims(python("import time; time.sleep(300)")).start()
        until(lambda: (shim.path / "control").exists())  # noqa: B023
        shim.stop(grace_seconds=10)
        record = shim.end()
        assert record.stop is not None and record.stop.cause == "cancelled"
        assert record.signal in (None, 15)


def test_a_stopped_process_is_woken_to_hear_of_its_end(shims: Shims) -> None:
    shim = up(shims, COUNTING)
    assert shim.dir.signal(signal.SIGSTOP)
    until(lambda: any("State:\tT" in Path(f"/proc/{pid}/status").read_text() for pid in shim.left()))
    shim.stop(grace_seconds=30)
    assert shim.end().exit_code == 3
    assert "saved by leader" in shim.log()


def test_a_time_limit_stops_softly_and_says_so(shims: Shims) -> None:
    stop = {"signal": 15, "grace_seconds": 60, "kill_wait_seconds": 60}
    for limit in (0.5, 4.0, 30.0):  # it counts from the program's first instruction, and a slow one has not got far by then
        shim = shims(python(COUNTING), time_limit_seconds=limit, stop=stop).start()
        record = shim.end()
        if "up" in shim.log():
            break
    assert (record.exit_code, shim.log()) == (3, "up\nsaved by leader\n")
    assert record.stop is not None and record.stop.cause == "time_limit"
    assert b'"cause":"time_limit"' in (shim.path / "stop.json").read_bytes()
    assert record.ended_at is not None and record.started_at is not None
    assert limit <= (record.ended_at - record.started_at).total_seconds() < limit + 60


def test_garbage_in_the_control_pipe_and_in_the_order_changes_nothing(shims: Shims) -> None:
    shim = up(shims, COUNTING)
    (shim.path / "stop.json").write_bytes(b'{"cause": 1')
    control = os.open(shim.path / "control", os.O_WRONLY)
    for line in (
        b"\0\xff" * 3000,
        b"\nstop\nstop {}\nsignal\nsignal -1\nsignal 99\nsignal 9 9\nsignal x\nfly\n\n",
        b"signal 10",
    ):
        os.write(control, line)
    os.write(control, b"\n")
    shim.wrote("usr1")
    os.close(control)
    assert shim.dir.look(boot_id()) == "running"
    assert shim.dir.signal(signal.SIGUSR1)
    until(lambda: shim.log().count("usr1") == 2)
    assert shim.stop(grace_seconds=20)
    assert shim.end().exit_code == 3


@holders
def test_commands_before_a_kill_have_their_time_and_know_the_processes(shims: Shims, tmp_path: Path, holder: str) -> None:
    note = 'echo "$2 $WHO" >> "$1"; exec sleep "$3"'

    def command(seconds: str, limit: float) -> dict[str, object]:
        argv = ["/bin/sh", "-c", note, "sh", str(tmp_path / "notes"), "<{cgroup_pids}>", seconds]
        return {"argv": argv, "environment": {"PATH": PATH, "WHO": seconds}, "seconds": limit}

    commands = [{"argv": ["/no/such"], "seconds": 60.0}, command("0", 60.0), command("300", 1.5), command("0.0", 60.0)]
    stop = {"signal": 15, "grace_seconds": 1, "kill_wait_seconds": 60, "before_kill": commands}
    shim = up(shims, STUBBORN + "print('up', flush=True); time.sleep(300)", holder=holder, stop=stop)
    leader = shim.dir.shim()
    assert leader is not None
    shim.stop(grace_seconds=0.1)
    record = shim.end()
    assert record.signal == 9 and record.empty
    notes = (tmp_path / "notes").read_text().splitlines()
    assert notes[0] == f"<{leader.job_pid}> 0"
    assert [line.split()[-1] for line in notes] == ["0", "300", "0.0"]


@needs_root
def test_a_stop_reaches_the_job_on_a_full_disk_and_its_end_is_recorded(shims: Shims, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 1 << 20) as disk:
        shim = up(shims, COUNTING, folder=disk)
        fill(disk / "ballast")
        assert shim.stop(grace_seconds=20)
        record = shim.end()
        assert record.exit_code == 3 and record.stop is not None and record.stop.cause == "cancelled"
        assert not (shim.path / "stop.json").exists()
