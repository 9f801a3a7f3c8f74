"""Folders that people send along with a job: archives known by their SHA-256, unpacked into the job's own folder.

Invariant: an archive is kept only when its bytes have the hash that was said, and only files below the job's folder are
ever written from it, whatever the names and links inside say.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import secrets
import shutil
import stat
import tarfile
import time
import zlib
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path, PurePosixPath

from agent import wire
from agent.errors import JobRefused, JobUnknown, StateFull
from agent.jobs.users import RunAs
from agent.state import MINIMUM_FREE_BYTES, free_bytes, worded

MOST_FILES = 200_000
LARGEST_UNPACKED = 8
"""So many times the allowed size of an archive may come out of it."""
KEPT_SECONDS = 86_400.0
_HASH = re.compile(r"[0-9a-f]{64}")
_PREFIX = "sha256:"
_BROKEN = (tarfile.TarError, EOFError, zlib.error, OSError, ValueError)


class Uploads:
    """The folder of archives. `receive` belongs to the event loop; what takes long runs in threads."""

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self._folder = folder
        self._most_bytes = most_bytes
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in folder.glob(".*.part"):
            left.unlink(missing_ok=True)

    def path(self, upload: str) -> Path:
        """Of a kept archive. Raises JobUnknown, also for what is no hash."""
        found = self._folder / f"{_hash_of(upload)}.tar.gz"
        if not found.is_file():
            raise JobUnknown(f"there is no upload {upload[:80]!r} here; send it again")
        return found

    async def receive(self, sha256: str, chunks: AsyncIterator[bytes]) -> wire.Uploaded:
        """Takes an archive as it comes. Raises JobRefused where it is too large, damaged, or not what was said."""
        wanted = _hash_of(sha256)
        scratch = self._folder / f".{secrets.token_hex(8)}.part"
        try:
            size = await self._write(scratch, chunks, wanted)
            files, _ = await asyncio.to_thread(self._look_into, scratch)
            os.replace(scratch, self._folder / f"{wanted}.tar.gz")
        except OSError as error:
            raise worded(error, self._folder, "cannot take the upload") from None
        finally:
            scratch.unlink(missing_ok=True)
        return wire.Uploaded(upload=_PREFIX + wanted, files=files, bytes=size)

    async def _write(self, scratch: Path, chunks: AsyncIterator[bytes], wanted: str) -> int:
        digest, size = hashlib.sha256(), 0
        descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            async for chunk in chunks:
                size += len(chunk)
                if size > self._most_bytes:
                    raise JobRefused(f"the upload is larger than the {self._most_bytes} bytes that this node takes")
                if free_bytes(self._folder) < len(chunk) + MINIMUM_FREE_BYTES:
                    raise StateFull(f"no space is left for the upload in {self._folder}; free some space")
                digest.update(chunk)
                file.write(chunk)
            file.flush()
            await asyncio.to_thread(os.fsync, descriptor)
        if digest.hexdigest() != wanted:
            raise JobRefused(f"the upload's SHA-256 is {digest.hexdigest()}, not {wanted} as was said; send it again")
        return size

    def _look_into(self, archive: Path) -> tuple[int, int]:
        """(files, bytes) of what it would unpack to. Raises JobRefused."""
        files = unpacked = 0
        for member in _members(archive, self._most_bytes * LARGEST_UNPACKED):
            files += not member.isdir()
            unpacked += member.size
        return files, unpacked

    def unpack(self, upload: str, folder: Path, user: RunAs) -> None:
        """Into `folder`, which is made new and belongs to the user with all that is in it. Blocks: run it in a thread."""
        archive = self.path(upload)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        needed = self._look_into(archive)[1]
        if free_bytes(folder) < needed + MINIMUM_FREE_BYTES:
            raise StateFull(f"the upload needs {needed} bytes in {folder}, which are not free there")
        try:
            with tarfile.open(archive, "r:gz") as tar:
                tar.extractall(folder, members=_checked(tar, self._most_bytes * LARGEST_UNPACKED), filter="data")
        except _BROKEN as error:
            raise JobRefused(f"the upload {upload} cannot be unpacked ({_reason(error)})") from None
        os.utime(archive)
        give(folder, user)

    def prune(self, used: Iterable[str], now: float | None = None) -> int:
        """Removes archives that no unended job names and that are older than a day; says how many."""
        keep = {_hash_of(upload) for upload in used}
        removed = 0
        for archive in self._folder.glob("*.tar.gz"):
            try:
                old = (time.time() if now is None else now) - archive.stat().st_mtime > KEPT_SECONDS
                if old and archive.name.removesuffix(".tar.gz") not in keep:
                    archive.unlink()
                    removed += 1
            except OSError:
                continue
        return removed


def give(folder: Path, user: RunAs) -> None:
    """`folder` and all below it to the user; links are changed themselves, never followed."""
    if not user.switch:
        return
    for place, folders, files in os.walk(folder, followlinks=False):
        for name in (*folders, *files):
            os.chown(os.path.join(place, name), user.uid, user.gid, follow_symlinks=False)
    os.chown(folder, user.uid, user.gid, follow_symlinks=False)


def own_folder(folder: Path, user: RunAs) -> Path:
    """A folder that belongs to the job's user and outlives attempts; made where it is not there."""
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        if stat.S_ISDIR(os.lstat(folder).st_mode):
            return folder
        raise JobRefused(f"{folder} is no folder any more") from None
    except OSError as error:
        raise worded(error, folder, "cannot be made") from None
    if user.switch:
        os.chown(folder, user.uid, user.gid, follow_symlinks=False)
    return folder


