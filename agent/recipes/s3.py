"""Data that are objects of S3: each, or each piece of a long one, is streamed when it is needed first, and kept on this node.

Invariant: what is kept is whole, and of an object of the ETag that was listed: a download that broke off goes on where it was, and an
object that became another one is an error, never a mixture. Amazon S3 API: ListObjectsV2, GetObject (Range, If-Match).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import io
import os
import stat
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from agent.recipes.faults import DataFault

ATTEMPTS = 6
WAIT_SECONDS = 0.2
"""Before the second attempt; twice as long before each further one."""
PIECE_BYTES = 1 << 20
SHORT_BYTES = 1 << 20
LOCK = ".lock"
_COUNTING = threading.Lock()
CREDENTIALS = "; boto3 looks for AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment, for ~/.aws, and for the node's role"
NO_BOTO3 = "--data {data} needs boto3, which is not installed here: `pip install boto3`, or copy the data to a folder."


class Bucket:
    """The objects below a prefix. Credentials, region and endpoint: as boto3 finds them (environment, files, the node's role)."""

    def __init__(self, data: str, cache: str = "") -> None:
        self.data = data
        self._bucket, _, prefix = data.removeprefix("s3://").partition("/")
        if not self._bucket:
            raise DataFault(f"--data {data} names no bucket: it is written s3://BUCKET/PREFIX.")
        self._prefix = f"{prefix.rstrip('/')}/" if prefix.strip("/") else ""
        named = cache or os.environ.get("RACKRATE_CACHE_DIR")
        self._folder = Path(named) if named else _own_folder()
        self._objects: dict[str, tuple[int, str]] | None = None
        self._made: Any = None
        self.fetched_bytes = 0
        """That came over the network."""
        self.hits = 0
        """Opened from what was kept."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made": None}  # a worker makes a client of its own

    @property
    def _client(self) -> Any:
        if self._made is None:
            try:
                import boto3
            except ImportError:
                raise DataFault(NO_BOTO3.format(data=self.data)) from None
            self._made = boto3.client("s3")
        return self._made

    def names(self, suffixes: Iterable[str]) -> list[str]:
        wanted = set(suffixes)
        return sorted(name for name in self._listed() if PurePosixPath(name).suffix.lower() in wanted)

    def size(self, name: str) -> int:
        return self._listed()[name][0]

    def version(self, names: Sequence[str]) -> str:
        """A hash of names, sizes and ETags: the contents are not read for it."""
        told = "".join(f"{name}\0{self._listed()[name]}\0" for name in sorted(names))
        return f"s3-etags:{hashlib.sha256(told.encode()).hexdigest()}"

    def open(self, name: str) -> BinaryIO:
        return self._opened(name, 0, self.size(name))

    def piece(self, name: str, at: int, count: int) -> bytes:
        """Kept like a whole object; of a short one all is fetched."""
        size = self.size(name)
        first, end = (0, size) if size <= SHORT_BYTES else (at, min(at + count, size))
        with self._opened(name, first, end) as file:
            file.seek(at - first)
            return file.read(count)

    def _opened(self, name: str, first: int, end: int) -> BinaryIO:
        kept = self._kept(name, first, end)
        with contextlib.suppress(FileNotFoundError):
            return self._hit(kept)
        with _alone(kept.parent):
            with contextlib.suppress(FileNotFoundError):
                return self._hit(kept)
            return self._fetched(name, kept, first, end)

    def _hit(self, kept: Path) -> BinaryIO:
        opened = kept.open("rb")
        self.hits += 1
        return opened

    def _listed(self) -> Mapping[str, tuple[int, str]]:
        """Name below the prefix -> (bytes, ETag). Raises `DataFault`."""
        if self._objects is None:
            found = {}
            try:
                for page in self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=self._prefix):
                    for one in page.get("Contents", ()):
                        found[one["Key"][len(self._prefix) :]] = (int(one["Size"]), str(one["ETag"]))
            except DataFault:
                raise
            except Exception as error:  # noqa: BLE001 - botocore makes its classes at run time; any of them ends it
                raise DataFault(f"--data {self.data} cannot be listed: {_told(error)}.") from None
            self._objects = found
        return self._objects

    def _kept(self, name: str, first: int, end: int) -> Path:
        size, etag = self._listed()[name]
        part = "" if (first, end) == (0, size) else f"\0{first}-{end}"
        key = hashlib.sha256(f"{self._bucket}\0{self._prefix}{name}\0{etag}{part}".encode()).hexdigest()
        return self._folder / key[:2] / f"{key}{PurePosixPath(name).suffix}"

    def _fetched(self, name: str, kept: Path, first: int, end: int) -> BinaryIO:
        """Streamed to a file of its own, which takes its place when it is whole; to memory where the disk is full."""
        try:
            kept.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle, aside = tempfile.mkstemp(dir=kept.parent, prefix=".fetching-")
        except OSError:
            return self._into(name, io.BytesIO(), first, end)
        try:
            with os.fdopen(handle, "wb") as file:
                self._into(name, file, first, end)
            os.replace(aside, kept)
            return kept.open("rb")
        except OSError as error:
            Path(aside).unlink(missing_ok=True)
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
                raise
            return self._into(name, io.BytesIO(), first, end)
        except BaseException:
            Path(aside).unlink(missing_ok=True)
            raise

    def _into(self, name: str, file: Any, first: int, end: int) -> Any:
        """These bytes of an object, over as many connections as it takes. Raises `OSError`."""
        size, etag = self._listed()[name]
        have, failed = first, 0
        while have < end:
            try:
                more = {"Range": f"bytes={have}-{end - 1}"} if (have, end) != (0, size) else {}
                body = self._client.get_object(Bucket=self._bucket, Key=self._prefix + name, IfMatch=etag, **more)["Body"]
                while piece := body.read(PIECE_BYTES):
                    file.write(piece)
                    have += len(piece)
                    with _COUNTING:  # pieces are fetched beside each other
                        self.fetched_bytes += len(piece)
                if have < end:
                    raise ConnectionError(f"it ended after {have - first} of {end - first} bytes")
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
                    raise
                failed = self._waits(name, error, failed)
            except Exception as error:  # noqa: BLE001 - as above; what is not worth another attempt is told by its code
                failed = self._waits(name, error, failed)
        file.flush()
        if hasattr(file, "getvalue"):
            file.seek(0)
        return file

    def _waits(self, name: str, error: Exception, failed: int) -> int:
        """The count of failures. Raises `OSError` where another attempt would change nothing."""
        answer = getattr(error, "response", None) or {}
        code = answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        if code == 412:
            raise OSError(errno.ESTALE, "the object was replaced since the data were listed") from None
        if 400 <= code < 500 and code not in (408, 429) or failed + 1 >= ATTEMPTS:
            raise OSError(errno.EIO, _told(error)) from None
        time.sleep(WAIT_SECONDS * 2**failed)
        return failed + 1


def _own_folder() -> Path:
    """Below the one that all users of the node share. Raises `DataFault` where somebody else made it: what is in it is taken for data."""
    folder = Path(tempfile.gettempdir()) / f"rackrate-data-{os.getuid()}"
    with contextlib.suppress(OSError):  # of a full disk the first object tells
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode):
            raise DataFault(f"{folder} belongs to somebody else: name another folder for what is kept of S3, with --cache.")
    return folder


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Other ranks of this node want the same piece at the same moment: one fetches it, where the file system has locks."""
    handle = None
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(folder / LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(handle, fcntl.LOCK_EX)
    except OSError:
        pass  # then each fetches for itself
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)


def _told(error: BaseException) -> str:
    told = " ".join(str(error).split())[:200] or type(error).__name__
    return told.rstrip(".") + CREDENTIALS * (type(error).__name__ == "NoCredentialsError")
