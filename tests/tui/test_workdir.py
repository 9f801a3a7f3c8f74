"""`tui.workdir`: the same files give the same archive, and nothing else gets into it."""

from __future__ import annotations

import hashlib
import os
import socket
import tarfile
import time
from pathlib import Path

import pytest

from tui.errors import Failed, WrongUsage
from tui.workdir import pack, survey


def make(folder: Path) -> Path:
    (folder / "src" / "deep").mkdir(parents=True)
    (folder / "train.py").write_text("print(1)\n")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o750)
    (folder / "src" / "deep" / "mod\u00fcle.py").write_text("")
    (folder / "latest").symlink_to("src/deep")
    (folder / "empty").mkdir()
    return folder


def test_the_hash_depends_on_names_contents_and_modes_alone(tmp_path: Path) -> None:
    first = pack(make(tmp_path / "a"), tmp_path / "1.tar.gz")
    other = make(tmp_path / "b")
    os.utime(other / "train.py", (1, 1))
    (other / "train.py").chmod(0o600)
    time.sleep(1.1)  # a gzip header would hold the second
    second = pack(other, tmp_path / "2.tar.gz")
    assert first.sha256 == second.sha256 == hashlib.sha256((tmp_path / "1.tar.gz").read_bytes()).hexdigest()
    assert (first.files, first.bytes, first.packed_bytes) == (4, 19, (tmp_path / "1.tar.gz").stat().st_size)
    (other / "train.py").chmod(0o755)
    assert pack(other, tmp_path / "3.tar.gz").sha256 != first.sha256


def test_the_archive_unpacks_to_the_folder(tmp_path: Path) -> None:
    pack(make(tmp_path / "a"), tmp_path / "a.tar.gz")
    with tarfile.open(tmp_path / "a.tar.gz") as tar:
        members = tar.getmembers()
        assert [member.name for member in members] == sorted(member.name for member in members)
        assert all((member.uid, member.gid, member.uname, member.gname) == (0, 0, "", "") for member in members)
        tar.extractall(tmp_path / "out", filter="data")
    out = tmp_path / "out"
    assert (out / "latest").readlink() == Path("src/deep") and (out / "latest" / "mod\u00fcle.py").exists()
    assert os.access(out / "run.sh", os.X_OK) and not (out / "train.py").stat().st_mode & 0o111 and (out / "empty").is_dir()


def test_what_the_ignore_file_names_stays_behind(tmp_path: Path) -> None:
    make(tmp_path)
    for name in ("data/big.bin", "data/keep.txt", "logs/a/b.log", "c.log", "d.log", ".git/config", "src/__pycache__/x.pyc"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / ".rackrateignore").write_text("# comment\ndata/*\n!data/keep.txt\n*.log\n!d.log\n/run.sh\n")
    paths = {entry.path for entry in survey(tmp_path) if entry.kind != "folder"}
    assert paths == {".rackrateignore", "d.log", "data/keep.txt", "latest", "src/deep/mod\u00fcle.py", "train.py"}
    (tmp_path / ".rackrateignore").write_text("!.git/\n")
    assert ".git/config" in {entry.path for entry in survey(tmp_path)}


def test_a_folder_that_is_ignored_is_not_even_looked_into(tmp_path: Path) -> None:
    (tmp_path / "mnt").mkdir()
    (tmp_path / "mnt" / "out").symlink_to("/etc")
    (tmp_path / ".rackrateignore").write_text("mnt/\n")
    assert [entry.path for entry in survey(tmp_path)] == [".rackrateignore"]


@pytest.mark.parametrize(
    "target", ["/etc/passwd", "../outside", "src/../../outside", "src/deep/../../../x", "loop/../../../../etc"]
)
def test_a_link_that_leads_out_is_refused_by_name(tmp_path: Path, target: str) -> None:
    folder = make(tmp_path / "a")
    (folder / "bad").symlink_to(target)
    with pytest.raises(WrongUsage, match="bad is a link that leads out of the folder"):
        pack(folder, tmp_path / "a.tar.gz")


def test_a_link_that_leads_out_through_another_is_refused(tmp_path: Path) -> None:
    folder = make(tmp_path / "a")
    (tmp_path / "outside").mkdir()
    (folder / "src" / "deep" / "hop").symlink_to("..")
    assert "src/deep/hop" in {entry.path for entry in survey(folder)}
    (folder / "src" / "deep" / "hop").unlink()
    (folder / "src" / "deep" / "hop").symlink_to("../../../outside")
    with pytest.raises(WrongUsage, match="hop is a link that leads out"):
        list(survey(folder))


def test_what_is_neither_file_nor_folder_is_refused(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "sock"))
        with pytest.raises(WrongUsage, match="sock is neither a file"):
            list(survey(tmp_path))
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "sock").unlink()
    with pytest.raises(WrongUsage, match="pipe is neither a file"):
        list(survey(tmp_path))


def test_a_folder_that_is_too_large_names_its_largest_files(tmp_path: Path) -> None:
    for number in range(8):
        with (tmp_path / f"model-{number}.bin").open("wb") as file:
            file.truncate(1_000_000 * (number + 1))
    with pytest.raises(WrongUsage, match=r"largest: model-7\.bin \(7\.6M\), model-6.*rackrateignore") as wrong:
        pack(tmp_path, tmp_path.parent / "out.tar.gz", most_bytes=20_000_000)
    assert "model-2" not in str(wrong.value)


def test_a_file_that_changes_meanwhile_is_said(tmp_path: Path) -> None:
    folder = make(tmp_path / "a")
    told = []

    def grow(done: int, total: int) -> None:
        told.append((done, total))
        (folder / "train.py").write_text("longer than before\n")

    with pytest.raises(Failed, match="train.py changes while it is sent"):
        pack(folder, tmp_path / "a.tar.gz", told=grow)
    assert told[-1][1] == 19


def test_a_folder_that_cannot_be_read_or_a_wrong_ignore_file_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / ".rackrateignore").write_bytes(b"\xff\xfe")
    with pytest.raises(WrongUsage, match="rackrateignore cannot be read"):
        list(survey(tmp_path))
    (tmp_path / ".rackrateignore").write_text("!\n")
    with pytest.raises(WrongUsage, match="rackrateignore: "):
        list(survey(tmp_path))
    (tmp_path / ".rackrateignore").unlink()
    (tmp_path / os.fsdecode(b"caf\xe9")).write_text("")
    with pytest.raises(WrongUsage, match="name that is not UTF-8"):
        list(survey(tmp_path))
