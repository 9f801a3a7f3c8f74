"""How many examples a property test looks at.

`make test` looks at the same ones each time, which soon have nothing new to say: half of them do there. `make explore`
(RACKRATE_EXPLORE=1) looks at all, new ones each time.
"""

from __future__ import annotations

import os

EXPLORE = bool(os.environ.get("RACKRATE_EXPLORE"))
LEAST = 40


def examples(full: int) -> int:
    """For `settings(max_examples=...)`: half of `full`, but never so few that nothing is proven."""
    return full if EXPLORE else max(min(full, LEAST), full // 2)
