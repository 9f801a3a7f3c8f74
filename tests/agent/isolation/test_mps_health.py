"""Crash loops and faults, from control.log and from the daemon's answers."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from agent.errors import MpsFault
from agent.isolation import mps_log
from agent.isolation.mps_log import LogTail, ServerHistory
from tests.support.fake_mps.rig import FakeMps, fake_mps

__all__ = ["fake_mps"]

START = datetime(2026, 11, 30, 2, 59, 20)
A, B = "0123456789ab", "cdefghjkmnpq"


def line(seconds: float, text: str, pid: int = 16374) -> str:
    at = START + timedelta(seconds=seconds)
    return f"[{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03d} Control {pid:5}] {text}"


def history(*lines: str) -> ServerHistory:
    told = ServerHistory()
    told.take(list(lines))
    return told


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def test_three_failing_servers_in_a_minute_are_a_crash_loop() -> None:
    ends = [line(seconds, f"Server {seconds} exited with status 1") for seconds in (10, 30, 50)]
    assert history(*ends[:2]).crash_loop(at(51)) is None
    told = history(*ends)
    assert told.crash_loop(at(51)) == (
        "MPS servers crash-loop: 3 ended with an error in the last minute (the last, 50, with status 1); look into server.log and dmesg"
    )
    assert told.crash_loop(at(71)) is None, "the first is over a minute old"


def test_servers_that_end_right_after_each_start_are_a_crash_loop_at_the_second() -> None:
    first = [line(0, "Starting new server 7601 for user 0", 7601), line(0.01, "Server 7601 exited with status 1")]
    second = [line(5, "Starting new server 7606 for user 1000", 7606), line(5.01, "Server 7606 exited with status -11")]
    assert history(*first).crash_loop(at(1)) is None
    assert "right after each start (the last, 7606, with status -11)" in (history(*first, *second).crash_loop(at(6)) or "")
    later = [
        line(5, "Starting new server 7606 for user 1000"),
        line(5.1, "NEW SERVER 7606: Ready"),
        line(7, "Server 7606 exited with status 1"),
    ]
    assert history(*first, *later).crash_loop(at(8)) is None, "it had served"


def test_good_ends_strange_lines_and_former_daemons_are_no_trouble() -> None:
    ends = [line(seconds, f"Server {seconds} exited with status 0") for seconds in range(5)]
    noise = [
        "",
        "[",
        "[2026-11-30 99:99:99.999 Control 1] NEW UI",
        "\x00\x00",
        line(1, "Server x exited with status 1"),
        line(2, "Cmd:Server 1 exited with status 1"),
    ]
    assert history(*ends, *noise).crash_loop(at(6)) is None
    failed = [line(seconds, f"Server {seconds} exited with status 1") for seconds in range(5)]
    assert history(*failed, line(6, "Starting control daemon using socket /x/control")).crash_loop(at(7)) is None


def test_a_fatal_exception_lasts_until_the_next_server_is_ready() -> None:
    fatal = line(1, "Server encountered a fatal exception. Shutting down")
    assert history(fatal).fault_at == at(1)
    assert history(fatal, line(3, "NEW SERVER 5: Ready")).fault_at is None


def test_the_log_is_read_on_through_half_lines_cuts_and_a_new_file(tmp_path: Path) -> None:
    path = tmp_path / "control.log"
    path.write_bytes(b"long ago\nnewest\nhal")
    tail = LogTail(path, from_end=10)
    assert tail.read() == ["newest"]
    with path.open("ab") as log:
        log.write(b"f\nbad \xff\n")
    assert tail.read() == ["half", "bad \ufffd"]
    os.truncate(path, 0)
    path.write_bytes(b"after the cut\n")
    assert tail.read() == ["after the cut"]
    path.unlink()
    assert tail.read() == []
    path.write_bytes(b"another file that is longer than the one before\n")
    assert tail.read() == ["another file that is longer than the one before"]
    path.unlink()
    os.mkfifo(path)
    assert tail.read() == [], "never waits"


def test_a_log_that_has_grown_is_cut_and_the_rest_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mps_log, "KEEP_BYTES", 10)
    small, large = tmp_path / "small", tmp_path / "large"
    small.write_bytes(b"x" * 10)
    large.write_bytes(b"x" * 11)
    for path in (small, large, tmp_path / "missing"):
        mps_log.cut(path)
    assert (small.stat().st_size, large.stat().st_size) == (10, 0)


@pytest.mark.parametrize("version", ["550", "535"])
def test_servers_that_cannot_start_make_the_gpu_degraded(fake_mps: FakeMps, version: str) -> None:
    now = datetime.now()
    gpu = fake_mps.gpu(version, environment={"FAKE_MPS_SERVER": "die"}, now=lambda: now)
    gpu.start()
    gpu.admit(A, Decimal("0.5"))
    assert gpu.poll() == ()
    for _ in range(2):
        fake_mps.ask(f"start_server -uid {os.geteuid()}")
        while fake_mps.ask("get_server_list"):
            pass
    (news,) = gpu.poll()
    assert "right after each start" in news and gpu.warnings == (news,)
    assert fake_mps.ask("get_default_active_thread_percentage") == "100.0\n", "the daemon itself looks well"
    assert (gpu.state().state, gpu.state().reason) == ("degraded", news)
    with pytest.raises(MpsFault, match="right after each start"):
        gpu.admit(B, Decimal("0.1"))
    fake_mps.ask(f"start_server -uid {os.geteuid()}")
    while fake_mps.ask("get_server_list"):
        pass
    assert gpu.poll() == () and "crash-loop: 3 ended" in gpu.warnings[0], "the same trouble in other words is no news"
    now = datetime.now() + timedelta(seconds=61)
    assert gpu.poll() == (f"MPS on {fake_mps.uuid} works again",)
    gpu.admit(B, Decimal("0.1"))


def test_a_fault_of_a_server_is_told_and_new_jobs_wait(fake_mps: FakeMps) -> None:
    ticks = 0.0
    gpu = fake_mps.gpu(clock=lambda: ticks)
    gpu.start()
    gpu.admit(A, Decimal("0.5"))
    server = fake_mps.start_server()
    assert gpu.poll() == ()
    fake_mps.ask(f"x_fault {server}")
    assert gpu.poll() == (), "not asked again so soon"
    ticks += 2.1
    (news,) = gpu.poll()
    assert f"MPS server {server}" in news and (gpu.state().state, gpu.state().reason) == ("fault", news)
    with pytest.raises(MpsFault, match="fatal GPU exception"):
        gpu.admit(B, Decimal("0.1"))
    fake_mps.ask(f"shutdown_server {server} -f")
    while fake_mps.ask("get_server_list"):
        pass
    assert gpu.state().state == "idle"


def test_a_fatal_exception_in_the_log_is_a_fault_also_before_550(fake_mps: FakeMps) -> None:
    gpu = fake_mps.gpu("535")
    gpu.start()
    server = fake_mps.start_server()
    assert gpu.poll() == ()
    with (fake_mps.root / "logs/control.log").open("a") as log:
        log.write(line(0, "Server encountered a fatal exception. Shutting down") + "\n")
    (news,) = gpu.poll()
    assert f"MPS server {server}" in news and gpu.state().state == "fault"
    assert (
        "get_server_status" in " ".join(fake_mps.commands()) and fake_mps.commands().count(f"get_server_status {server}") == 1
    )