def _members(archive: Path, most_bytes: int) -> Iterator[tarfile.TarInfo]:
    try:
        with tarfile.open(archive, "r:gz") as tar:
            yield from _checked(tar, most_bytes)
    except _BROKEN as error:
        raise JobRefused(f"the upload is no whole tar.gz archive ({_reason(error)})") from None


def _checked(tar: tarfile.TarFile, most_bytes: int) -> Iterator[tarfile.TarInfo]:
    """Its members, each one plain; stricter than tarfile's own filter, which had holes with links and long paths."""
    links: set[PurePosixPath] = set()
    files = unpacked = 0
    for member in tar:
        path = PurePosixPath(member.name)
        files, unpacked = files + 1, unpacked + max(0, member.size)
        if files > MOST_FILES:
            raise JobRefused(f"the upload has more than {MOST_FILES} files")
        if unpacked > most_bytes:
            raise JobRefused(f"the upload unpacks to more than {most_bytes} bytes")
        _check_member(member, path, links)
        if member.issym():
            links.add(path)
        yield member


def _check_member(member: tarfile.TarInfo, path: PurePosixPath, links: set[PurePosixPath]) -> None:
    shown = repr(member.name[:120])
    if path.is_absolute() or ".." in path.parts or "\0" in member.name or len(member.name) > 2048:
        raise JobRefused(f"the upload has a file {shown} outside its folder")
    if any(parent in links for parent in (path, *path.parents)):
        raise JobRefused(f"the upload has a file {shown} behind a link")
    if not (member.isreg() or member.isdir() or member.issym()):
        raise JobRefused(f"the upload has {shown}, which is neither a file, a folder nor a symbolic link")
    if member.issym() and _leads_out(path, member.linkname):
        raise JobRefused(f"the upload has a link {shown} that leads out of its folder")


def _leads_out(link: PurePosixPath, target: str) -> bool:
    if not target or target.startswith("/") or "\0" in target or len(target) > 2048:
        return True
    depth = len(link.parts) - 1
    for part in PurePosixPath(target).parts:
        depth += -1 if part == ".." else 1
        if depth < 0:
            return True
    return False


def _hash_of(upload: str) -> str:
    text = upload.removeprefix(_PREFIX)
    if not _HASH.fullmatch(text):
        raise JobUnknown(f"{upload[:80]!r} is no upload: it is `sha256:` and 64 hexadecimal digits")
    return text


def _reason(error: BaseException) -> str:
    return (error.strerror if isinstance(error, OSError) and error.strerror else str(error)) or type(error).__name__
