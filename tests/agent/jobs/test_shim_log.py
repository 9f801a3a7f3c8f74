"""The shim's log: exact offsets over rotation, a quota, and a disk that is full for a while or for ever."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.jobs.attempt_dir import AttemptDir
from agent.jobs.logs import log_size, read_log
from agent.jobs.shim import log_writer
from agent.jobs.shim.log_writer import LogWriter
from tests.support.shims import Shims, needs_root, python, small_disk, until

FULL = 4096


@pytest.fixture
def shims(tmp_path: Path) -> Iterator[Shims]:
    made = Shims(tmp_path)
    yield made
    made.clear()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Disk:
    """Calls to the disk that fail while `error` is set, and a clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.error: OSError | None = None
        self.free = 1 << 40
        self.now = 100.0
        self._write, self._rename = os.write, os.rename
        monkeypatch.setattr(log_writer.os, "write", self.write)
        monkeypatch.setattr(log_writer.os, "rename", self.rename)
        monkeypatch.setattr(log_writer.os, "statvfs", lambda path: os.statvfs_result((1, 1, 0, 0, self.free, 0, 0, 0, 0, 255)))

    def write(self, descriptor: int, data: memoryview) -> int:
        if self.error is not None:
            raise self.error
        return self._write(descriptor, data)

    def rename(self, old: str, new: str) -> None:
        if self.error is not None:
            raise self.error
        self._rename(old, new)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def begun(disk: Disk, *, quota: int = 1 << 30, floor: int = 0) -> LogWriter:
    writer = LogWriter(FULL, quota, floor, lambda: disk.now)
    writer.begin()
    return writer


def kept(folder: Path) -> bytes:
    files = sorted(folder.glob("log.*"), key=lambda path: int(path.suffix[1:]))
    return b"".join(path.read_bytes() for path in [*files, folder / "log"] if path.exists())


def test_full_files_are_of_one_length_and_the_oldest_go_beyond_the_quota(folder: Path, disk: Disk) -> None:
    writer = begun(disk, quota=4 * FULL)
    written = bytes(range(256)) * 97
    for start in range(0, len(written), 777):
        writer.write(memoryview(written)[start : start + 777])
    writer.close()
    assert writer.total == len(written)
    assert {path.name: path.stat().st_size for path in folder.glob("log.*")} == {"log.4": FULL, "log.5": FULL, "log.6": FULL}
    assert kept(folder) == written[3 * FULL :]
    assert log_size(folder) == len(written)


def test_what_a_full_disk_cannot_take_is_dropped_counted_and_said(folder: Path, disk: Disk) -> None:
    writer = begun(disk)
    writer.write(memoryview(b"one\ntwo is cut"))
    disk.error = OSError(28, "No space left on device")
    for text in (b" here\nthree\n", b"four\nfi"):
        writer.write(memoryview(text))
    disk.error = None
    writer.write(memoryview(b"ve\n"))  # too early to try again
    disk.now += 2
    writer.write(memoryview(b"six\n"))
    writer.close()
    note = b"[rackrate: 4 lines (22 bytes) of the log were dropped here: No space left on device]\n"
    assert kept(folder) == b"one\ntwo is cut\n" + note + b"six\n"
    assert (writer.dropped_lines, writer.total) == (4, len(kept(folder)))


def test_after_a_drop_the_log_goes_on_with_a_whole_line(folder: Path, disk: Disk) -> None:
    writer = begun(disk)
    disk.error = OSError(122, "Disk quota exceeded")
    writer.write(memoryview(b"begin"))
    disk.error, disk.now = None, disk.now + 2
    writer.write(memoryview(b" end\nnext\n"))
    writer.close()
    assert kept(folder) == b"[rackrate: 1 lines (10 bytes) of the log were dropped here: Disk quota exceeded]\nnext\n"
    assert writer.dropped_lines == 1


def test_an_error_while_a_file_is_turned_keeps_the_offsets(folder: Path, disk: Disk) -> None:
    writer = begun(disk)
    writer.write(memoryview(b"a" * FULL))
    disk.error = OSError(5, "Input/output error")
    writer.write(memoryview(b"lost\n"))
    disk.error, disk.now = None, disk.now + 2
    writer.write(memoryview(b"b\n"))
    writer.close()
    assert (folder / "log.1").read_bytes() == b"a" * FULL
    assert (folder / "log").read_bytes().endswith(b"Input/output error]\nb\n")
    assert log_size(folder) == writer.total


