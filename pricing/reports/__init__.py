"""Reports in files and on the screen, one module per format: csv, json, text.

Invariant: all formats show the same rounded cells, and a file is there whole or not at all.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TextIO

from pricing.errors import PricingError, ReportError
from pricing.report import Report
from pricing.reports import csv, json, text

FORMATS: Mapping[str, Callable[[Report, TextIO], None]] = {"text": text.write, "csv": csv.write, "json": json.write}


def write(report: Report, stream: TextIO, format: str) -> None:
    """Writes `report` to an open text stream. ReportError for a format that does not exist."""
    if format not in FORMATS:
        raise ReportError(f"'{format}' is no report format: use {', '.join(FORMATS)}.")
    FORMATS[format](report, stream)


def write_file(report: Report, path: str | Path, format: str) -> None:
    """Writes a file beside `path` and renames it there, so that a crash or a full disk leaves the old one whole.

    What is no ordinary file (a device, a pipe) is written to directly. PricingError when it cannot be written.
    """
    target = Path(os.path.realpath(path))
    try:
        if target.exists() and not target.is_file():
            with target.open("w", encoding="utf-8", newline="") as stream:
                write(report, stream, format)
        else:
            _replace(report, target, format)
    except OSError as error:
        raise PricingError(f"{path}: the report cannot be written ({_reason(error)}); no half of it was left.") from None


def _replace(report: Report, target: Path, format: str) -> None:
    beside = target.with_name(f".{target.name[:100]}.{os.getpid()}.part")
    try:
        with beside.open("w", encoding="utf-8", newline="") as stream:
            write(report, stream, format)
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
