"""How busy a GPU is while a job of one kind runs: periodic step functions whose integral is known exactly.

Invariant: `area` is the integral of `level`, in closed form, so energy counters and moving means cost O(1)
and agree with the readings at every moment.
"""

from __future__ import annotations

import random
from itertools import accumulate

KINDS = ("train", "starved", "sweep", "evaluate", "notebook", "serve")
"""`starved`: training that waits for its data loader."""

VARIANTS = 12
WEEK_SLOTS = 7 * 24 * 60


class Curve:
    """Levels of 0-1, one per slot, repeated for ever. Times in seconds since the curve's anchor."""

    __slots__ = ("_count", "_prefix", "_slot_default", "levels", "total")

    def __init__(self, levels: list[float]) -> None:
        self.levels = tuple(levels)
        self._count = len(levels)
        self._prefix = (0.0, *accumulate(levels))
        self.total = self._prefix[-1]

    @property
    def mean(self) -> float:
        return self.total / self._count

    def level(self, seconds: float, slot: float) -> float:
        return self.levels[int(seconds / slot) % self._count]

    def area(self, seconds: float, slot: float) -> float:
        """Integral of `level` from 0 to `seconds`."""
        position = seconds / slot
        whole = int(position)
        cycles, index = divmod(whole, self._count)
        return slot * (cycles * self.total + self._prefix[index] + (position - whole) * self.levels[index])


def _training(rng: random.Random, high: float, wobble: float, epochs: int = 4) -> list[float]:
    """Epochs at a steady level; each ends with a validation pass and a checkpoint that leaves the GPU waiting."""
    levels: list[float] = []
    for _ in range(epochs):
        levels += [min(1.0, max(0.05, rng.gauss(high, wobble))) for _ in range(rng.randint(50, 90))]
        levels += [rng.uniform(0.45, 0.7)] * rng.randint(4, 8)
        levels += [rng.uniform(0.02, 0.12)] * rng.randint(1, 3)
    return levels


def _notebook(rng: random.Random) -> list[float]:
    """Thought, lunch and meetings between short bursts of work."""
    levels: list[float] = []
    while len(levels) < 1800:
        levels += [0.0] * (rng.randint(15, 60) if rng.random() < 0.65 else rng.randint(120, 480))
        levels += [rng.uniform(0.25, 0.95)] * rng.randint(2, 14)
    return levels


def _serving(rng: random.Random) -> list[float]:
    """A week by the minute: day and night, quieter weekends, bursts of requests."""
    levels = []
    burst = 0.0
    for minute in range(WEEK_SLOTS):
        day, hour = divmod(minute / 60, 24)
        daylight = max(0.0, 1 - abs(hour - 14) / 9)
        burst = burst * 0.8 + (rng.uniform(0.15, 0.5) if rng.random() < 0.03 else 0.0)
        base = 0.12 + 0.55 * daylight * (0.5 if day >= 5 else 1.0)
        levels.append(min(1.0, max(0.02, base + burst + rng.gauss(0, 0.04))))
    return levels


def _make(kind: str, rng: random.Random) -> Curve:
    match kind:
        case "train":
            return Curve(_training(rng, rng.uniform(0.9, 0.99), 0.015))
        case "starved":
            return Curve(_training(rng, rng.uniform(0.4, 0.65), 0.12))
        case "sweep":
            return Curve(_training(rng, rng.uniform(0.7, 0.95), 0.05, epochs=6))
        case "evaluate":
            return Curve(_training(rng, rng.uniform(0.6, 0.85), 0.1, epochs=2))
        case "notebook":
            return Curve(_notebook(rng))
        case _:
            return Curve(_serving(rng))


_library: dict[tuple[str, int], Curve] = {}


def curve(kind: str, variant: int) -> Curve:
    """The same curve for the same arguments, in every process. Made on first use: a week of serving is 10,080 slots."""
    key = (kind, variant % VARIANTS)
    if key not in _library:
        _library[key] = _make(kind, random.Random(f"curve/{kind}/{key[1]}"))
    return _library[key]


NOISE_MASK = 1023


def _noise() -> tuple[float, ...]:
    rng = random.Random("noise")
    half = [rng.uniform(-1.0, 1.0) for _ in range((NOISE_MASK + 1) // 2)]
    both = half + [-value for value in half]
    rng.shuffle(both)
    return tuple(both)


NOISE = _noise()
"""Second-by-second flicker: 1,024 values in -1..1 whose sum is zero, so that no mean moves."""
