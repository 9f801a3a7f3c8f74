"""Values as short text, the same on the screen and in the commands.

Invariant: a value that is not known is `–`; nothing here invents a digit (fixed precision per unit).
"""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal
from fractions import Fraction

UNKNOWN = "–"
_UNITS = ("B", "K", "M", "G", "T", "P")
_BARS = " ▁▂▃▄▅▆▇█"


def usd(value: Fraction | Decimal | None, places: int = 2) -> str:
    """`$1,234.50`; half-even at `places`."""
    if value is None:
        return UNKNOWN
    amount = decimal_of(value, places)
    return f"-${-amount:,}" if amount < 0 else f"${amount:,}"


def usd_in(value: Fraction | Decimal | None, cells: int, prefix: str = "") -> str:
    """`usd` in so many cells: without cents, in thousands or millions rather than cut; `prefix` (`~`) stands before it."""
    if value is None:
        return UNKNOWN
    shapes = (usd(value), usd(value, 0), f"{usd(value / 1000, 1)}k", f"{usd(value / 1_000_000, 1)}M")
    return next((prefix + shape for shape in shapes if len(prefix + shape) <= cells), prefix + shapes[-1])


def decimal_of(value: Fraction | Decimal, places: int) -> Decimal:
    """`value` rounded half-even to `places` decimals."""
    quantum = Decimal(1).scaleb(-places)
    if isinstance(value, Fraction):
        scaled = value * 10**places
        return Decimal(round(scaled)).scaleb(-places)
    return value.quantize(quantum, ROUND_HALF_EVEN)


def counted(count: int, noun: str, nouns: str | None = None) -> str:
    """`1 job`, `3,000 jobs`; `nouns` where the plural has no `s`, or where more words follow."""
    return f"{count:,} {noun if count == 1 else nouns or f'{noun}s'}"


def percent(ratio: float | None) -> str:
    """`87%` of a ratio 0-1."""
    return UNKNOWN if ratio is None else f"{ratio * 100:.0f}%"


def watts(value: float | None) -> str:
    """`412W`, `3.2kW`, `1.4MW`."""
    if value is None:
        return UNKNOWN
    if value < 999.5:
        return f"{value:.0f}W"
    return f"{value / 1000:.1f}kW" if value < 999_950 else f"{value / 1e6:.2f}MW"


def size(value: float | None) -> str:
    """Bytes in binary units: `79.6G`, `512M`."""
    if value is None:
        return UNKNOWN
    step = 0
    while value >= 1023.5 and step < len(_UNITS) - 1:
        value /= 1024
        step += 1
    return f"{value:.0f}{_UNITS[step]}" if step == 0 or value >= 100 else f"{value:.1f}{_UNITS[step]}"


def rate(value: float | None) -> str:
    """Bytes per second."""
    return UNKNOWN if value is None else f"{size(value)}/s"


def celsius(value: float | None) -> str:
    """`67°C`."""
    return UNKNOWN if value is None else f"{value:.0f}°C"


def age(seconds: float | None) -> str:
    """`0s`, `12s`, `3m`, `2h`, `5d`: whole units, rounded down."""
    if seconds is None:
        return UNKNOWN
    for limit, unit, name in ((120, 1, "s"), (7200, 60, "m"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{int(seconds // unit)}{name}"
    return f"{int(seconds // 86_400)}d"


def bar_cell(ratio: float | None) -> str:
    """One cell of eighths for a ratio 0-1; `·` where it is not known."""
    if ratio is None:
        return "·"
    return _BARS[max(1, min(8, round(ratio * 8)))] if ratio > 0 else "▁"


def clean(text: str) -> str:
    """Outside text made safe for a terminal: control characters (C0, DEL, C1) and bidi marks become `?`."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else "?" for c in text)
