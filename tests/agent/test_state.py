"""`agent.state`: one agent at a time, a private directory, and room to write."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from agent import state
from agent.errors import StateDirectoryError, StateFull, StateLocked

HOLD = """
import sys, time
from agent import state
lock = state.claim(sys.argv[1])
print("held", flush=True)
time.sleep(60)
"""


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def holder(tmp_path: Path) -> subprocess.Popen[str]:
    """Another process that holds `tmp_path/state`."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "state")], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_new_directory_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    with state.claim(tmp_path / "a/state") as lock:
        assert mode(lock.directory) == 0o700


def test_a_second_agent_is_told_the_directory_and_the_pid(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    directory = tmp_path / "state"
    with pytest.raises(StateLocked) as caught:
        state.claim(directory)
    assert f"another agent (process {holder.pid}) runs on the state directory {directory}" in str(caught.value)
    assert state.lock_holder(directory) == holder.pid


def test_a_killed_agent_leaves_no_lock(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    holder.kill()
    holder.wait()
    with state.claim(tmp_path / "state") as lock:
        assert (lock.directory / "lock").read_text() == f"{os.getpid()}\n"


def test_a_released_lock_can_be_taken_again(tmp_path: Path) -> None:
    first = state.claim(tmp_path / "state")
    first.release()
    first.release()
    assert state.lock_holder(tmp_path / "state") is None
    with state.claim(tmp_path / "state"):
        pass


def test_a_lock_ends_with_the_block_also_after_a_fault(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), state.claim(tmp_path / "state"):
        raise ZeroDivisionError
    assert state.lock_holder(tmp_path / "state") is None


def test_nobody_holds_a_directory_that_is_not_there(tmp_path: Path) -> None:
    assert state.lock_holder(tmp_path / "nothing") is None


def test_to_look_who_holds_it_changes_nothing(tmp_path: Path) -> None:
    assert state.lock_holder(tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(StateDirectoryError, match="name another one with --state-dir"):
        state.prepare(tmp_path / "state")


def test_a_parent_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateDirectoryError, match=r"cannot be made or read \(.*\); name another one"):
        state.prepare(tmp_path / "file/state")


def test_an_empty_open_directory_is_closed(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    assert mode(state.prepare(tmp_path)) == 0o700


def test_an_open_directory_of_the_agent_is_closed(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("")
    tmp_path.chmod(0o755)
    assert mode(state.prepare(tmp_path)) == 0o700


def test_a_directory_of_other_things_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    tmp_path.chmod(0o755)
    assert mode(state.prepare(tmp_path)) == 0o755


def test_a_shared_directory_of_other_things_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    tmp_path.chmod(0o777)
    with pytest.raises(StateDirectoryError, match="other users can write into the state directory"):
        state.prepare(tmp_path)
    assert mode(tmp_path) == 0o777


def test_a_directory_that_cannot_be_written_says_how_to_give_it_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: not mode & os.W_OK)
    with pytest.raises(StateDirectoryError, match=rf"cannot be written by this user; give it to them with `chown \d+ {tmp_path}`"):
        state.prepare(tmp_path)


def test_a_directory_of_somebody_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.chown(tmp_path, 4242, -1) if os.geteuid() == 0 else pytest.skip("only root can give a directory away")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(StateDirectoryError, match=r"belongs to user 4242, not to this one \(1000\)"):
        state.prepare(tmp_path)


def test_too_little_space_is_said_before_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "free_bytes", lambda directory: 3_000_000)
    with pytest.raises(StateFull, match=r"only 3 MB are free .* needs 17 MB"):
        state.claim(tmp_path / "state")
    assert state.lock_holder(tmp_path / "state") is None


def test_free_space_is_what_the_file_system_says(tmp_path: Path) -> None:
    values = os.statvfs(tmp_path)
    assert abs(state.free_bytes(tmp_path) - values.f_bavail * values.f_frsize) < 1_000_000_000


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_device_is_a_fault_of_its_own(number: int) -> None:
    fault = state.worded(OSError(number, os.strerror(number)), Path("/s"), "cannot be locked")
    assert isinstance(fault, StateFull)
    assert "no space is left on the device of /s" in str(fault)


def test_other_faults_keep_the_kernels_word_for_it() -> None:
    fault = state.worded(OSError(errno.EROFS, "Read-only file system"), Path("/s"), "cannot be locked")
    assert not isinstance(fault, StateFull)
    assert str(fault) == "the state directory /s cannot be locked (Read-only file system); name another one with --state-dir"


def test_a_lock_file_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StateDirectoryError, match="cannot be locked"):
        state.claim(tmp_path)
    assert not (tmp_path / "elsewhere").exists()
