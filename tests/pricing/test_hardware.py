"""The tables of GPUs, wiring and storage: dated, sourced, plausible, and matched to the instance types of the catalog."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from pricing.catalog import CLOUDS, Catalog
from pricing.errors import CatalogError
from pricing.hardware import BURST_SHARE, PRECISIONS, gpu_of, gpus, network_rate, whole_memory, wiring_of
from pricing.instances import InstanceType
from pricing.planner_storage import tiers

CATALOG = Catalog.embedded()
GPU_TYPES = [shape for cloud in CLOUDS for shape in CATALOG.instances(cloud) if shape.kind == "gpu"]


def shape(cloud: str, name: str) -> InstanceType:
    found = CATALOG.instance(cloud, name)
    assert found is not None
    return found


def test_every_row_is_dated_and_sourced() -> None:
    for gpu in gpus():
        assert date(2026, 1, 1) < gpu.as_of < date(2028, 1, 1) and len(gpu.source) > 10
    for tier in tiers():
        assert date(2026, 1, 1) < tier.as_of < date(2028, 1, 1) and tier.source
        assert tier.price_per_gb_month is None or 0 <= tier.price_per_gb_month < 1


def test_no_model_stands_twice_in_one_form_and_memory() -> None:
    keys = [(gpu.model, gpu.form, gpu.memory_bytes) for gpu in gpus()]
    assert len(keys) == len(set(keys))


def test_peak_figures_rise_from_wide_to_narrow_formats() -> None:
    for gpu in gpus():
        known = [gpu.flops[name] for name in ("fp32", "tf32", "fp16", "fp8") if gpu.flops.get(name)]
        assert known == sorted(known), gpu.model
        if not gpu.lacks("bf16") and gpu.runtime == "cuda":
            assert gpu.flops["bf16"] == gpu.flops["fp16"], "the same cores, without sparsity"


def test_published_figures_stand_in_the_table() -> None:
    by = {(gpu.model, gpu.form, round(gpu.memory_bytes / 1e9)): gpu for gpu in gpus()}
    a100, v100, t4, h100 = by["A100", "sxm", 40], by["V100", "sxm", 16], by["T4", "pcie", 16], by["H100", "sxm", 80]
    assert (a100.flops["bf16"], a100.memory_bytes_per_second, a100.link_bytes_per_second) == (312e12, 1555e9, 300e9)
    assert (v100.flops["fp16"], v100.flops["fp32"], v100.link_bytes_per_second) == (125e12, 15.7e12, 150e9)
    assert (t4.flops["fp16"], t4.flops["int8"], t4.link_bytes_per_second) == (65e12, 130e12, 0)
    assert (h100.flops["bf16"], h100.flops["fp8"], h100.memory_bytes_per_second) == (989e12, 1979e12, 3350e9)


@pytest.mark.parametrize(
    ("model", "lacking"),
    [("V100", {"tf32", "bf16", "fp8"}), ("T4", {"tf32", "bf16", "fp8"}), ("A100", {"fp8"}), ("H100", set()), ("K80", {*PRECISIONS} - {"fp32"})],
)  # fmt: skip
def test_what_the_hardware_lacks_is_told_apart_from_what_is_not_known(model: str, lacking: set[str]) -> None:
    (gpu, *_) = [gpu for gpu in gpus() if gpu.model == model]
    assert {name for name in PRECISIONS if gpu.lacks(name)} == lacking
    unknown = next(gpu for gpu in gpus() if gpu.model == "RTX PRO 4500")
    assert not unknown.lacks("bf16") and unknown.flops["bf16"] is None


def test_every_gpu_type_whose_model_the_table_has_gets_a_row_of_about_its_memory() -> None:
    models = {gpu.model for gpu in gpus()}
    for one in GPU_TYPES:
        gpu = gpu_of(one, wiring_of(one).form)
        assert (gpu is not None) == (one.gpu_model in models), one.instance_type
        whole = whole_memory(one)
        if gpu is not None and whole is not None:
            assert 0.8 < whole / gpu.memory_bytes < 1.15, one.instance_type


@pytest.mark.parametrize(
    ("cloud", "name", "form", "inside", "network", "gigabit"),
    [
        ("aws", "p3.16xlarge", "sxm", "link", "tcp", 25), ("aws", "p3dn.24xlarge", "sxm", "link", "efa", 100),
        ("aws", "p4d.24xlarge", "sxm", "link", "efa", 400), ("aws", "g5.48xlarge", "pcie", "pcie", "efa", 100),
        ("aws", "g5.xlarge", "pcie", "pcie", "tcp", 10 * BURST_SHARE), ("azure", "NC24s_v3", "pcie", "pcie", "tcp", None),
        ("azure", "ND40rs_v2", "sxm", "link", "infiniband", 100), ("azure", "NC96ads_A100_v4", "pcie", "pairs", "tcp", 80),
        ("azure", "ND96isr_H100_v5", "sxm", "link", "infiniband", 3200), ("azure", "NC80adis_H100_v5", "nvl", "pairs", "tcp", 80),
        ("gcp", "a2-highgpu-4g", "sxm", "link", "tcp", 50), ("gcp", "a3-megagpu-8g", "sxm", "link", "gpudirect", 1800),
        ("alibaba", "ecs.gn6v-c8g1.16xlarge", "pcie", "unknown", "tcp", None),
    ],
)  # fmt: skip
def test_wiring_of_known_types(cloud: str, name: str, form: str, inside: str, network: str, gigabit: float | None) -> None:
    found = wiring_of(shape(cloud, name))
    assert (found.form, found.inside, found.network) == (form, inside, network)
    assert found.network_bytes_per_second == (None if gigabit is None else gigabit * 1e9 / 8)


def test_words_for_a_network_are_read_and_others_are_unknown() -> None:
    assert network_rate("4x 100 Gigabit") == (50e9, False)
    assert network_rate("8x 200 Gigabit InfiniBand") == (200e9, False)
    assert network_rate("Up to 12.5 Gigabit") == (12.5e9 / 8 * BURST_SHARE, True)
    for words in (None, "", "InfiniBand", "High"):
        assert network_rate(words) == (None, False)


@pytest.mark.parametrize("line", ["A100,sxm,forty,8.0,cuda,yes,1,1,1,1,1,1,1,1,2026-11-30,x", "A100,sxm,40"])
def test_a_damaged_table_is_named_with_its_line(tmp_path: Path, line: str) -> None:
    header = (Path(__file__).parents[2] / "pricing" / "snapshot" / "gpus.csv").read_text().splitlines()[0]
    (tmp_path / "gpus.csv").write_text(f"{header}\n{line}\n")
    with pytest.raises(CatalogError, match="gpus.csv, line 2"):
        gpus(tmp_path / "gpus.csv")
