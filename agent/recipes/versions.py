"""Which data a folder holds: a name for its contents, so that a model can be traced to them.

Invariant: the same files give the same version and the same order on every node, wherever the folder is.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

HASHED_BYTES = 256 * 2**20
"""Up to so much the version is a hash of the contents; beyond, of names and sizes."""
_DVC = re.compile(r"^[\s-]*(?:md5|hash|etag):\s*['\"]?([0-9a-f]{32}(?:\.dir)?)", re.MULTILINE)


def in_their_order(names: Sequence[str]) -> list[str]:
    """By the hash of each name: neighbours have nothing in common."""
    return sorted(names, key=lambda name: hashlib.sha256(name.encode("utf-8", "surrogateescape")).digest())


def version(folder: Path, files: Sequence[Path]) -> str:
    """The DVC revision where the folder is a DVC one, else a hash: of the contents, or of names and sizes of a large one."""
    noted = folder.with_name(f"{folder.name}.dvc")
    if noted.is_file() and (found := _DVC.search(noted.read_text("utf-8", "replace"))):
        return f"dvc:{found[1]}"
    sizes = {path: path.stat().st_size for path in files}
    whole = sum(sizes.values()) <= HASHED_BYTES
    hashed = hashlib.sha256()
    for path in sorted(files):
        hashed.update(_name(folder, path) + f"\0{sizes[path]}\0".encode())
        if whole:
            hashed.update(_content(path))
    return f"{'sha256' if whole else 'sha256-of-names-and-sizes'}:{hashed.hexdigest()}"


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _name(folder: Path, path: Path) -> bytes:
    return path.relative_to(folder).as_posix().encode("utf-8", "surrogateescape")
