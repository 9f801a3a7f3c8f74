"""What a GPU can do at its peak, and how GPUs and nodes are wired: the tables that ship, dated and sourced.

Invariant: a figure that no data sheet tells is None, and one of what the hardware has not is absent (`lacks`); neither is
taken for the other. Peak figures are dense (without structured sparsity); a link's bandwidth is of one direction.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from fnmatch import fnmatchcase
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

from pricing.errors import CatalogError
from pricing.instances import InstanceType, name_key

FOLDER = Path(__file__).parent / "snapshot"
PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "fp8", "int8")
PCIE_OLD, PCIE_NEW = 10e9, 20e9
"""Bytes per second of an all-reduce among GPUs that share no other link, of PCIe 3 (before compute capability 8.0) and of
PCIe 4 and later: NVIDIA/nccl-tests#178 saw 20 GB/s among A100 without a link."""
BURST_SHARE = 0.25
"""`Up to 10 Gigabit` is a burst. AWS's baselines of g4dn, g5 and p3 are 0.2 to 0.5 of it."""
Inside = Literal["link", "pairs", "pcie", "unknown"]
Network = Literal["efa", "infiniband", "gpudirect", "tcp"]
_RATE = re.compile(r"(?P<burst>Up to )?(?:(?P<ports>\d+)x )?(?P<gigabit>\d+(?:\.\d+)?) Gigabit", re.IGNORECASE)


class Gpu(NamedTuple):
    """One model in one form; memory as its maker tells it (decimal GB)."""

    model: str
    form: str
    """`sxm`, `pcie`, `nvl` (a PCIe pair), `oam`."""
    memory_bytes: int
    compute_capability: float | None
    """NVIDIA's; None for another maker."""
    runtime: str
    """`cuda` or `rocm`."""
    matrix: bool
    """It has matrix (tensor) cores."""
    flops: Mapping[str, float | None]
    """Per second, by precision, without sparsity. A precision that the hardware lacks is no key of it."""
    memory_bytes_per_second: float | None
    link_bytes_per_second: float
    """NVLink or the like to the other GPUs, of one direction; 0 where it has none."""
    as_of: date
    source: str

    def lacks(self, precision: str) -> bool:
        """The hardware cannot do it."""
        return precision not in self.flops


@dataclass(frozen=True, slots=True)
class Wiring:
    """How one instance type's GPUs reach each other, and other nodes."""

    form: str
    inside: Inside
    """`link`: all by NVLink; `pairs`: bridges between two; `unknown`: PCIe is counted."""
    network: Network
    network_bytes_per_second: float | None
    """Of a node, one direction, all ports; None where its cloud tells none."""
    burst: bool
    """The cloud tells only a burst (`Up to`): BURST_SHARE of it is counted."""
    source: str


@cache
def gpus(path: Path = FOLDER / "gpus.csv") -> tuple[Gpu, ...]:
    """All rows. CatalogError names the file and the line."""
    found = []
    for line, row in _rows(path):
        try:
            found.append(_gpu(row))
        except (ValueError, KeyError) as fault:
            raise CatalogError(f"{path.name}, line {line} is damaged ({fault}): reinstall rackrate.") from None
    return tuple(found)


def _gpu(row: dict[str, str]) -> Gpu:
    return Gpu(
        model=row["model"],
        form=row["form"],
        memory_bytes=round(float(row["memory_gb"]) * 1e9),
        compute_capability=_figure(row["compute_capability"]),
        runtime=row["runtime"],
        matrix=row["matrix"] == "yes",
        flops={name: _times(row[name], 1e12) for name in PRECISIONS if row[name] != "-"},
        memory_bytes_per_second=_times(row["memory_gb_per_s"], 1e9),
        link_bytes_per_second=0.0 if row["link_gb_per_s"] == "-" else float(row["link_gb_per_s"]) * 1e9 / 2,
        as_of=date.fromisoformat(row["as_of"]),
        source=row["source"],
    )


def _figure(cell: str) -> float | None:
    return float(cell) if cell else None


def _times(cell: str, unit: float) -> float | None:
    return float(cell) * unit if cell else None


def _rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """The rows as dictionaries, with their line numbers."""
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            reader = csv.DictReader(stream, strict=True)
            for row in reader:
                if None in row or None in row.values():
                    raise CatalogError(f"{path.name}, line {reader.line_num} has too few or many cells: reinstall rackrate.")
                yield reader.line_num, row
    except (OSError, UnicodeDecodeError, csv.Error) as fault:
        raise CatalogError(f"The table {path.name} cannot be read ({fault}): reinstall rackrate.") from None


rows = _rows
"""For the other tables of this kind."""


def gpu_of(shape: InstanceType, form: str) -> Gpu | None:
    """The row of a type's GPU: its model and form, and of these the one with the nearest memory. None: no row of the model."""
    models = [gpu for gpu in gpus() if gpu.model == shape.gpu_model]
    of_form = [gpu for gpu in models if gpu.form == form] or models
    if not of_form:
        return None
    whole = whole_memory(shape)
    if whole is None:
        return of_form[0]
    return min(of_form, key=lambda gpu: abs(gpu.memory_bytes - whole))


def whole_memory(shape: InstanceType) -> float | None:
    """Bytes of the GPU that the type has, or has a part of."""
    if shape.gpu_memory_bytes is None:
        return None
    part = shape.gpu_count if isinstance(shape.gpu_count, Fraction) and shape.gpu_count < 1 else 1
    return float(shape.gpu_memory_bytes / part)


@cache
def _patterns(path: Path) -> tuple[tuple[str, str, str, str, str, str], ...]:
    columns = ("cloud", "pattern", "form", "inside", "network", "source")
    return tuple(tuple(row[column] for column in columns) for _, row in _rows(path))  # type: ignore[misc]


def wiring_of(shape: InstanceType) -> Wiring:
    """The first row of the table whose pattern the type's name has."""
    rate, burst = network_rate(shape.network)
    name = name_key(shape.cloud, shape.instance_type)
    for cloud, pattern, form, inside, network, source in _patterns(FOLDER / "interconnects.csv"):
        if cloud == shape.cloud and fnmatchcase(name, name_key(cloud, pattern)):
            return Wiring(form, inside, network, rate, burst, source)  # type: ignore[arg-type]
    return Wiring("pcie", "unknown", "tcp", rate, burst, "nothing is told of this type: PCIe is counted")


def network_rate(words: str | None) -> tuple[float | None, bool]:
    """Bytes per second that a cloud's words tell (`4x 100 Gigabit`), and whether they tell only a burst."""
    found = _RATE.match(words or "")
    if found is None:
        return None, False
    rate = float(found["gigabit"]) * int(found["ports"] or 1) * 1e9 / 8
    return (rate * BURST_SHARE, True) if found["burst"] else (rate, False)
