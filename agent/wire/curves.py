"""The curves of a job: what its training told of each step, thinned to what can be drawn.

Invariant: a value that is no number is None, never left out silently; of what was thinned first, last, lowest and highest stand.
"""

from __future__ import annotations

from agent.wire.base import Message


class Curve(Message, kw_only=True):
    """One figure over the steps; the lists are of one length, by rising step."""

    name: str
    steps: tuple[int, ...]
    values: tuple[float | None, ...]
    """None: the training told that it is no number (NaN, null)."""
    seconds: tuple[float | None, ...] = ()
    """When, in seconds since 1970 UTC, by the line's own `time` or by TensorBoard; empty: not known of any."""
    count: int
    """Values before thinning."""
    mean: float | None = None
    """Over all values that are numbers."""
    source: str
    """`log` or `tensorboard`."""


class JobCurves(Message, kw_only=True):
    """`GET /v1/jobs/{id}/curves?points=N&names=A,B`: over all attempts; what a resume did again counts once."""

    job: str
    attempt: int
    """The newest; 0 before the first start."""
    curves: tuple[Curve, ...]
    """In the order in which they were first told."""
    names: tuple[str, ...] = ()
    """Of all there are, also those that were not asked for."""
    start: dict[str, str] = {}
    """What the newest line with `"event": "start"` told, as text: the settings of the training."""
    end: dict[str, str] = {}
    """As `start`, of the line with `"event": "end"` of the newest attempt."""
    step: int | None = None
    """The newest step."""
    steps_total: int | None = None
    samples_per_epoch: int | None = None
    batch_size: int | None = None
    tokens_per_sample: int | None = None
    epochs_per_step: float | None = None
    samples_per_second: float | None = None
    """Over the newest lines that told it, each by the steps that it is of."""
    steps_per_second: float | None = None
    """From `samples_per_second` and the batch, else from the times of the newest steps."""
    ended: bool
    """No more will come."""
    behind_bytes: int = 0
    """Of the log that has not been read yet: ask again."""
    dropped_bytes: int = 0
    """Of the log that were no longer kept when it was read."""
    sources: tuple[str, ...] = ()
    """What was read, in words."""
    problems: tuple[str, ...] = ()
    """What could not be read, in sentences."""
