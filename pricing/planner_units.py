"""Numbers as people write them in a workload: `25.6M`, `24.6 GFLOP`, `500GB`, `48h`, `450usd`.

Invariant: what can be read in two ways is refused; nothing is guessed. Every function raises ValueError with the end of a
sentence (`is ..., which ...: write it as ...`).
"""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction

_COUNTS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "g": 10**9, "t": 10**12}
_FLOPS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "p": 10**15, "e": 10**18}
_DECIMAL = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "p": 10**15}
_BINARY = {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40, "p": 2**50}
_SECONDS = {"d": 86_400, "h": 3600, "m": 60, "s": 1}
_NUMBER = r"(\d[\d_]*(?:\.\d+)?(?:e\+?\d{1,2})?)"
LARGEST = Decimal(10) ** 30


def count(value: object) -> Fraction:
    """Above 0: a number, or `1.28M`, `70B`, `10e9`."""
    return _read(value, rf"{_NUMBER}\s*([kmbgt]?)", _COUNTS, "count", "1281167, 25.6M or 70B")


def flops(value: object) -> Fraction:
    """Above 0: floating-point operations, `24.6 GFLOP` (not per second)."""
    if isinstance(value, str) and re.search(r"flops?\s*/|/\s*s|flops$", value.strip(), re.IGNORECASE):
        raise ValueError(f"is '{value[:40]}', a speed: write how many operations one sample takes, like 24.6 GFLOP")
    return _read(value, rf"{_NUMBER}\s*([kmgtpe]?)(?:flop)?", _FLOPS, "number of operations", "24.6 GFLOP or 2.5e10")


def size(value: object) -> Fraction:
    """Above 0: bytes, `500GB` (decimal) or `40GiB` (binary); a number alone is bytes."""
    if not isinstance(value, str):
        return _positive(value, value)
    text = value.strip()
    if found := re.fullmatch(rf"{_NUMBER}\s*([kKMGTP]?)B", text, re.ASCII):
        return _positive(found[1], value) * _DECIMAL[found[2].lower()]
    if found := re.fullmatch(rf"{_NUMBER}\s*([kKMGTP])iB", text, re.ASCII):
        return _positive(found[1], value) * _BINARY[found[2].lower()]
    if found := re.fullmatch(rf"({_NUMBER}\s*[kmgtp])b?", text, re.IGNORECASE | re.ASCII):
        raise ValueError(
            f"is '{text[:40]}', which has two meanings: write {found[1].upper()}B (decimal) or {found[1].upper()}iB"
        )
    raise _fault(text, "size", "500GB, 115kB or 40GiB")


def seconds(value: object) -> Fraction:
    """Above 0: `45s`, `90m`, `48h`, `1h30m`, `2d`."""
    if not isinstance(value, str):
        raise ValueError(f"is {value!r}, which has no unit: write it as 45s, 30m, 48h or 2d")
    text = value.strip().lower()
    parts = re.findall(r"(\d+(?:\.\d+)?)\s*([dhms])", text, re.ASCII)
    if not parts or not re.fullmatch(r"(\d+(\.\d+)?\s*[dhms]\s*)+", text, re.ASCII):
        raise ValueError(f"is '{value[:40]}', which is no length of time: write it as 45s, 30m, 48h, 1h30m or 2d")
    total = sum((Fraction(number) * _SECONDS[unit] for number, unit in parts), Fraction(0))
    return _checked(total, value)


def dollars(value: object) -> Fraction:
    """Above 0: `450usd`, `$450`, `450`."""
    text = value.strip() if isinstance(value, str) else value
    if isinstance(text, str):
        found = re.fullmatch(rf"\$?\s*{_NUMBER}\s*([a-z]*)", text, re.IGNORECASE | re.ASCII)
        if found is None:
            raise ValueError(f"is '{text[:40]}', which is no amount of money: write it as 450usd")
        if found[2].lower() not in ("", "usd"):
            raise ValueError(f"is in {found[2].upper()}: amounts are in US dollars, written as 450usd")
        text = found[1]
    return _positive(text, value)


def number(value: object) -> Fraction:
    """At least 0, exact: as text or as a number of TOML."""
    if isinstance(value, str) and not re.fullmatch(_NUMBER, value.strip(), re.IGNORECASE):
        raise ValueError(f"is '{value[:40]}', which is no number")
    found = _exact(value)
    if found < 0:
        raise ValueError(f"is {value}: it must be at least 0")
    return found


def share(value: object) -> Fraction:
    """Above 0, at most 1."""
    found = number(value)
    if not 0 < found <= 1:
        hint = f" (write {float(found / 100):g} for {float(found):g} %)" if 1 < found <= 100 else ""
        raise ValueError(f"is {value}: it must be above 0 and at most 1{hint}")
    return found


def _read(value: object, pattern: str, units: dict[str, int], what: str, how: str) -> Fraction:
    if isinstance(value, str):
        found = re.fullmatch(pattern, value.strip(), re.IGNORECASE | re.ASCII)
        if found is None:
            raise _fault(value, what, how)
        return _positive(found[1], value) * units[found[2].lower()]
    return _positive(value, value)


def _fault(text: str, what: str, how: str) -> ValueError:
    """Of a negative one, the sign is what is told."""
    if re.fullmatch(r"-\s*\d.*", text.strip()):
        return ValueError(f"is '{text[:40]}': it must be above 0")
    return ValueError(f"is '{text[:40]}', which is no {what}: write it as {how}")


def _positive(text: object, written: object) -> Fraction:
    return _checked(_exact(text), written)


def _checked(found: Fraction, written: object) -> Fraction:
    if found <= 0:
        raise ValueError(f"is {written}: it must be above 0")
    if found > LARGEST:
        raise ValueError(f"is {str(written)[:40]}, which is too large to be meant")
    return found


def _exact(value: object) -> Fraction:
    """A float of TOML is taken as it was written (`0.1` is a tenth)."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"must be a number, not {_kind(value)}")
    found = Decimal(str(value).replace("_", "").strip())
    if not found.is_finite():
        raise ValueError(f"is {value}: it must be a finite number")
    return Fraction(found)


def _kind(value: object) -> str:
    return {bool: "true or false", list: "a list", dict: "a table"}.get(type(value), type(value).__name__)
