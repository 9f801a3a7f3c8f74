"""Why an attempt ended: one word, and a sentence with the figures that show it.

Invariant: the word is what really happened, not what was wanted: an intent to stop is the cause only where the stop was
signalled before the job ended by itself. Pure.

Precedence, first match wins: `start_error`; `unkillable` (something outlived the kill, so its GPUs are not free,
whatever else is true); a stop that was signalled (`cancelled`, `time_limit`, `budget`, `preempted`, `spot_reclaim`,
`idle_stop`); `oom` (the kernel's counters, never the exit code); `signal:N`; `exit:N`; and where there is no exit record
the intent, `node_reboot`, `lost`.
"""

from __future__ import annotations

import json
import signal as signals
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

INTENTS = ("cancelled", "time_limit", "budget", "preempted", "spot_reclaim", "idle_stop")
"""By precedence."""
_MESSAGE_SHOWN = 300


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    cause: str
    evidence: str
    exit_code: int | None = None
    signal: int | None = None
    started: bool = True
    """False: nothing of the job ran (a start error, or the shim never began)."""


def judge(
    exit: Any | None,
    standing: str,
    intent: str | None,
    *,
    intent_evidence: str | None = None,
    error_file: str | bytes | None = None,
    left: Sequence[str] = (),
) -> Verdict:
    """`exit`: the ExitRecord (or exit.json as a dict), None where there is none; `standing`: `AttemptDir.look`.

    `intent`: the row's `stop_cause`, `intent_evidence` its `stop_evidence`. `error_file`: what the job left in
    TORCHELASTIC_ERROR_FILE. `left`: sentences about processes that outlived the kill (also seen only by the driver).
    """
    if exit is None:
        return _without_record(standing, intent, intent_evidence, left)
    code, number = _of(exit, "exit_code"), _of(exit, "signal")
    if _of(exit, "start_error") is not None:
        return Verdict(cause="start_error", evidence=f"nothing was run: {_plain(_of(exit, 'start_error'))}", started=False)
    cause, evidence = _of_record(exit, code, number, intent, intent_evidence, error_file, left)
    return Verdict(cause=cause, evidence=evidence, exit_code=code, signal=number)


def _of_record(
    exit: Any,
    code: int | None,
    number: int | None,
    intent: str | None,
    intent_evidence: str | None,
    error_file: str | bytes | None,
    left: Sequence[str],
) -> tuple[str, str]:
    stop = _of(exit, "stop")
    end = _end(code, number)
    if _of(exit, "empty") is False or left:
        return "unkillable", f"{_survivors(exit, left)}; {end}{_wish(stop, intent)}"
    if _signalled(exit):
        cause = min((word for word in (_of(stop, "cause"), intent) if word is not None), key=_rank, default="cancelled")
        return cause, _stopped(exit, end, intent_evidence if cause == intent else None)
    wish = f"; it was to be stopped ({intent}) but had ended by itself before" if intent is not None else ""
    if _count(exit, "oom_kills"):
        return "oom", _oom(exit, end) + wish
    return _by_itself(code, number, error_file, _leftover(exit) + wish)


def _by_itself(code: int | None, number: int | None, error_file: str | bytes | None, more: str) -> tuple[str, str]:
    if number is not None:
        return f"signal:{number}", f"{_end(code, number)}, which came from neither this agent nor a memory limit{more}"
    if code is None:
        return "lost", f"its process is gone and left no exit status{more}"
    said = _said(error_file)
    return f"exit:{code}", f"{_end(code, number)}{': ' + said if said and code else ''}{_hint(code)}{more}"


def _without_record(standing: str, intent: str | None, intent_evidence: str | None, left: Sequence[str]) -> Verdict:
    what, cause = {
        "rebooted": ("the machine restarted while it ran", "node_reboot"),
        "not_started": ("the agent ended before its first process began", "lost"),
    }.get(standing, ("its supervising process is gone and left no exit record", "lost"))
    if left:
        return Verdict(cause="unkillable", evidence=f"{'; '.join(left)}; {what}")
    started = standing != "not_started"
    if intent is not None:
        why = f" ({intent_evidence})" if intent_evidence else ""
        return Verdict(cause=intent, evidence=f"it was being stopped{why} when {_then(standing)}", started=started)
    return Verdict(cause=cause, evidence=what, started=started)


def _then(standing: str) -> str:
    return {"rebooted": "the machine restarted", "not_started": "it had not begun yet"}.get(
        standing, "its supervising process vanished without an exit record"
    )


