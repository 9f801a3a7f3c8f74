"""By what a report groups its rows, and how each group is called.

Invariant: time that nobody held is always a group of its own, `(idle)`; it is never spread over those who held
something, and neither is a commitment that nobody used, `(unused commitment)`. Text from outside that looks like one of our labels is shown in quotes.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from pricing.errors import BadGrouping
from pricing.usage import Placed

HOLDER_KEYS = ("user", "project", "job")
PLACEMENT_KEYS = ("node", "gpu_model", "cloud", "region", "instance_type", "purchase")
KEYS = (*HOLDER_KEYS, *PLACEMENT_KEYS, "day")
TAG = "tag:"

IDLE, HOST, UNKNOWN, NONE = "(idle)", "(host)", "(unknown)", "(none)"
STORAGE, EGRESS = "(storage)", "(egress)"
UNUSED_COMMITMENT, ADJUSTMENT = "(unused commitment)", "(adjustment)"
LABELS = (NONE, UNKNOWN, HOST, STORAGE, EGRESS, IDLE, UNUSED_COMMITMENT, ADJUSTMENT)
"""In the order in which they stand below the names."""


class Holder(NamedTuple):
    """To whom time belongs, as the ledger knows it."""

    user: str | None = None
    project: str | None = None
    job: str | None = None


def parse_by(keys: str | Iterable[str]) -> tuple[str, ...]:
    """`user,project` or a sequence of keys, checked. BadGrouping names the wrong key and those that exist."""
    names = [key.strip() for key in (keys.split(",") if isinstance(keys, str) else keys)]
    names = [name for name in names if name]
    for place, name in enumerate(names):
        if name not in KEYS and not (name.startswith(TAG) and len(name) > len(TAG)):
            raise BadGrouping(f"'{name}' is nothing to group by{_near(name)}: use any of {', '.join(KEYS)}, tag:NAME.")
        if name in names[:place]:
            raise BadGrouping(f"'{name}' is given twice to group by: give it once.")
    return tuple(names)


def _near(name: str) -> str:
    near = difflib.get_close_matches(name, KEYS, 1)
    return f" (did you mean '{near[0]}'?)" if near else ""


def shown(value: str | None, absent: str) -> str:
    """`value` as a group's name; `absent` where it is not known."""
    if value is None:
        return absent
    return f'"{value}"' if value in LABELS else value


def labels(by: Sequence[str], placed: Placed, holder: Holder | str) -> tuple[str | None, ...]:
    """One label per key; None for `day`, which the caller fills in. `holder` is a label where it is nobody's time."""
    return tuple(_label(key, placed, holder) for key in by)


def facts_labels(by: Sequence[str], facts: Mapping[str, str | None], label: str) -> tuple[str | None, ...]:
    """Labels of a cost that no placement has: its `facts`, and `label` for all else; None for `day`."""
    return tuple(None if key == "day" else shown(facts[key], NONE) if key in facts else label for key in by)


def _label(key: str, placed: Placed, holder: Holder | str) -> str | None:
    if key == "day":
        return None
    if key in HOLDER_KEYS:
        return holder if isinstance(holder, str) else shown(getattr(holder, key), UNKNOWN if key == "user" else NONE)
    if key.startswith(TAG):
        return shown(placed.tags.get(key.removeprefix(TAG)), NONE)
    absent = NONE if key == "gpu_model" and not placed.gpu_count else UNKNOWN
    return shown(getattr(placed, key), absent)


def ordered(groups: Collection[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Groups in the order of their labels, key by key: names first, our own labels after them."""
    labels = sorted({label for keys in groups for label in keys}, key=_order)
    places = {label: place for place, label in enumerate(labels)}  # many groups, few labels
    return sorted(groups, key=lambda keys: [places[label] for label in keys])


def _order(label: str) -> tuple[int, str]:
    return (LABELS.index(label) + 1 if label in LABELS else 0, label)
