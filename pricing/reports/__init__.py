"""Reports in files and on the screen, one module per format: csv, focus, html, json, markdown, parquet, text.

Invariant: all formats show the same rounded cells, and a file is there whole or not at all. `focus` has a module of its
own way (`pricing.reports.focus`): its rows are charges, not the rows of a report.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, BinaryIO, TextIO

from pricing import garbage
from pricing.errors import PricingError, ReportError
from pricing.leftovers import sweep
from pricing.reports import csv, html, json, markdown, parquet, text
from pricing.reports.pages import Source

FORMATS: Mapping[str, Callable[[Source, TextIO], None]] = {
    "text": text.write, "csv": csv.write, "json": json.write, "html": html.write, "markdown": markdown.write,
}  # fmt: skip
BINARY: Mapping[str, Callable[[Source, BinaryIO], None]] = {"parquet": parquet.write}


@garbage.paused()
def write(source: Source, stream: TextIO, format: str) -> None:
    """Writes a report to an open text stream. ReportError for a format that does not exist, or is no text."""
    if format in BINARY:
        raise ReportError(f"{format} is no text: give a file with --out.")
    if format not in FORMATS:
        raise ReportError(f"'{format}' is no report format: use {', '.join((*FORMATS, *BINARY))}.")
    FORMATS[format](source, stream)


@contextlib.contextmanager
def replaced(path: str | Path, *, binary: bool = False) -> Iterator[IO[str] | IO[bytes]]:
    """A stream to a file beside `path` that is renamed there at the end: a crash or a full disk leaves the old one whole.

    What is no ordinary file (a device, a pipe) is written to directly. PricingError when it cannot be written.
    """
    target = Path(os.path.realpath(path))
    try:
        if target.exists() and not target.is_file():
            with _opened(target, binary) as stream:
                yield stream
        else:
            with _beside(target, binary) as stream:
                yield stream
    except OSError as error:
        raise PricingError(f"{path}: the report cannot be written ({_reason(error)}); no half of it was left.") from None


def _opened(path: Path, binary: bool) -> IO[str] | IO[bytes]:
    return path.open("wb") if binary else path.open("w", encoding="utf-8", newline="")


@contextlib.contextmanager
def _beside(target: Path, binary: bool) -> Iterator[IO[str] | IO[bytes]]:
    beside = target.with_name(f".{target.name[:100]}.{os.getpid()}.part")
    try:
        with _opened(beside, binary) as stream:
            sweep(target, beside, ".part")
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(beside, target)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise


def _reason(error: OSError) -> str:
    if error.errno == errno.ENOSPC:
        return "no space is left on the device"
    return (error.strerror or str(error)).lower()
