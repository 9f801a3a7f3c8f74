"""Values that go to the control daemon: checked before it sees them, read back after.

Invariant: a value that this module lets through is one that the daemon takes and tells again; a daemon that tells another
one raises MpsFault with what was asked and what was found. Percentages are Decimals of 100, memory is bytes.
"""

from __future__ import annotations

import re
from decimal import ROUND_DOWN, Decimal

from agent.errors import MpsFault
from agent.isolation.mps_control import Control

MILLION = 1_000_000
MIB, GIB = 1 << 20, 1 << 30
_PLACES = Decimal("0.0001")
_SHOWN = Decimal("0.05")
"""The daemon tells one decimal."""


def share_millionths(share: object) -> int:
    """A share of one GPU, above 0 and at most 1, in millionths."""
    if not isinstance(share, Decimal) or not share.is_finite() or not 0 < share <= 1:
        raise MpsFault(f"a share of a GPU is above 0 and at most 1, not {_shown(share)}")
    scaled = share * MILLION
    if scaled != scaled.to_integral_value():
        raise MpsFault(f"a share of a GPU has at most six decimals, not {_shown(share)}")
    return int(scaled)


def percentage(value: object) -> Decimal:
    """A thread percentage above 0 and at most 100, to four decimals (a millionth of the GPU)."""
    if isinstance(value, str) and re.fullmatch(r"\d{1,3}(\.\d{1,20})?", value, re.ASCII):
        value = Decimal(value)
    if isinstance(value, int) and not isinstance(value, bool):
        value = Decimal(value)
    if not isinstance(value, Decimal) or not value.is_finite() or not 0 < value <= 100:
        raise MpsFault(f"an active thread percentage is a number above 0 and at most 100, not {_shown(value)}")
    if value < _PLACES:
        raise MpsFault(f"an active thread percentage of {_shown(value)} is less than a millionth of the GPU")
    return value.quantize(_PLACES, ROUND_DOWN)


def percentage_text(value: Decimal) -> str:
    """`50`, `33.3333`: exact, without an exponent or zeros at the end."""
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def memory_bytes(value: object, total: int | None) -> int:
    """A limit of GPU memory in whole MiB: from bytes (rounded down) or from a text with its unit, `4G` or `512M`."""
    if isinstance(value, str) and (found := re.fullmatch(r"(\d{1,9})([MG])", value, re.ASCII)):
        value = int(found[1]) * (GIB if found[2] == "G" else MIB)
    if not isinstance(value, int) or isinstance(value, bool):
        raise MpsFault(
            f"a limit of GPU memory is a number of bytes, or a number with its unit as in 4G or 512M, not {_shown(value)}"
        )
    if value < MIB:
        raise MpsFault(f"a limit of GPU memory is at least 1 MiB, not {_shown(value)} bytes")
    if total is not None and value > total:
        raise MpsFault(f"a limit of {value / GIB:.1f} GiB is above the memory of the GPU ({total / GIB:.1f} GiB)")
    return value // MIB * MIB


def default_memory_bytes(value: object, total: int | None) -> int:
    """As `memory_bytes`, for the daemon's default: it tells whole GiB only, so nothing finer could be read back."""
    limit = memory_bytes(value, total)
    if limit > GIB and limit % GIB:
        raise MpsFault(
            f"a default limit of {limit / GIB:.3f} GiB cannot be read back: the MPS control daemon tells whole GiB;"
            " give whole GiB, or a limit for the job alone"
        )
    return limit


def memory_text(limit: int) -> str:
    """`4096M`."""
    return f"{limit // MIB}M"


def apply_defaults(control: Control, percent: Decimal | None, memory: int | None) -> None:
    """Sets the defaults of servers that start from now on, and reads each back."""
    if percent is not None:
        control.set_percentage(percentage_text(percent))
        found = control.percentage()
        if found is None or abs(found - percent) > _SHOWN:
            raise _mismatch("active thread percentage", percentage_text(percent), found)
    if memory is not None:
        control.set_pinned_memory(memory_text(memory))
        left = control.pinned_memory()
        if left != memory:
            raise _mismatch("limit of pinned memory", memory_text(memory), left and memory_text(left))


def default_commands(control: Control, percent: Decimal | None, memory: int | None) -> list[str]:
    """What `apply_defaults` says to the daemon, in order."""
    return control.default_commands(
        percentage_text(percent) if percent is not None else None, memory_text(memory) if memory is not None else None
    )


def _mismatch(what: str, asked: str, found: object) -> MpsFault:
    return MpsFault(
        f"the MPS control daemon did not take the {what}: asked for {asked}, found {found or 'none'}; look into its control.log"
    )


def _shown(value: object) -> str:
    text = str(value) if isinstance(value, Decimal | int) and not isinstance(value, bool) else repr(value)
    return text if len(text) <= 40 else text[:39] + "…"
