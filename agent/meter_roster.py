"""Which GPUs a node's record is of, and what the node is: a track for each, and the placement in force.

Invariant: after `enter` there is always a track, of GPUs or of the host (None), never of both; a GPU that was met stays until
the agent restarts or the node's instance type becomes another. What leaves is finished first, and where it ended is kept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from agent import wire
from agent.meter_placement import PlacementRef, placement_facts, refines
from agent.meter_store import Kept
from agent.meter_track import Stretch, Track


class Roster:
    """`placement` is None, and there are no tracks, before `begin` of a record that nothing was written to yet."""

    def __init__(self, node: str, row_ms: int, rows: list[Stretch], placement: PlacementRef | None) -> None:
        self._node = node
        self._row_ms = row_ms
        self._rows = rows
        self._instance_type = placement and placement.facts.instance_type
        self._retired: list[Kept] = []
        self.placement = placement
        self.tracks: dict[str | None, Track] = {}
        self.info: wire.NodeInfo | None = None
        """What the node last said of itself."""

    def begin(self, gpus: Collection[wire.Gpu], info: wire.NodeInfo, at_ms: int) -> None:
        """A new record: what is there now has been there since `at_ms`."""
        models = [gpu.model for gpu in gpus]
        self.placement = PlacementRef(placement_facts(self._node, info, len({gpu.uuid for gpu in gpus}), models))
        for gpu in gpus:
            self._add(gpu.uuid, at_ms, gpu.model)
        if not gpus:
            self._add(None, at_ms)

    def restore(self, kept: Iterable[Kept]) -> None:
        """Goes on where an earlier run of the agent ended."""
        for one in kept:
            self._add(one.gpu, one.until_ms, one.model)

    def enter(self, gpus: Mapping[str, wire.Gpu], info: wire.NodeInfo, at_ms: int) -> PlacementRef:
        """These GPUs answer now. The placement that holds from now on."""
        changed = self._meet(gpus, at_ms)
        if changed or info is not self.info:
            self._place(info, gpus, at_ms)
        assert self.placement is not None
        return self.placement

    def retire_all_but(self, uuids: Collection[str | None]) -> None:
        """The others are no longer part of the node."""
        for uuid in [uuid for uuid in self.tracks if uuid not in uuids]:
            track = self.tracks.pop(uuid)
            track.finish()
            self._retired.append(Kept(uuid, track.model, track.starts_ms, tracked=False))

    @property
    def unwritten(self) -> bool:
        """Whether a GPU left since `written`."""
        return bool(self._retired)

    def kept(self) -> list[Kept]:
        """Where each GPU's finished rows end. One that came back within the same flush is not retired."""
        here = [Kept(track.gpu, track.model, track.starts_ms) for track in self.tracks.values()]
        return [one for one in self._retired if one.gpu not in self.tracks] + here

    def written(self) -> None:
        """`kept` is on the disk."""
        self._retired.clear()

    def _add(self, gpu: str | None, starts_ms: int, model: str | None = None) -> Track:
        assert self.placement is not None
        track = self.tracks[gpu] = Track(gpu, starts_ms, self._row_ms, self._rows, self.placement, model)
        return track

    def _meet(self, gpus: Mapping[str, wire.Gpu], at_ms: int) -> bool:
        """Takes in GPUs seen for the first time; True when the GPUs, or what is known of them, changed."""
        changed = False
        for uuid, gpu in gpus.items():
            track = self.tracks.get(uuid)
            if track is None:
                track = self._add(uuid, at_ms)
                changed = True
            if not track.energy.primed:
                track.read_energy(gpu, at_ms, False)
            if gpu.model is not None and gpu.model != track.model:
                track.model, changed = gpu.model, True
        if gpus and None in self.tracks:
            self.retire_all_but(self.tracks.keys() - {None})
        return self._meet_host(at_ms) or changed

    def _meet_host(self, at_ms: int) -> bool:
        if self.tracks:
            return False
        self._add(None, at_ms)
        return True

    def _place(self, info: wire.NodeInfo, gpus: Collection[str], at_ms: int) -> None:
        """The placement in force from now on. One that was not written yet is completed instead of replaced."""
        self.info = info
        if self._instance_type is not None and info.instance_type not in (None, self._instance_type):
            self.retire_all_but({*gpus, None})
            self._meet_host(at_ms)
        self._instance_type = info.instance_type or self._instance_type
        facts = self._facts(info)
        current = self.placement
        if current is not None and current.facts == facts:
            return
        if current is not None and current.id is None and refines(current.facts, facts):
            current.facts = facts
        else:
            self.placement = PlacementRef(facts)

    def _facts(self, info: wire.NodeInfo) -> wire.Placement:
        gpus = [track for track in self.tracks.values() if track.gpu is not None]
        models = {gpu.uuid: gpu.model for gpu in info.gpus}
        return placement_facts(self._node, info, len(gpus), [track.model or models.get(track.gpu or "") for track in gpus])
