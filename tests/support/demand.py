"""Made-up hourly demand for tests: the same on every machine."""

from __future__ import annotations

from random import Random

import numpy as np


def plateaus(days: int, seed: int = 7, most: int = 12) -> np.ndarray:
    """Float (days * 24,): work that comes and goes in steps of hours to weeks over a base, with a dip at night."""
    rng = Random(seed)
    counts = np.full(days * 24, float(rng.randint(1, 4)))
    for _ in range(days):
        start, length = rng.randrange(days * 24), int(2 ** rng.uniform(1, 9))
        counts[start : start + length] += rng.randint(1, max(1, most // 4))
    counts[[hour for hour in range(days * 24) if hour % 24 < 5]] -= 1
    return np.clip(counts, 0, most)
