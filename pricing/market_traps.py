"""What is wrong or easily misread in a file of spot history, as sentences.

Invariant: each names the file, and the row where there is one; what is refused is in no history.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

Kind = Literal[
    "truncated_page",  # exactly 1,000 rows: older ones are missing
    "empty_list",  # a reply without rows: not offered, or asked for wrongly
    "unknown_price",  # empty, zero, negative or no number
    "unknown_zone",
    "wrong_region",  # the zone lies in another region than the folder says
    "mixed_products",  # Linux beside Windows, ...
    "local_time",  # without a time zone
    "bad_time",
    "bad_row",
    "bad_tick",  # neither 0 nor 1
    "lengths_differ",  # as many prices as ticks, or none
    "not_history",  # a file of another kind
    "damaged",  # cut off, or no JSON
    "conflict",  # two sources say different things of the same moment
]
SHOWN = 3


class Trap(NamedTuple):
    """`row` counts from 1 within its file; None: the whole file."""

    kind: Kind
    file: str
    row: int | None
    sentence: str

    def __str__(self) -> str:
        return self.sentence


def trap(kind: Kind, file: str, row: int | None, what: str) -> Trap:
    """`what` ends the sentence that begins with the place."""
    place = file if row is None else f"{file}, row {row}"
    return Trap(kind, file, row, f"{place}: {what}")


def summary(traps: Iterable[Trap]) -> list[str]:
    """The first few sentences of each kind, and how many more there are."""
    kinds: dict[str, list[Trap]] = {}
    for one in traps:
        kinds.setdefault(one.kind, []).append(one)
    lines: list[str] = []
    for kind, found in kinds.items():
        lines += [one.sentence for one in found[:SHOWN]]
        if len(found) > SHOWN:
            lines.append(f"... and {len(found) - SHOWN:,} more of this kind ({kind.replace('_', ' ')}).")
    return lines
