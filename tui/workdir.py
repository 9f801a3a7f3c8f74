"""A folder that goes along with a job: packed into one tar.gz whose hash depends on names, contents and modes alone.

Invariant: the same files give the same archive, whoever packs them and when; nothing outside the folder gets into it, and
a link that leads out is refused by name. What `.rackrateignore` names (in .gitignore's language) stays behind.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import stat
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec
import pathspec

from tui import format as fmt
from tui.errors import Failed, WrongUsage

IGNORE_FILE = ".rackrateignore"
ALWAYS_IGNORED = (".git/", "__pycache__/")
"""`!.git/` in the ignore file takes them along."""
MOST_BYTES = 2 * 1024**3
MOST_FILES = 100_000
LARGEST_IGNORE = 1024 * 1024
FIXED_TIME = 315_619_200
"""2 January 1980: zip files and wheels that a job makes of its files know no earlier time."""
SHOWN = 5


class Entry(msgspec.Struct, frozen=True):
    """One thing of the folder. `path` has slashes and is relative to the folder."""

    path: str
    kind: str
    """`file`, `folder` or `link`."""
    size: int
    executable: bool = False
    target: str = ""


class Packed(msgspec.Struct, frozen=True, kw_only=True):
    """The archive as it lies there."""

    file: Path
    sha256: str
    files: int
    bytes: int
    """Of the files, before they were packed."""
    packed_bytes: int


def pack(folder: Path, out: Path, *, most_bytes: int = MOST_BYTES, told: Callable[[int, int], None] | None = None) -> Packed:
    """Packs `folder` into `out`. `told(done, all)`: bytes that are packed so far. Raises `WrongUsage` or `Failed`."""
    entries = list(survey(folder))
    total = sum(entry.size for entry in entries)
    if total > most_bytes:
        raise WrongUsage(_too_large(folder, entries, total, most_bytes))
    with out.open("wb") as raw:
        hashing = _Hashing(raw)
        with gzip.GzipFile(filename="", fileobj=hashing, mode="wb", compresslevel=6, mtime=0) as zipped:
            _write(folder, entries, zipped, total, told)
        size = raw.tell()
    files = sum(entry.kind != "folder" for entry in entries)
    return Packed(file=out, sha256=hashing.digest.hexdigest(), files=files, bytes=total, packed_bytes=size)


def survey(folder: Path) -> Iterator[Entry]:
    """All that goes along, in the order of its path. Raises `WrongUsage` for what cannot."""
    ignored = _ignored(folder)
    found = sorted(_walk(folder, folder.resolve(), "", ignored), key=lambda entry: entry.path)
    if len(found) > MOST_FILES:
        raise WrongUsage(f"{folder} has more than {MOST_FILES:,} files; name what is not needed in {folder / IGNORE_FILE}.")
    yield from found


def _ignored(folder: Path) -> pathspec.GitIgnoreSpec:
    lines: list[str] = list(ALWAYS_IGNORED)
    file = folder / IGNORE_FILE
    try:
        lines += file.read_bytes()[:LARGEST_IGNORE].decode("utf-8").splitlines()
    except FileNotFoundError:
        pass
    except (OSError, UnicodeDecodeError) as error:
        raise WrongUsage(f"{file} cannot be read ({getattr(error, 'strerror', None) or 'it is not UTF-8'}).") from None
    try:
        return pathspec.GitIgnoreSpec.from_lines(lines)
    except ValueError as error:
        raise WrongUsage(f"{file}: {error}.") from None


def _walk(folder: Path, root: Path, below: str, ignored: pathspec.GitIgnoreSpec) -> Iterator[Entry]:
    try:
        with os.scandir(folder / below) as scan:
            items = list(scan)
    except OSError as error:
        raise WrongUsage(f"{folder / below} cannot be read ({error.strerror}).") from None
    for item in items:
        path = below + item.name
        _check_name(path)
        if item.is_dir(follow_symlinks=False):
            if not ignored.match_file(path + "/"):
                yield Entry(path, "folder", 0)
                yield from _walk(folder, root, path + "/", ignored)
        elif not ignored.match_file(path):
            yield _entry(folder, root, path, item)


def _check_name(path: str) -> None:
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        shown = fmt.clean(path.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))
        raise WrongUsage(f"the file {shown} has a name that is not UTF-8; rename it.") from None


def _entry(folder: Path, root: Path, path: str, item: os.DirEntry[str]) -> Entry:
    status = item.stat(follow_symlinks=False)
    if stat.S_ISREG(status.st_mode):
        return Entry(path, "file", status.st_size, bool(status.st_mode & 0o100))
    if stat.S_ISLNK(status.st_mode):
        target = os.readlink(item.path)
        _check_link(folder, root, path, target)
        return Entry(path, "link", 0, target=target)
    raise WrongUsage(f"{folder / path} is neither a file, a folder nor a link; name it in {folder / IGNORE_FILE}.")


def _check_link(folder: Path, root: Path, path: str, target: str) -> None:
    """Neither by its text nor by where it ends on this machine may it leave the folder."""
    depth = path.count("/")
    outside = os.path.isabs(target) or not target
    for part in target.split("/"):
        depth += -1 if part == ".." else 0 if part in ("", ".") else 1
        outside = outside or depth < 0
    if not outside:
        end = Path(os.path.realpath(folder / path))
        outside = end != root and root not in end.parents
    if outside:
        raise WrongUsage(f"{folder / path} is a link that leads out of the folder (to {fmt.clean(target)}); copy what it names, "
                         f"or name it in {folder / IGNORE_FILE}.")  # fmt: skip


def _too_large(folder: Path, entries: list[Entry], total: int, most: int) -> str:
    largest = sorted(entries, key=lambda entry: (-entry.size, entry.path))[:SHOWN]
    named = ", ".join(f"{fmt.clean(entry.path)} ({fmt.size(entry.size)})" for entry in largest if entry.size)
    return (
        f"{folder} has {fmt.size(total)}, more than the {fmt.size(most)} that are sent; largest: {named}; name what is not "
        f"needed in {folder / IGNORE_FILE}."
    )


def _write(folder: Path, entries: list[Entry], out: gzip.GzipFile, total: int, told: Callable[[int, int], None] | None) -> None:
    done = 0
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT, encoding="utf-8") as tar:  # type: ignore[call-overload]
        for entry in entries:
            _add(tar, folder, entry)
            done += entry.size
            if told is not None:
                told(done, total)


def _add(tar: tarfile.TarFile, folder: Path, entry: Entry) -> None:
    member = tarfile.TarInfo(entry.path)
    member.mtime = FIXED_TIME
    member.mode = 0o755 if entry.executable or entry.kind == "folder" else 0o644
    if entry.kind != "file":
        member.type = tarfile.DIRTYPE if entry.kind == "folder" else tarfile.SYMTYPE
        member.linkname = entry.target
        tar.addfile(member)
        return
    member.size = entry.size
    try:
        descriptor = os.open(folder / entry.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if os.fstat(descriptor).st_size != entry.size:
                raise Failed(
                    f"{folder / entry.path} changes while it is sent; try again, or name it in {folder / IGNORE_FILE}."
                )
            tar.addfile(member, file)
    except OSError as error:
        why = error.strerror or "it became shorter while it was read"
        raise Failed(f"{folder / entry.path} cannot be sent ({why}).") from None


class _Hashing:
    """Writes on, and hashes what it writes."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self.digest = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        return self._out.write(data)

    def flush(self) -> None:
        self._out.flush()
