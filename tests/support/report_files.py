"""A report as a file, through the functions that the command uses."""

from __future__ import annotations

from pathlib import Path

from pricing.reports import BINARY, replaced, write
from pricing.reports.pages import Source


def write_file(source: Source, path: str | Path, format: str) -> None:
    """Whole or not at all (see `pricing.reports.replaced`)."""
    with replaced(path, binary=format in BINARY) as stream:
        if format in BINARY:
            BINARY[format](source, stream)  # type: ignore[arg-type]
        else:
            write(source, stream, format)  # type: ignore[arg-type]
