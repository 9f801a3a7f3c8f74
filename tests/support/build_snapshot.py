"""Writes the tables of `pricing/snapshot` from a folder of public price data: `build_snapshot.py DATA/prices OUT`.

Invariant: a price is copied digit for digit, with its currency, date and source; zero or empty becomes an empty cell.
Facts are carried over into our own tables; no data file is copied. The output is sorted, so a rebuild is a small diff.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
import sys
from collections.abc import Iterable, Iterator
from decimal import ROUND_HALF_EVEN, Decimal
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import snapshot_specs as specs

MIB, GIB = 1 << 20, 1 << 30
AWS_US_EAST_1 = ("2026-07-20", "aws/karpenter-provider-aws, Linux on-demand us-east-1")
AWS_ZONES = ("2025-12-01", "skypilot-org/skypilot-catalog v8 (late 2025; the date is the earliest possible)")
GCP = ("2026-08-03", "cloudpilot-ai/karpenter-provider-gcp")
GCP_COMMITMENT = ("2025-03-06", "GCP commitment per month / 730 h, rounded at 10 places ({} USD a month)")
AZURE = ("2026-06-18", "Azure/karpenter-provider-azure")
ALIBABA = ("2024-12-31", "cloudpilot-ai/karpenter-provider-alibabacloud")
BY_HAND = "public machine documentation, entered by hand"
MOTO = "getmoto/moto instance types, 2026"

AWS_ACCELERATED = re.compile(r"(p\d\w*|p6-b\d+|g\d\w*|gr\d\w*|inf\d|trn\d\w*|dl\d)\.")
AWS_CPU = re.compile(r"(m5|m6i|m7i|c5|c6i|c7i|r6i|i3en)\.")
GCP_GPU = re.compile(r"(a[23]|g[24])-")
AZURE_GPU = re.compile(r"Standard_N[CDVG]")
ALIBABA_GPU = re.compile(r"ecs\.(ebmgn|gn|sgn|vgn)\d")
LOCAL_ZONE = re.compile(r"-[a-z]+\d+-az\d+$")


class Price(NamedTuple):
    region: str
    zone: str
    instance_type: str
    purchase: str
    price: str
    currency: str
    as_of: str
    source: str


class Shape(NamedTuple):
    cloud: str
    instance_type: str
    kind: str
    gpu_model: str
    gpu_count: str
    gpu_memory_bytes: str
    vcpus: str
    memory_bytes: str
    nvme_bytes: str
    network: str
    source: str


def main(data: Path, out: Path) -> None:
    prices = {
        "aws": sorted(aws_prices(data)),
        "gcp": sorted(gcp_prices(data)),
        "azure": sorted(azure_prices(data)),
        "alibaba": sorted(alibaba_prices(data)),
    }
    for cloud, rows in prices.items():
        write(out / f"{cloud}.csv", Price._fields, rows)
    named = {cloud: sorted({row.instance_type for row in rows}) for cloud, rows in prices.items()}
    shapes = [*aws_shapes(data, named["aws"]), *other_shapes(named)]
    write(out / "instance_types.csv", Shape._fields, sorted(shapes))


def write(path: Path, header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


def load(path: Path) -> dict[str, object]:
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as stream:
        return json.load(stream, parse_float=Decimal, parse_int=Decimal)


def text(price: Decimal | str | None) -> str:
    """The price as it stood; zero and empty are unknown."""
    if not price or Decimal(price) == 0:
        return ""
    return format(Decimal(price), "f")


def aws_prices(data: Path) -> Iterator[Price]:
    for name, price in load(data / "aws_on_demand_us-east-1_2026-07-20.json").items():
        if AWS_ACCELERATED.match(name) or AWS_CPU.match(name):
            yield Price("us-east-1", "", name, "on_demand", text(price), "USD", *AWS_US_EAST_1)
    yield from aws_zone_prices(data)
    yield Price("us-west-1", "", "p5.48xlarge", "on_demand", "68.8", "USD", *AWS_ZONES)


def aws_zone_prices(data: Path) -> Iterator[Price]:
    regional: dict[tuple[str, str], set[str]] = {}
    with (data / "aws_gpu_by_zone_late-2025.csv").open(encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            key = (row["region"], row["instance_type"])
            yield Price(key[0], row["zone_id"], key[1], "spot", text(row["spot"]), "USD", *AWS_ZONES)
            # the file repeats the region's on-demand price for local zones, which have prices of their own
            if row["region"] != "us-east-1" and not LOCAL_ZONE.search(row["zone_id"]):
                regional.setdefault(key, set()).add(text(row["on_demand"]))
    for (region, name), found in regional.items():
        (price,) = found
        yield Price(region, "", name, "on_demand", price, "USD", *AWS_ZONES)


def gcp_prices(data: Path) -> Iterator[Price]:
    regions = load(data / "gcp_on_demand_spot_2026-08-03.json.gz")["prices"]
    for region, purchases in regions.items():
        for purchase in ("on_demand", "spot"):
            for name, price in purchases[purchase].items():
                if GCP_GPU.match(name):
                    yield Price(region, "", name, purchase, text(price), "USD", *GCP)
    for purchase, month in (("reserved_1y", "1689.37"), ("reserved_3y", "938.57")):
        as_of, source = GCP_COMMITMENT
        hourly = (Decimal(month) / 730).quantize(Decimal("1e-10"), ROUND_HALF_EVEN)
        yield Price("us-central1", "", "a2-highgpu-1g", purchase, text(hourly), "USD", as_of, source.format(month))


def azure_prices(data: Path) -> Iterator[Price]:
    for region, sizes in load(data / "azure_on_demand_2026-06-18.json.gz").items():
        for name, price in sizes.items():
            if AZURE_GPU.match(name):
                yield Price(region, "", name, "on_demand", text(price), "USD", *AZURE)


def alibaba_prices(data: Path) -> Iterator[Price]:
    for region, types in load(data / "alibaba_on_demand_cny_2024-12-31.json.gz").items():
        for name, price in types.items():
            if ALIBABA_GPU.match(name):
                yield Price(region, "", name, "on_demand", text(price), "CNY", *ALIBABA)


def aws_shapes(data: Path, names: list[str]) -> Iterator[Shape]:
    by_hand = {shape.instance_type: shape for shape in hand("aws", specs.AWS, "")}
    with (data / "aws_accelerator_instance_specs.csv").open(encoding="utf-8") as stream:
        from_file = {row["instance_type"]: moto_shape(row) for row in csv.DictReader(stream)}
    for name in sorted({*names, *from_file}):
        yield from_file.get(name) or by_hand.get(name) or cpu_shape(name)


def moto_shape(row: dict[str, str]) -> Shape:
    name = row["instance_type"]
    kind, model, count, gpu_memory = accelerator(row)
    memory, nvme = int(row["memory_mib"]) * MIB, int(row["instance_storage_gb"]) * 10**9
    machine = (row["vcpus"], str(memory), str(nvme), row["network"])
    return Shape("aws", name, kind, model, count, gpu_memory, *machine, MOTO)


def accelerator(row: dict[str, str]) -> tuple[str, str, str, str]:
    """Kind, model, count, bytes per GPU. A count of 0 is a fraction of a 24 GB card: its memory tells which."""
    if chip := specs.AWS_CHIPS.get(row["instance_type"]):
        return "ai_chip", chip[0], str(chip[1]), str(chip[2] * GIB)
    if not row["gpu"]:
        return "cpu", "", "0", ""
    count = row["gpu_count"]
    if count == "0":
        count = str(Fraction(int(row["gpu_memory_total_mib"]), 22888).limit_denominator(16))
    model = {"RTX PRO Server 6000": "RTX PRO 6000"}.get(row["gpu"], row["gpu"])
    return "gpu", model, count, str(int(row["gpu_memory_mib"]) * MIB)


def cpu_shape(name: str) -> Shape:
    family, _, size = name.partition(".")
    if size == "metal":
        vcpus = specs.CPU_METAL_VCPUS[family]
    elif size == "large":
        vcpus = 2
    else:
        vcpus = 4 * int(re.search(r"(\d*)xl", size).group(1) or 1)
    memory = vcpus * specs.CPU_GIB_PER_VCPU[family] * GIB
    return Shape("aws", name, "cpu", "", "0", "", str(vcpus), str(memory), "0", "", BY_HAND)


def other_shapes(named: dict[str, list[str]]) -> Iterator[Shape]:
    tables = {
        "gcp": hand("gcp", specs.GCP, ""),
        "azure": hand("azure", specs.AZURE, "Standard_"),
        "alibaba": hand("alibaba", specs.ALIBABA, "ecs."),
    }
    for cloud, shapes in tables.items():
        known = {shape.instance_type: shape for shape in shapes}
        for name in named[cloud]:
            yield known.get(name) or from_azure_name(name)


def from_azure_name(name: str) -> Shape:
    """What a size's name alone says: the model, and the vCPUs as its first number."""
    model = next(model for part, model in specs.AZURE_MODEL_IN_NAME.items() if part in name)
    vcpus = re.search(r"\d+", name).group()
    return Shape("azure", name, "gpu", model, "", "", vcpus, "", "", "", "the size's name (Azure naming convention)")


def hand(cloud: str, table: str, prefix: str) -> Iterator[Shape]:
    for line in table.strip().splitlines():
        name, model, *cells = ("" if cell == "-" else cell for cell in line.split())
        count, gpu_memory, vcpus, memory, nvme, network = cells
        kind = "ai_chip" if model == "Gaudi" else "gpu"
        yield Shape(
            cloud, prefix + name, kind, model.replace("_", " "), count, size(gpu_memory, GIB), vcpus,
            size(memory, GIB), size(nvme, 10**9), network.replace("_", " "), BY_HAND,
        )  # fmt: skip


def size(cell: str, unit: int) -> str:
    if not cell:
        return ""
    unit = {"G": 10**9, "i": GIB}.get(cell[-1], unit)
    return str(int(Decimal(cell.rstrip("Gi")) * unit))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
