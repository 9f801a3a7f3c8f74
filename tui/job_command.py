"""The command line that asks for a job, as a shell takes it: `rackrate run --gpus 2 -- python train.py`.

Invariant: read back by the shell and by the options of `rackrate run` it is the same job; what no option can say is told.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal

from agent import wire
from tui.job_options import OPTIONS

Value = str | bool | Sequence[str] | None
"""A text; True of a switch; texts of an option that is given more than once; None or empty: not given."""
_UNITS = (("T", 1 << 40), ("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10))
_PLAIN = ("name", "project", "stop_signal")
_SWITCHES = ("cpu_quota", "interruptible", "shell", "strict")
_COUNTS = ("pids", "io_weight")


def words(options: Mapping[str, Value], command: Sequence[str]) -> list[str]:
    """argv. `options`: by their keys, as they would be typed."""
    found = ["rackrate", "run"]
    for option in OPTIONS:
        found += _flags(option.flag, options.get(option.key))
    return [*found, "--", *command] if command else found


def _flags(flag: str, value: Value) -> Iterator[str]:
    if value is True:
        yield flag
    elif isinstance(value, str):
        if value:
            yield from (f"{flag}={value}",) if value.startswith("-") else (flag, value)
    elif value:
        for one in value:
            yield from _flags(flag, one)


def line(options: Mapping[str, Value], command: Sequence[str]) -> str:
    """As it is pasted into a shell."""
    return shlex.join(words(options, command))


def options_of(spec: wire.JobSpec, user: str | None = None) -> dict[str, Value]:
    """What `rackrate run` would be told for this spec. `user`: whom it runs as anyway."""
    found: dict[str, Value] = {key: getattr(spec, key) for key in (*_PLAIN, *_SWITCHES) if getattr(spec, key)}
    found |= {key: str(getattr(spec, key)) for key in _COUNTS if getattr(spec, key) is not None}
    found |= {key: str(getattr(spec, key)) for key in ("gpus", "retries", "priority") if getattr(spec, key)}
    texts: dict[str, Value] = {
        "gpu_share": _maybe(spec.gpu_share, decimal_text), "gpu_memory": _maybe(spec.gpu_memory_bytes, size_text),
        "cpus": _maybe(spec.cpus, decimal_text), "memory": _maybe(spec.memory_bytes, size_text),
        "time_limit": _maybe(spec.time_limit_seconds, duration_text), "budget": _maybe(spec.budget_usd, dollars_text),
        "deadline": _maybe(spec.deadline, moment_text), "after": list(spec.after), "chdir": spec.workdir,
        "env": [f"{key}={value}" for key, value in spec.env.items()],
        "array": array_text(spec.array, spec.array_at_once) if spec.array else None,
        "retry_on": None if spec.retry_on is None else ",".join(spec.retry_on) or ",",
        "grace": duration_text(spec.grace_seconds) if spec.grace_seconds != 30.0 else None,
        "idle_stop": _maybe(spec.idle_stop_seconds, duration_text), "log_quota": _maybe(spec.log_quota_bytes, size_text),
        "user": spec.user if spec.user != user else None,
    }  # fmt: skip
    if spec.stop_signal == "TERM":
        found.pop("stop_signal", None)
    return {key: value for key, value in (found | texts).items() if value}


def _maybe(value: object, text: object) -> str | None:
    return None if value is None else text(value)  # type: ignore[operator,no-any-return]


def decimal_text(value: Decimal) -> str:
    """`0.25`, never `2.5E-1`."""
    plain = format(value, "f")
    return plain.rstrip("0").rstrip(".") if "." in plain else plain


def dollars_text(value: Decimal) -> str:
    return f"{decimal_text(value)}usd"


def size_text(value: int) -> str:
    """`64G` where it is so many whole ones, else bytes."""
    unit, scale = next(((unit, scale) for unit, scale in _UNITS if value % scale == 0), ("", 1))
    return f"{value // scale}{unit}"


def duration_text(seconds: float) -> str:
    """`8h`, `1h30m`, `0.25s`: exactly so long."""
    whole = int(seconds)
    if whole != seconds or not whole:
        return f"{Decimal(repr(float(seconds))):f}s"
    parts = ((whole // 86_400, "d"), (whole % 86_400 // 3600, "h"), (whole % 3600 // 60, "m"), (whole % 60, "s"))
    return "".join(f"{count}{unit}" for count, unit in parts if count)


def moment_text(at: datetime) -> str:
    return at.astimezone(UTC).isoformat()


def array_text(indexes: Iterable[int], at_once: int | None = None) -> str:
    """`1,3,7-9%2`; one index alone as `5-5`, because `5` is five of them."""
    runs: list[list[int]] = []
    for index in indexes:
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    single = len(runs) == 1
    parts = [f"{first}-{last}" if last > first or single else str(first) for first, last in runs]
    return ",".join(parts) + (f"%{at_once}" if at_once else "")
