"""`agent.jobs.shim.tree`, `ladder` and `records`, each alone: what real jobs cannot show, or not every time."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from agent.jobs.shim import records
from agent.jobs.shim.ladder import GRACE, OVER, SETTLE, Ladder
from agent.jobs.shim.launch import Order, read_order
from agent.jobs.shim.tree import TreeGroup
from tests.support.shims import Shim, fill, needs_root, python, small_disk, until

ROOT = str(Path(__file__).parents[3])
HARNESS = """
import os, signal, sys, time
sys.path.append(sys.argv[1])
from agent.jobs.shim import tree
from agent.jobs.shim.prctl import become_subreaper
if sys.argv[2] == "whole machine":
    tree._children = lambda pid: None
become_subreaper()
group = tree.TreeGroup()
def reap():
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
group.reap = reap
assert group.empty() and group.pids() == []
group.kill()
group.enter_shim()
receive, send = os.pipe()
if os.fork() == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for depth in range(4):
        os.fork()
    restless = os.fork() == 0 and os.getpid() % 8 == 0
    if os.getpid() % 2:
        os.setsid()
    os.write(send, b"x")
    while True:
        if restless:                    # goes on as its own child, again and again
            os.fork() and os._exit(0)
        time.sleep(0.005 if restless else 300)
seen = 0
while seen < 32:
    seen += len(os.read(receive, 64))
assert len(group.pids()) >= 24 and not group.empty()
rounds = 0
while not group.empty():
    group.kill()
    reap()
    rounds += 1
    time.sleep(0.002)
    assert rounds < 2000
