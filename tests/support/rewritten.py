"""The asserts of all test files, rewritten once and kept where pytest looks for them, before several processes begin.

In a new clone each of pytest's processes would rewrite nearly all of them by itself: ten seconds each. Invariant: nothing
depends on it; where pytest keeps them otherwise one day, this does nothing.
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

TESTS = Path(__file__).parents[1]


def keep(file: Path) -> None:
    from _pytest.assertion import rewrite

    kept = rewrite.get_cache_dir(file) / f"{file.stem}{rewrite.PYC_TAIL}"
    if rewrite._read_pyc(file, kept) is None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        about, code = rewrite._rewrite_test(file, None)  # type: ignore[arg-type]
        draft = kept.with_name(f"{kept.name}.{os.getpid()}")
        with draft.open("wb") as out:
            rewrite._write_pyc_fp(out, about, code)
        draft.replace(kept)


def main() -> None:
    files = sorted(file.resolve() for file in TESTS.rglob("*.py") if file.name.startswith("test_") or file.name == "conftest.py")
    try:
        with ProcessPoolExecutor() as pool:
            list(pool.map(keep, files, chunksize=8))
    except (AttributeError, ImportError, OSError, SyntaxError, TypeError) as error:
        print(f"tests: not rewritten beforehand ({error})", file=sys.stderr)


if __name__ == "__main__":
    main()
