"""What of a sample a stream carries: all of it, but links and ancestors only when they are news.

Invariant: a listener that keeps the newest `links_at` of each GPU and the newest ancestors knows what the whole sample says.
Both are read every ten and five seconds; repeated each second they would be a third of all bytes of a stream.
"""

from __future__ import annotations

import msgspec

from agent import wire

AGAIN = 10
"""Ancestors that did not change are told again with every so-manieth sample: a listener may have lost one."""


class StreamForm:
    """Remembers what was told last."""

    def __init__(self) -> None:
        self._links: dict[str, object] = {}
        self._ancestors: tuple[wire.Ancestor, ...] = ()

    def of(self, sample: wire.Sample) -> wire.Sample:
        """The sample without what was told before."""
        gpus = tuple(map(self._gpu, sample.gpus))
        known = sample.ancestors == self._ancestors and sample.sequence % AGAIN
        self._ancestors = sample.ancestors
        return msgspec.structs.replace(sample, gpus=gpus, ancestors=() if known else sample.ancestors)

    def _gpu(self, gpu: wire.Gpu) -> wire.Gpu:
        if gpu.links_at is None:
            return gpu
        if self._links.get(gpu.uuid) != gpu.links_at:
            self._links[gpu.uuid] = gpu.links_at
            return gpu
        return msgspec.structs.replace(
            gpu, pcie_receive_bytes_per_second=None, pcie_transmit_bytes_per_second=None, nvlinks=None, nvlinks_down=(),
            nvlink_receive_bytes_per_second=None, nvlink_transmit_bytes_per_second=None, links_at=None,
        )  # fmt: skip
