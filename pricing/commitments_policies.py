"""The rules of commitment by name.

Invariant: each name makes the same rules every time; a randomised one is the mean of draws that stand evenly over its law.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pricing.commitments_online import Ski, draw_z
from pricing.commitments_own import Own
from pricing.commitments_rules import LookBack, OnDemand, Peak, Rule
from pricing.commitments_spell import Spell, SpellStopping
from pricing.errors import UnknownPolicy

DRAWS = 8
STANDARD = (
    "rackrate", "look-back-7d", "look-back-14d", "look-back-28d", "least-look-back", "spell", "spell-dp", "online",
    "online-random", "on-demand", "peak",
)  # fmt: skip
"""What a backtest compares unless it is told; `look-back-Nd` makes others."""


def rules(name: str) -> Sequence[Rule]:
    """The rules behind a name (several where it is randomised). UnknownPolicy."""
    name = name.strip().lower().replace("_", "-")
    if found := re.fullmatch(r"look-back-([1-9]\d{0,3})d", name):
        return (LookBack(name, (int(found[1]),)),)
    if name == "online-random":
        return tuple(Ski(name, draw_z(0.0, (draw + 0.5) / DRAWS)) for draw in range(DRAWS))
    made: dict[str, Rule] = {
        "rackrate": Own(), "least-look-back": LookBack("least-look-back", (1, 3, 7)), "spell": Spell(),
        "spell-dp": SpellStopping(), "online": Ski(), "on-demand": OnDemand(), "peak": Peak(),
    }  # fmt: skip
    if name not in made:
        raise UnknownPolicy(f"There is no policy '{name[:40]}'; there are {', '.join(STANDARD)}.")
    return (made[name],)