def _signalled(exit: Any) -> bool:
    """Whether a stop reached the job before its leader's end: by a signal, or without a grace by the kill alone."""
    stop, ended = _of(exit, "stop"), _time(_of(exit, "ended_at"))
    at = _time(_of(stop, "signalled_at")) or _time(_of(stop, "killed_at"))
    return at is not None and (ended is None or at <= ended)


def _stopped(exit: Any, end: str, why: str | None) -> str:
    stop = _of(exit, "stop")
    signalled, killed = _time(_of(stop, "signalled_at")), _time(_of(stop, "killed_at"))
    parts = [why] if why else []
    if signalled is not None:
        parts.append(f"signalled at {signalled:%H:%M:%S} UTC")
    if killed is not None:
        parts.append(
            f"killed {(killed - signalled).total_seconds():.0f} s later" if signalled else f"killed at {killed:%H:%M:%S} UTC"
        )
    elif signalled is not None and (ended := _time(_of(exit, "ended_at"))) is not None:
        parts.append(f"ended {(ended - signalled).total_seconds():.1f} s later")
    also = f"; before that {_oom(exit, None)}" if _count(exit, "oom_kills") else ""
    return ", ".join(parts) + f"; {end}{also}"


def _oom(exit: Any, end: str | None) -> str:
    kills, peak, limit = _count(exit, "oom_kills"), _figure(exit, "memory_peak_bytes"), _figure(exit, "memory_limit_bytes")
    text = f"the kernel killed {kills} of its processes for want of memory"
    if peak is not None:
        text += f", at a peak of {size(peak)}"
        text += f" with a limit of {size(limit)}" if limit is not None else " without a limit of its own: the machine's ran out"
    return f"{text}; {end}" if end else text


def _survivors(exit: Any, left: Sequence[str]) -> str:
    pids = list(_of(exit, "left") or ())
    if not pids:
        return "; ".join(left) or "something of it could not be killed"
    shown = ", ".join(map(str, pids[:8])) + (", …" if len(pids) > 8 else "")
    count = f"{len(pids)} of its processes" if len(pids) > 1 else "1 of its processes"
    return "; ".join([f"{count} could not be killed (pid {shown})", *left])


def _wish(stop: Any, intent: str | None) -> str:
    word = intent or _of(stop, "cause")
    return f"; it was being stopped as {word}" if word else ""


def _leftover(exit: Any) -> str:
    killed = _of(exit, "leftover_killed") or 0
    return f"; {killed} processes that it left running were killed" if killed else ""


def _end(code: int | None, number: int | None) -> str:
    if number is not None:
        return f"its first process was killed by {_name(number)}"
    return "its first process left no exit status" if code is None else f"it ended with exit code {code}"


def _name(number: int) -> str:
    try:
        return f"{signals.Signals(number).name} ({number})"
    except ValueError:
        return f"signal {number}"


def _hint(code: int) -> str:
    """What shells and launchers mean by a code above 128: said, but never taken for the truth."""
    return f", which shells use for a command that {_name(code - 128)} ended" if 128 < code < 128 + 65 else ""


def _said(error_file: str | bytes | None) -> str:
    """The message of torch elastic's error file: {"message": {"message": …}} or {"message": …}; "" where there is none."""
    try:
        found: Any = json.loads(error_file) if error_file else None
    except ValueError:
        return ""
    for _ in range(2):
        found = found.get("message") if isinstance(found, dict) else found
    return _plain(found) if isinstance(found, str) else ""


def _plain(text: str) -> str:
    """One line without control characters: it came from the job."""
    line = " ".join("".join(character if character.isprintable() else " " for character in text).split())
    return line if len(line) <= _MESSAGE_SHOWN else line[:_MESSAGE_SHOWN] + "…"


def _rank(cause: str) -> int:
    return INTENTS.index(cause) if cause in INTENTS else len(INTENTS)


def _count(exit: Any, name: str) -> int:
    return int(_of(_of(exit, "counters"), name) or 0)


def _figure(exit: Any, name: str) -> float | None:
    figure = _of(_of(exit, "counters"), name)
    return figure if isinstance(figure, (int, float)) else None


def _of(record: Any, name: str) -> Any:
    """A field of a struct or of the dict that it was read from."""
    return record.get(name) if isinstance(record, Mapping) else getattr(record, name, None)


def _time(value: Any) -> datetime | None:
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    return value if isinstance(value, datetime) else None


def size(count: float) -> str:
    """Bytes as a person reads them: `512 MiB`, `64.0 GiB`."""
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"
