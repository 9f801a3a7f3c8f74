"""The audit: a chain in which every change shows, and which goes on after a crash."""

from __future__ import annotations

import json
import resource
import signal
import stat
from pathlib import Path

import pytest

from agent.errors import StateDirectoryError, StateFull
from agent.jobs.audit import Audit, verify


def written(path: Path, count: int = 3) -> list[bytes]:
    """The lines of a new audit with that many entries."""
    audit = Audit.open(path)
    for number in range(count):
        audit.write("node", "10.0.0.7", "cancel", f"job {number}", "done")
    audit.close()
    return path.read_bytes().splitlines(keepends=True)


def test_entries_have_what_they_need_and_go_on_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    written(path, 2)
    audit = Audit.open(path)
    assert audit.write("ann\n\x1b[2J", None, "submit", "x" * 9999, "done") == 3
    audit.close()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["seq"] for line in lines] == [1, 2, 3]
    assert lines[0]["prev"] == "0" * 64
    assert lines[2]["actor"] == "ann\n\x1b[2J"
    assert len(lines[2]["object"]) == 501
    checked = verify(path)
    assert (checked.lines, checked.last_sequence, checked.torn, checked.problem) == (3, 3, 0, None)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda lines: [lines[0], lines[1].replace(b"job 1", b"job 9"), lines[2]], 3),
        (lambda lines: [lines[0], lines[2]], 2),
        (lambda lines: [lines[1], lines[0], lines[2]], 1),
        (lambda lines: [lines[0], lines[1], lines[1], lines[2]], 3),
        (lambda lines: [lines[0], b"nonsense\n", lines[1], lines[2]], 2),
        (lambda lines: [lines[0], b"\n", lines[1], lines[2]], 2),
        (lambda lines: lines[1:], 1),
    ],
)
def test_a_line_that_was_changed_taken_out_or_put_in_is_named(tmp_path: Path, change: object, line: int) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_bytes(b"".join(change(written(path))))  # type: ignore[operator]
    assert (verify(path).problem or "").startswith(f"line {line} ")


def test_a_file_cut_anywhere_is_gone_on_from_and_the_cut_is_noted(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    lines = written(path)
    whole = b"".join(lines)
    for cut in sorted({*range(len(lines[0]) + 1, len(whole), 7), len(whole) - 1, len(lines[0] + lines[1])}):
        path.write_bytes(whole[:cut])
        audit = Audit.open(path)
        audit.write("node", None, "cancel", "job 3", "done")
        audit.close()
        checked = verify(path)
        assert checked.problem is None
        at_an_end = whole[cut - 1 : cut] == b"\n" or whole[cut : cut + 1] == b"\n"
        assert checked.torn == (0 if at_an_end else 1)
        assert path.read_bytes().startswith(whole[:cut])


def test_a_change_before_a_torn_line_is_found_too(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    lines = written(path)
    path.write_bytes(lines[0] + lines[1] + lines[2][:20])
    Audit.open(path).close()
    Audit.open(path).close()
    assert verify(path).torn == 1
    path.write_bytes(path.read_bytes().replace(b"job 1", b"job 9"))
    assert (verify(path).problem or "").startswith("line 4 does not follow")


def test_a_crash_while_the_cut_is_noted_is_gone_on_from(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    lines = written(path)
    path.write_bytes(lines[0] + lines[1][:20] + b"\n" + lines[2][:30])
    assert "was cut short" in (verify(path).problem or "")
    Audit.open(path).close()
    assert verify(path).problem is None


def test_the_very_first_line_may_be_torn(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_bytes(b'{"seq"')
    Audit.open(path).close()
    assert (verify(path).problem, verify(path).last_sequence) == (None, 1)


def test_a_file_of_something_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_bytes(b"log line\n" * 20_000)
    with pytest.raises(StateDirectoryError, match=r"audit\.jsonl is damaged"):
        Audit.open(path)
    assert len(path.read_bytes()) == 180_000
    with pytest.raises(StateDirectoryError, match="cannot be used"):
        verify(tmp_path / "nowhere")


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "audit.jsonl").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StateDirectoryError, match="cannot be used"):
        Audit.open(tmp_path / "audit.jsonl")


def test_a_write_that_fails_half_way_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    audit = Audit.open(path)
    audit.write("node", None, "submit", "job 1", "done")
    size = path.stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 40, hard))
    try:
        with pytest.raises(StateDirectoryError) as told:
            audit.write("node", None, "submit", "job 2", "done")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert not isinstance(told.value, StateFull)
    assert path.stat().st_size == size
    audit.write("node", None, "submit", "job 3", "done")
    audit.close()
    assert verify(path).problem is None
