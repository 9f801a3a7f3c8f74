"""Times that a job writes at the beginning of its lines, as far as they can be told.

Invariant: the time is shown as the job wrote it: which zone it means is not known, so nothing is reckoned with it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tui.job_search import plain_of

LOOKED_AT = 40
"""Characters at the beginning of a line."""
_STAMP = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d"  # ISO 8601, Python's logging
    r"|\d\d\d\d/\d\d/\d\d \d\d:\d\d:\d\d"  # Go
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d"  # syslog
    r"|(?<![\d:.])\d\d:\d\d:\d\d(?![:\d])",
    re.ASCII,
)


def stamp_of(lines: Sequence[str]) -> str | None:
    """The time of the first of these lines that has one."""
    for text in lines:
        if (found := _STAMP.search(plain_of(text[: 3 * LOOKED_AT])[:LOOKED_AT])) is not None:
            return found[0]
    return None
