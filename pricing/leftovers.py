"""Unfinished files that a program left beside its target when it was killed.

Invariant: only files named as such, and last written a day or more before the newest one, are removed.
"""

from __future__ import annotations

import contextlib
import glob
import os
from pathlib import Path

_DAY_SECONDS = 86_400


def sweep(target: Path, newest: str | Path, suffix: str) -> None:
    """Removes `.TARGET.*SUFFIX` that are a day older than `newest`, the one that is being written now."""
    with contextlib.suppress(OSError):
        now = os.stat(newest).st_mtime
        for path in target.parent.glob(f".{glob.escape(target.name[:100])}.*{suffix}"):
            if now - path.stat().st_mtime > _DAY_SECONDS:
                path.unlink()
