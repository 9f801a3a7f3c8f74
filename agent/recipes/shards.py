"""A checkpoint in shards, as torch.distributed.checkpoint writes it: what is in the files, read whole or into the shares of ranks.

Invariant: nothing is read of which a hash is not as it was written, and nothing is unpickled but tensors and torch's table of
them. Tensors are called `model.WEIGHT` and `averages.WEIGHT.KEY` (the optimizer's), whatever the ranks that wrote or read them.
"""

from __future__ import annotations

import hashlib
import pickle
import warnings
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta, TensorStorageMetadata
from torch.distributed.tensor import DTensor

from agent.recipes.checkpoints import NotWhole
from agent.recipes.faults import CheckpointFault
from agent.recipes.parallel import fitted

METADATA = ".metadata"
MODEL, AVERAGES = "model.", "averages."
_TABLE = {
    *(("torch.distributed.checkpoint.metadata", name) for name in (
        "Metadata", "TensorStorageMetadata", "TensorProperties", "ChunkStorageMetadata", "MetadataIndex", "StorageMeta",
        "_MEM_FORMAT_ENCODING",
    )),
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"), ("torch.serialization", "_get_layout"), ("torch", "Size"),
    *(("pathlib", name) for name in ("Path", "PosixPath", "PurePosixPath")), ("collections", "OrderedDict"),
}  # fmt: skip
Averages = Mapping[str, Mapping[str, Tensor]]
"""The optimizer's state, by the weights' names."""


class _Table(pickle.Unpickler):
    """Of what torch writes into `.metadata`; a pickle could call anything."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _TABLE or (module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name}")


class Reader(dcp.FileSystemReader):
    """Of one checkpoint's folder."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        with (Path(self.path) / METADATA).open("rb") as file:
            found = _Table(file).load()
        if not isinstance(found, Metadata):
            raise pickle.UnpicklingError("no table")
        found.storage_meta = found.storage_meta or StorageMeta()
        found.storage_meta.load_id = self.load_id
        return found

    def tensors(self) -> dict[str, TensorStorageMetadata]:
        found = self.read_metadata().state_dict_metadata
        return {name: one for name, one in found.items() if isinstance(one, TensorStorageMetadata)}


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check(path: Path, files: Mapping[str, str]) -> None:
    """Raises `NotWhole`, with the first that is not as it was written."""

    def one(name: str) -> str | None:
        try:
            whole = "/" not in name and sha256(path / name) == files[name]
        except OSError as error:
            return f"{name}: {(error.strerror or str(error)).lower()}"
        return None if whole else f"{name} is half-written or damaged (its hash is not that of about.json)"

    with ThreadPoolExecutor(8) as pool:
        faults = [fault for fault in pool.map(one, sorted(files)) if fault]
    if METADATA not in files:
        faults.append(f"{METADATA} is not among its files")
    if faults:
        raise NotWhole(faults[0])
    try:
        Reader(path).read_metadata()
    except (pickle.UnpicklingError, AttributeError, EOFError, ImportError, IndexError, TypeError, ValueError):
        raise NotWhole(f"{METADATA} holds more than torch's table of tensors, or is of another torch") from None


def named(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """What is saved: this rank's shares."""
    found = {f"{MODEL}{name}": value for name, value in model.state_dict().items()}
    for name, weight in model.named_parameters():
        for key, value in optimizer.state.get(weight, {}).items():
            found[f"{AVERAGES}{name}.{key}"] = value
    return found


def gathered(path: Path) -> dict[str, Any]:
    """The whole state, read by this process alone: `model`, and `averages` by the weights' names."""
    reader = Reader(path)
    whole = {name: torch.empty(one.size, dtype=one.properties.dtype) for name, one in reader.tensors().items()}
    _load(whole, reader, None, alone=True)
    return {"model": _below(MODEL, whole), "averages": _by_weight(whole)}


def load(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, group: dist.ProcessGroup) -> None:
    """Into the shares of all ranks, of which each reads its own."""
    reader, weights = Reader(path), dict(model.named_parameters())
    found = {f"{MODEL}{name}": value for name, value in model.state_dict().items()}
    for name, one in reader.tensors().items():
        if name.startswith(AVERAGES):
            weight = weights[name.removeprefix(AVERAGES).rpartition(".")[0]]
            same = one.size == weight.shape
            found[name] = torch.zeros_like(weight.detach()) if same else torch.zeros(one.size, dtype=one.properties.dtype)
    _load(found, reader, group, alone=False)
    put(model, optimizer, _below(MODEL, found), _by_weight(found))


def put(model: nn.Module, optimizer: torch.optim.Optimizer, values: Mapping[str, Tensor], averages: Averages) -> None:
    """Whole tensors or shares of them, into the model and its optimizer as the ranks share them."""
    now = model.state_dict()
    model.load_state_dict({name: _share(value, now[name]) for name, value in values.items()})
    for name, weight in model.named_parameters():
        if name in averages:
            optimizer.state[weight] = {
                key: _share(value, weight) if value.shape == weight.shape else value for key, value in averages[name].items()
            }


def averages_of(state: Mapping[str, Any], model: nn.Module, optimizer: torch.optim.Optimizer) -> Averages:
    """Of an optimizer's own `state_dict`, in which weights are numbers in the order of its groups."""
    names = {weight: name for name, weight in model.named_parameters()}
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    return {names[weights[number]]: values for number, values in state["state"].items()}


def _share(value: Tensor, like: Tensor) -> Tensor:
    return value if isinstance(value, DTensor) else fitted(value, like.detach())



def _below(prefix: str, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}


def _by_weight(values: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    found: dict[str, dict[str, Tensor]] = {}
    for name, value in _below(AVERAGES, values).items():
        weight, _, key = name.rpartition(".")
        found.setdefault(weight, {})[key] = value
    return found


def _load(into: dict[str, Any], reader: Reader, group: dist.ProcessGroup | None, *, alone: bool) -> None:
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "torch.distributed is disabled")  # one process alone is meant
            dcp.load(into, storage_reader=reader, process_group=group, no_dist=alone)
    except dcp.api.CheckpointException as error:
        raise CheckpointFault(f"{reader.path} could not be read ({first_fault(error)}).") from None


def first_fault(error: dcp.api.CheckpointException) -> str:
    """What went wrong on the first rank that failed."""
    rank = min(error.failures)
    return f"rank {rank}: {error.failures[rank][0]}"
