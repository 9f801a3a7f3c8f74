"""`agent.jobs.logs`: pages by offset over rotated files, cut between characters, whatever else happens to the files."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import msgspec
import pytest

from agent import wire
from agent.errors import StateDirectoryError
from agent.jobs.attempt_dir import ExitRecord
from agent.jobs.logs import log_size, read_log
from agent.jobs.shim.log_writer import LogWriter


def page(folder: Path, offset: int, limit: int = 65536, ended: bool | None = None) -> wire.LogPage:
    return read_log(folder, offset, limit, job="0123456789ab", attempt=1, ended=ended)


def finish(folder: Path, **fields: object) -> None:
    record = ExitRecord(job="0123456789ab", attempt=1, **fields)  # type: ignore[arg-type]
    (folder / "exit.json").write_bytes(msgspec.json.encode(record))


def test_nothing_yet_is_an_empty_page(tmp_path: Path) -> None:
    assert log_size(tmp_path) == 0
    for folder in (tmp_path, tmp_path / "not made"):
        found = page(folder, 10)
        assert (found.text, found.first_offset, found.offset, found.next_offset, found.ended) == ("", 0, 0, 0, False)


def test_pages_follow_each_other_over_the_files(tmp_path: Path) -> None:
    whole = "".join(f"line {n}\n" for n in range(30)).encode()
    for number in range(1, 4):
        (tmp_path / f"log.{number}").write_bytes(whole[(number - 1) * 50 : number * 50])
    (tmp_path / "log").write_bytes(whole[150:])
    (tmp_path / "log.old").write_bytes(b"nobody's")
    found, offset = b"", 0
    while data := page(tmp_path, offset, 64):
        assert data.offset == offset
        if not data.text:
            break
        found, offset = found + data.text.encode(), data.next_offset
    assert (found, offset, log_size(tmp_path)) == (whole, len(whole), len(whole))


def test_what_was_removed_moves_the_page_to_the_first_byte_that_is_kept(tmp_path: Path) -> None:
    (tmp_path / "log.7").write_bytes(b"7" * 10)
    (tmp_path / "log.8").write_bytes(b"8" * 10)
    (tmp_path / "log").write_bytes(b"99")
    found = page(tmp_path, 3)
    assert (found.first_offset, found.offset, found.next_offset, found.text) == (60, 60, 82, "7" * 10 + "8" * 10 + "99")
    assert page(tmp_path, 79, 4).text == "899"
    assert (page(tmp_path, 10**9).offset, page(tmp_path, 10**9).text) == (82, "")


def test_a_log_that_was_just_turned_has_no_current_file(tmp_path: Path) -> None:
    (tmp_path / "log.1").write_bytes(b"1" * 10)
    assert (log_size(tmp_path), page(tmp_path, 4).text) == (10, "1" * 6)


def test_a_page_is_cut_between_characters(tmp_path: Path) -> None:
    data = "aé€😀".encode()
    (tmp_path / "log").write_bytes(data)
    pages, offset = [], 0
    while offset < len(data):
        found = page(tmp_path, offset, 1)
        pages.append(found.text)
        assert found.next_offset > offset
        offset = found.next_offset
    assert "".join(pages) == "aé€😀"


def test_a_character_that_is_still_being_written_waits_for_its_rest(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"ab\xf0\x9f")
    found = page(tmp_path, 0)
    assert (found.text, found.next_offset) == ("ab", 2)
    assert (page(tmp_path, 2).text, page(tmp_path, 2).next_offset) == ("", 2)
    ended = page(tmp_path, 2, ended=True)
    assert (ended.text, ended.next_offset, ended.ended) == ("\ufffd", 4, True)


def test_bytes_that_are_no_text_are_replaced_and_control_sequences_kept(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"\xff\x1b[31mred\x1b[0m\0\r\n")
    assert page(tmp_path, 0).text == "\ufffd\x1b[31mred\x1b[0m\0\r\n"


def test_the_end_is_said_once_everything_was_given(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"0123456789")
    assert not page(tmp_path, 0).ended
    finish(tmp_path, log_bytes=10, log_dropped_lines=4)
    assert not page(tmp_path, 0, 5).ended
    last = page(tmp_path, 5)
    assert (last.text, last.ended, last.dropped_lines) == ("56789", True, 4)
    assert page(tmp_path, 10).ended


def test_a_link_in_the_place_of_a_log_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hush")
    (tmp_path / "log").symlink_to(tmp_path / "secret")
    with pytest.raises(StateDirectoryError, match="has a log that cannot be read"):
        page(tmp_path, 0)


def test_a_reader_beside_a_writer_sees_every_byte_in_its_place(tmp_path: Path) -> None:
    whole = b"".join(b"%07d\n" % number for number in range(40000))
    before = os.getcwd()
    os.chdir(tmp_path)
    try:
        writer = LogWriter(4096, 1 << 30, 0)
        writer.begin()
        errors: list[str] = []

        def follow() -> None:
            offset = 0
            while offset < len(whole):
                try:
                    found = page(tmp_path, offset, 5000)
                except StateDirectoryError as error:
                    if "ask again" not in str(error):
                        raise
                    continue
                if found.offset != offset or found.text.encode() != whole[offset : found.next_offset]:
                    return errors.append(f"at {offset}")
                offset = found.next_offset

        reader = threading.Thread(target=follow)
        reader.start()
        for start in range(0, len(whole), 999):
            writer.write(memoryview(whole)[start : start + 999])
        reader.join(60)
        writer.close()
    finally:
        os.chdir(before)
    assert errors == [] and not reader.is_alive()
