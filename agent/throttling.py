"""Since when each reason holds a GPU's clocks down.

Invariant: a moment is never earlier than the first sample in which this agent saw the reason; a break of a few seconds,
as at the edge of a power limit, does not begin it anew.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from agent import wire

BREAK = timedelta(seconds=5)
NO_THROTTLING = frozenset(("gpu_idle",))
"""Clocks are down because there is nothing to do."""


class _Held(msgspec.Struct):
    since: datetime
    seen: datetime


class Throttling:
    """Remembers (GPU, reason); fed with each sample in order of time."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, str], _Held] = {}

    def told(self, sample: wire.Sample) -> wire.Sample:
        """The sample with `throttle_since` for each GPU that is throttled."""
        busy = [gpu for gpu in sample.gpus if gpu.throttle_reasons]
        if not busy and not self._held:
            return sample
        since = {gpu.uuid: self._take(gpu, sample.taken_at) for gpu in busy}
        self._held = {key: held for key, held in self._held.items() if sample.taken_at - held.seen <= BREAK}
        if not any(since.values()):
            return sample
        return msgspec.structs.replace(
            sample,
            gpus=tuple(
                msgspec.structs.replace(gpu, throttle_since=since[gpu.uuid]) if since.get(gpu.uuid) else gpu for gpu in sample.gpus
            ),
        )

    def _take(self, gpu: wire.Gpu, at: datetime) -> dict[str, datetime]:
        found = {}
        for reason in gpu.throttle_reasons or ():
            if reason in NO_THROTTLING:
                continue
            held = self._held.get((gpu.uuid, reason))
            if held is None or held.since > at:  # the clock stepped back
                held = self._held[gpu.uuid, reason] = _Held(at, at)
            held.seen = at
            found[reason] = held.since
        return found
