"""Names of units, slices and scopes. Standard library alone, and light (see `kernel`).

Invariant: a name that is not `job-<id>-<attempt>` is nobody of ours.
"""

from __future__ import annotations

_DIGITS = "0123456789"
_ID_CHARACTERS = _DIGITS + "abcdefghijklmnopqrstuvwxyz"
_ID_LENGTH = 12


def is_unit(name: str) -> bool:
    """Whether it is `job-<id>-<attempt>`, the id being a job's or that of a task of an array."""
    parts = name.split("-")
    if len(parts) != 3 or parts[0] != "job" or not _number(parts[2], 9):
        return False
    job, underscore, index = parts[1].partition("_")
    right = len(job) == _ID_LENGTH and all(character in _ID_CHARACTERS for character in job)
    return right and (not underscore or _number(index, 6))


def scope_name(parent: str, unit: str) -> str:
    """The systemd scope of a unit."""
    return f"{parent}-{unit}.scope"


def unit_in(name: str, parent: str) -> str | None:
    """The unit of a group's name below our parent or slice; None: not ours."""
    if name.startswith(f"{parent}-") and name.endswith(".scope"):
        name = name[len(parent) + 1 : -len(".scope")]
    return name if is_unit(name) else None


def slice_path(parent: str) -> str:
    """Where systemd puts `<parent>.slice`: each dash is one level (`a-b.slice` is `a.slice/a-b.slice`)."""
    parts = parent.split("-")
    return "/".join("-".join(parts[: count + 1]) + ".slice" for count in range(len(parts)))


def _number(text: str, most: int) -> bool:
    return 0 < len(text) <= most and all(character in _DIGITS for character in text)
