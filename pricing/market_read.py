"""Files of spot history: a `.json`, a `.json.gz`, a `.tar.gz` or a folder of them -> what each one tells.

Invariant: nothing is unpacked to the disk, and nothing larger than `LARGEST_FILE` to memory; a damaged or foreign file is
a trap with its name and the others are read all the same. Only where nothing at all can be read is it an error.
"""

from __future__ import annotations

import gzip
import json
import tarfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import tzinfo
from decimal import Decimal
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO, Any

from pricing.errors import HistoryError
from pricing.market_rows import Fetch, is_rows, read_rows
from pricing.market_traces import Trace, is_trace, read_trace
from pricing.market_traps import Trap, trap

LARGEST_FILE = 256 * 2**20
_ARCHIVES = (".tar.gz", ".tgz", ".tar", ".tar.xz", ".tar.bz2")
_DAMAGED = (OSError, EOFError, zlib.error, tarfile.TarError)
Progress = Callable[[int, str], None]
"""(files read so far, the name of the newest)."""


@dataclass(slots=True)
class Reading:
    """What was read."""

    fetches: list[Fetch] = field(default_factory=list)
    traces: list[Trace] = field(default_factory=list)
    traps: list[Trap] = field(default_factory=list)
    files: int = 0
    rows: int = 0
    """Rows of prices and ticks of traces."""


def read_history(
    path: Path | str,
    *,
    available: int | None = None,
    match: str = "*",
    tz: tzinfo | None = None,
    on_progress: Progress | None = None,
) -> Reading:
    """Reads one file, archive or folder. HistoryError where there is nothing to read.

    `available`: the number that means available in its traces (0 or 1); without it, traces are refused with a trap.
    `match`: a pattern that the names within it have to match, like `*overhead=0.20*`. `tz`: the zone of times without one.
    """
    reading, path = Reading(), Path(path)
    if not path.exists():
        raise HistoryError(f"{path}: no such file or folder.")
    for name, content in _contents(path, match, reading.traps):
        reading.files += 1
        _take(reading, name, content, available, tz)
        if on_progress is not None:
            on_progress(reading.files, name)
    if not reading.files:
        why = f" {reading.traps[0].sentence}" if reading.traps else ""
        raise HistoryError(f"{path}: holds no .json file that could be read.{why}")
    return reading


def documents(path: Path, traps: list[Trap], wanted: Callable[[str], bool]) -> Iterator[tuple[str, Any]]:
    """(name, JSON) of every file in a file, folder or archive whose name is wanted; what cannot be read is a trap."""
    for name, content in _contents(path, "*", traps):
        if not wanted(name):
            continue
        try:
            yield name, json.loads(content.decode("utf-8-sig"), parse_float=_number)
        except (ValueError, RecursionError) as error:
            traps.append(trap("damaged", name, None, f"is no JSON ({error}); it is left out."))


def _contents(path: Path, match: str, traps: list[Trap]) -> Iterator[tuple[str, bytes]]:
    if path.is_dir():
        for file in sorted(path.rglob("*")):
            if file.is_file():
                yield from _of_file(file, file.relative_to(path).as_posix(), match, traps)
    else:
        yield from _of_file(path, path.name, match, traps)


def _of_file(path: Path, name: str, match: str, traps: list[Trap]) -> Iterator[tuple[str, bytes]]:
    try:
        if name.endswith(_ARCHIVES):
            yield from _of_archive(path, name, match, traps)
        elif _wanted(name, match):
            with path.open("rb") as file:
                yield from _whole(file, name, traps)
    except _DAMAGED as error:
        traps.append(trap("damaged", name, None, f"is damaged or cut off ({_reason(error)}); what came before is kept."))


def _of_archive(path: Path, name: str, match: str, traps: list[Trap]) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(path, "r:*") as archive:
        for member in archive:
            if member.isfile() and _wanted(member.name, match):
                file = archive.extractfile(member)
                if file is not None:
                    with file:
                        yield from _whole(file, member.name, traps)


def _whole(file: IO[bytes], name: str, traps: list[Trap]) -> Iterator[tuple[str, bytes]]:
    try:
        if name.endswith(".gz"):
            with gzip.GzipFile(fileobj=file) as unpacked:
                content = unpacked.read(LARGEST_FILE + 1)
        else:
            content = file.read(LARGEST_FILE + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        traps.append(trap("damaged", name, None, f"is damaged or cut off ({_reason(error)}); it is left out."))
        return
    if len(content) > LARGEST_FILE:
        traps.append(trap("not_history", name, None, f"is larger than {LARGEST_FILE // 2**20} MiB; it is left out."))
        return
    yield name, content


def _wanted(name: str, match: str) -> bool:
    """Not the litter of other systems (`._20.json`, `__MACOSX/`)."""
    parts = name.split("/")
    litter = any(part.startswith("._") or part == "__MACOSX" for part in parts)
    return not litter and name.endswith((".json", ".json.gz")) and fnmatchcase(name, match)


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__


_numbers: dict[str, Decimal] = {}


def _number(text: str) -> Decimal:
    """The same text is the same object: a year of ticks has few prices."""
    found = _numbers.get(text)
    if found is None:
        if len(_numbers) > 100_000:
            _numbers.clear()
        found = _numbers[text] = Decimal(text)
    return found


def _take(reading: Reading, name: str, content: bytes, available: int | None, tz: tzinfo | None) -> None:
    try:
        document: Any = json.loads(content.decode("utf-8-sig"), parse_float=_number)
    except (ValueError, RecursionError) as error:
        reading.traps.append(trap("damaged", name, None, f"is no JSON ({error}); it is left out."))
        return
    if is_rows(document):
        fetches, traps = read_rows(document, name, tz=tz)
        reading.fetches += fetches
        reading.rows += sum(fetch.rows for fetch in fetches)
    elif is_trace(document):
        if available is None:
            traps = [trap("not_history", name, None, "is a trace; say whether 0 or 1 means available in it.")]
        else:
            trace, traps = read_trace(document, name, available=available, tz=tz)
            if trace is not None:
                reading.traces.append(trace)
                reading.rows += len(trace.states)
    else:
        traps = [trap("not_history", name, None, "is neither spot price history nor an availability trace; it is left out.")]
    reading.traps += traps
