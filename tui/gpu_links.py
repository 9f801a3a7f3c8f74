"""The newest reading of each GPU's links, and who started the programs on them: a stream tells both only when they are news.

Invariant: a reading keeps the moment at which it was taken; one of a GPU that is gone is forgotten with it.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from agent import wire


class Links(msgspec.Struct, frozen=True, gc=False):
    """Bytes per second, and NVLinks; what is not known is None. `at`: when it was read."""

    at: datetime
    pcie_receive: float | None
    pcie_transmit: float | None
    nvlinks: int | None
    nvlinks_down: tuple[int, ...]
    nvlink_receive: float | None
    nvlink_transmit: float | None


class NodeLinks:
    """Of one node; `take` each sample."""

    __slots__ = ("ancestors", "by_uuid")

    def __init__(self) -> None:
        self.by_uuid: dict[str, Links] = {}
        self.ancestors: tuple[wire.Ancestor, ...] = ()

    def take(self, sample: wire.Sample) -> None:
        if sample.ancestors:
            self.ancestors = sample.ancestors
        for gpu in sample.gpus:
            if gpu.links_at is not None:
                self.by_uuid[gpu.uuid] = _links(gpu, gpu.links_at)
        if len(self.by_uuid) > len(sample.gpus):
            here = {gpu.uuid for gpu in sample.gpus}
            self.by_uuid = {uuid: links for uuid, links in self.by_uuid.items() if uuid in here}

    def whole(self, sample: wire.Sample) -> wire.Sample:
        """The sample, and with it what was told before and still holds."""
        if not self.by_uuid and (sample.ancestors or not self.ancestors):
            return sample
        gpus = tuple(map(self._whole_gpu, sample.gpus))
        return msgspec.structs.replace(sample, gpus=gpus, ancestors=sample.ancestors or self.ancestors)

    def _whole_gpu(self, gpu: wire.Gpu) -> wire.Gpu:
        known = None if gpu.links_at is not None else self.of(gpu)
        if known is None:
            return gpu
        return msgspec.structs.replace(
            gpu, links_at=known.at, pcie_receive_bytes_per_second=known.pcie_receive,
            pcie_transmit_bytes_per_second=known.pcie_transmit, nvlinks=known.nvlinks, nvlinks_down=known.nvlinks_down,
            nvlink_receive_bytes_per_second=known.nvlink_receive, nvlink_transmit_bytes_per_second=known.nvlink_transmit,
        )  # fmt: skip

    def of(self, gpu: wire.Gpu) -> Links | None:
        """None: never told, or the GPU is lost."""
        return self.by_uuid.get(gpu.uuid) if gpu.state == "ok" else None


def _links(gpu: wire.Gpu, at: datetime) -> Links:
    return Links(
        at, gpu.pcie_receive_bytes_per_second, gpu.pcie_transmit_bytes_per_second, gpu.nvlinks, gpu.nvlinks_down,
        gpu.nvlink_receive_bytes_per_second, gpu.nvlink_transmit_bytes_per_second,
    )  # fmt: skip