assert group.pids() == []
print("gone", all(value is None for value in group.counters().values()), group.remove())
"""


@pytest.mark.parametrize("way", ["children files", "whole machine"])
def test_a_forking_tree_without_a_cgroup_is_killed_to_the_last(tmp_path: Path, way: str) -> None:
    harness = Shim(tmp_path, python(HARNESS, ROOT, way))
    environment = {"MARK": harness.mark}
    try:
        done = subprocess.run(harness.launch["argv"], env=environment, capture_output=True, text=True, timeout=120, check=False)
        assert (done.stdout, done.stderr, harness.left()) == ("gone True True\n", "", [])
    finally:
        harness.clear()


def test_in_a_process_that_is_no_shim_a_tree_touches_nobody() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        group = TreeGroup({"enforcement": "none"})
        group.kill()
        assert (group.pids(), group.empty(), child.poll()) == ([], True, None)
        child.kill()


class Job:
    """A group and a leader that only time can move."""

    def __init__(self, *, dies: bool = True) -> None:
        self.dies, self.kills, self.sent = dies, 0, []
        self.over = False
        self.begun = True
        self.others: list[int] = []

    def empty(self) -> bool:
        return self.over and not self.others

    def pids(self) -> list[int]:
        return self.others

    def kill(self) -> None:
        self.kills += 1
        if self.dies:
            self.over, self.others = True, []

    def send(self, number: int, *, wake: bool = False) -> bool:
        self.sent.append(number)
        return not self.over


def ladder_of(job: Job, kill_wait_seconds: float = 5.0) -> Ladder:
    return Ladder(SimpleNamespace(before_kill=[], kill_wait_seconds=kill_wait_seconds), job, job)  # type: ignore[arg-type]


def test_what_cannot_be_killed_is_tried_again_and_given_up_in_time() -> None:
    job = Job(dies=False)
    ladder = ladder_of(job)
    ladder.stop(Order("cancelled", 15, 1.0), 10.0)
    assert ladder.step(10.0) == 11.0
    now, last = 11.0, 10.0
    while ladder.phase != OVER:
        due = ladder.step(now)
        assert due is None or now < due <= now + 0.2
        last, now = now, due if due is not None else now
    assert last == pytest.approx(16.0, abs=0.2)
    assert 10 <= job.kills <= 25
    assert job.sent[0] == 15 and set(job.sent[1:]) == {9}


def test_a_process_that_ends_by_itself_just_after_the_first_is_no_leftover() -> None:
    job = Job()
    ladder = ladder_of(job)
    job.over, job.others = True, [7]
    due = ladder.step(10.0)
    assert ladder.phase == SETTLE and due is not None and due > 10.0
    job.others = []
    ladder.step(10.09)
    assert (ladder.phase, ladder.leftover_killed, job.kills) == (OVER, 0, 0)


def test_a_later_shorter_grace_shortens_and_a_longer_one_does_not() -> None:
    ladder = ladder_of(Job())
    ladder.stop(Order("first", 15, 60.0), 10.0)
    assert ladder.step(10.0) == 70.0
    for grace, now in ((0.5, 11.0), (90.0, 11.25)):
        ladder.stop(Order("later", 15, grace), now)
        assert (ladder.step(now), ladder.phase) == (11.5, GRACE)
    ladder.step(11.5)
    assert ladder.phase == OVER and ladder.order is not None and ladder.order.cause == "first"


def test_an_order_waits_for_the_program_to_begin() -> None:
    job = Job()
    job.begun = False
    ladder = ladder_of(job)
    ladder.stop(Order("cancelled", 15, 1.0), 10.0)
    ladder.step(10.0)
    assert (job.sent, ladder.phase) == ([], GRACE)
    job.begun = True
    for now in (10.1, 10.2):
        ladder.step(now)
    assert job.sent == [15]


def test_an_order_that_comes_after_the_end_is_not_why_it_ended() -> None:
    job = Job()
    ladder = ladder_of(job)
    job.over, job.others = True, [7]
    ladder.stop(Order("cancelled", 15, 1.0), 10.0)
    ladder.step(10.0)
    ladder.stop(Order("cancelled", 15, 0.0), 10.05)
    ladder.step(10.2)
    assert (ladder.phase, ladder.order, ladder.leftover_killed, job.kills) == (OVER, None, 1, 1)


@pytest.mark.parametrize(
    "data", [None, b"", b"{", b"[]", b"3", b'{"cause":"x","signal":"TERM","grace_seconds":1}', b'{"cause":"x","signal":15}',
             b'{"cause":"x","signal":0,"grace_seconds":1}', b'{"cause":"x","signal":15,"grace_seconds":NaN}', b"[" * 100_000]
)  # fmt: skip
def test_a_broken_order_is_no_order(data: bytes | None) -> None:
    assert read_order(data) is None


def test_a_negative_grace_is_none() -> None:
    order = read_order(b'{"cause":"x","signal":15,"grace_seconds":-4}')
    assert order is not None and order.grace_seconds == 0


@needs_root
def test_an_exit_record_has_its_room_kept_and_else_waits_for_some(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with small_disk(tmp_path / "disk", 1 << 18) as disk:
        monkeypatch.chdir(disk)
        for reserved in (True, False):
            if reserved:
                records.reserve_exit()
            fill(disk / "ballast")
            writer = threading.Thread(target=records.write_exit, args=(b"x" * 3000,))
            writer.start()
            if not reserved:
                until(lambda: (disk / ".exit.reserved").exists())
                assert not (disk / "exit.json").exists()
                (disk / "ballast").unlink()
            writer.join(60)
            assert not writer.is_alive()
            assert (disk / "exit.json").read_bytes() == b"x" * 3000
            assert not (disk / ".exit.reserved").exists()
            (disk / "exit.json").unlink()
        monkeypatch.chdir("/")


def test_a_record_for_a_folder_that_is_gone_is_not_tried_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    records.write_exit(b"{}")
    assert not folder.exists()


def test_a_name_of_a_process_cannot_confuse_what_is_read_of_it(tmp_path: Path) -> None:
    odd = tmp_path / "a) R 1 (b"
    odd.symlink_to("/bin/sleep")
    with subprocess.Popen([str(odd), "60"]) as child:
        fields = records.stat_fields(child.pid)
        assert fields is not None and int(fields[1]) == os.getpid()
        child.kill()
    assert records.stat_fields(child.pid) is None and records.start_ticks(child.pid) is None
