"""The files of a data set, wherever it is: a folder of this node, or a prefix of a bucket whose objects are kept here.

Invariant: a file is known by its name below the folder, with `/`; the same names with the same contents are the same data.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import BinaryIO, Protocol

from agent.recipes.faults import DataFault
from agent.recipes.versions import version

S3 = "s3://"


class Files(Protocol):
    """`data` is what the user called it."""

    data: str

    def names(self, suffixes: Iterable[str]) -> list[str]:
        """Of files with one of these endings (`.csv`), sorted. Raises `DataFault` where there is no such folder."""

    def size(self, name: str) -> int: ...

    def open(self, name: str) -> BinaryIO:
        """Raises `OSError`."""

    def piece(self, name: str, at: int, count: int) -> bytes:
        """So many bytes from there, less at its end; nothing else of it is fetched. Raises `OSError`."""

    def version(self, names: Sequence[str]) -> str:
        """A DVC revision or a hash."""


class Folder:
    """Of this node."""

    def __init__(self, data: str) -> None:
        self.data, self._path = data, Path(data)

    def names(self, suffixes: Iterable[str]) -> list[str]:
        if not self._path.is_dir():
            what = "is no folder" if self._path.exists() else "does not exist"
            raise DataFault(f"--data {self.data} {what} on this node.")
        wanted = set(suffixes)
        found = (path for path in self._path.rglob("*") if path.suffix.lower() in wanted and path.is_file())
        return sorted(path.relative_to(self._path).as_posix() for path in found)

    def size(self, name: str) -> int:
        return (self._path / name).stat().st_size

    def open(self, name: str) -> BinaryIO:
        return (self._path / name).open("rb")

    def piece(self, name: str, at: int, count: int) -> bytes:
        return read(self, name, at, count)

    def version(self, names: Sequence[str]) -> str:
        return version(self._path, [self._path / name for name in names])


def files_of(data: str, cache: str = "") -> Files:
    """`s3://BUCKET/PREFIX`, or a folder. `cache`: where objects are kept. Raises `DataFault`."""
    if not data.startswith(S3):
        return Folder(data)
    from agent.recipes.s3 import Bucket

    return Bucket(data, cache)


def read(files: Files, name: str, at: int = 0, count: int = -1) -> bytes:
    """`count` bytes from byte `at` on; -1: to the end. Raises `OSError`."""
    with files.open(name) as file:
        file.seek(at)
        return file.read(count)