def test_below_the_floor_the_rest_of_the_disk_is_left_to_others(folder: Path, disk: Disk) -> None:
    writer = begun(disk, floor=1000)
    writer.write(memoryview(b"one\n"))
    disk.free, disk.now = 999, disk.now + 1
    writer.write(memoryview(b"two\n"))
    disk.now += 2
    writer.write(memoryview(b"three\n"))
    disk.free, disk.now = 1000, disk.now + 2
    writer.write(memoryview(b"four\n"))
    writer.close()
    assert kept(folder).splitlines()[0::2] == [b"one", b"four"]
    assert b"2 lines (10 bytes)" in kept(folder) and b"less than 1000 bytes are free" in kept(folder)


def test_an_end_on_a_full_disk_still_knows_what_was_dropped(folder: Path, disk: Disk) -> None:
    writer = begun(disk)
    disk.error = OSError(28, "No space left on device")
    writer.write(memoryview(b"a\nb\nc"))
    writer.close()
    assert (writer.total, writer.dropped_lines, kept(folder)) == (0, 3, b"")


@needs_root
def test_a_job_on_a_full_disk_ends_normally_and_its_end_is_known(shims: Shims, tmp_path: Path) -> None:
    write = "import sys\nfor n in range(40000): print(n, 'x' * 90)\nsys.exit(7)"
    with small_disk(tmp_path / "disk", 1 << 20) as disk:
        shim = shims(
            python(write), folder=disk, log={"rotate_bytes": 1 << 18, "quota_bytes": 1 << 30, "free_floor_bytes": 0}
        ).start()
        record = shim.end()
        assert (record.exit_code, record.empty) == (7, True)
        lines = shim.log().splitlines()
        assert lines[0].startswith("0 x") and record.log_bytes == sum(path.stat().st_size for path in shim.path.glob("log*"))
        assert record.log_dropped_lines > 20000
        assert shim.dir.shim() is not None


@needs_root
def test_when_a_disk_has_room_again_the_log_goes_on(shims: Shims, tmp_path: Path) -> None:
    write = (
        "import sys, time\nfor n in range(100000):\n print(n, 'x' * 90, flush=True)\n"
        " if n == 15000: open(sys.argv[1], 'w')\n if n > 15000: time.sleep(0.01)"  # so slowly that the disk is not full again
    )
    with small_disk(tmp_path / "disk", 2 << 20) as disk:
        (disk / "ballast").write_bytes(bytes(1 << 20))
        shim = shims(python(write, str(tmp_path / "most is written")), folder=disk).start().begun()
        until((tmp_path / "most is written").exists)
        (disk / "ballast").unlink()
        shim.wrote("of the log were dropped here")
        shim.stop(0)
        record = shim.end()
        before, _, after = shim.log().partition("[rackrate: ")
        assert before.endswith("\n") and before.startswith("0 xx")
        rest = after.splitlines()
        assert all(line.split(" ")[0].isdigit() for line in rest[1:-1])
        dropped = int(rest[0].split()[0])
        if len(rest) > 2:
            assert abs(int(rest[1].split()[0]) - before.count("\n") - dropped) <= 1  # a line may be cut in two
        assert record.log_dropped_lines == dropped


def test_a_process_elsewhere_that_holds_the_pipe_does_not_keep_the_shim(shims: Shims, tmp_path: Path) -> None:
    write = "import os, sys, time\nprint('last words', flush=True)\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.01)"
    go = tmp_path / "go"
    shim = shims(python(write, str(go))).start().begun().wrote("last words")
    record = shim.dir.shim()
    assert record is not None
    with open(f"/proc/{record.job_pid}/fd/1", "wb", buffering=0) as pipe:
        go.touch()
        assert shim.end().exit_code == 0
        with pytest.raises(BrokenPipeError):
            pipe.write(b"nobody reads this")


def test_all_that_was_written_is_in_the_log_in_its_order(shims: Shims) -> None:
    write = "import os\nfor n in range(200000): os.write(1 + n % 2, b'%06d\\n' % n)"
    shim = shims(python(write), log={"rotate_bytes": 100_000, "quota_bytes": 1 << 30, "free_floor_bytes": 0}).start()
    record = shim.end()
    assert shim.log() == "".join(f"{n:06d}\n" for n in range(200000))
    page = read_log(AttemptDir(shim.path), 7 * 123_456, 70, job=shim.job, attempt=1)
    assert page.text.splitlines() == [f"{n:06d}" for n in range(123_456, 123_466)]
    assert record.log_bytes == 1_400_000 == log_size(shim.dir)
