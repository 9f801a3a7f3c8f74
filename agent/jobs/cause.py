"""Why an attempt ended: one word, and a sentence with the figures that show it.

Invariant: the word is what really happened, not what was wanted: an intent to stop is the cause only where the stop was
signalled before the job ended by itself. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec


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
    raise NotImplementedError
