"""One Ray at a time, whichever process of the tests wants it: each takes half a gigabyte and both cores.

Invariant: the lock is let go with the process that holds it, however that ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def one_ray() -> Iterator[None]:
    with (Path(tempfile.gettempdir()) / "rackrate-tests-one-ray.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
