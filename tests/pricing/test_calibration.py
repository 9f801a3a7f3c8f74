"""A measured recipe's speed on other hardware, with other settings, on more GPUs: figures worked by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from pricing.calibration import Calibration, Estimate, Figure, Target, Work, estimate
from pricing.calibration_work import size_of
from pricing.hardware import Gpu, Wiring, gpus

LANGUAGE = {
    "context": 256, "layers": 6, "width": 384, "heads": 6, "vocabulary": 64, "checkpoint_activations": False, "parallel": "ddp",
    "tensor_ranks": 0, "accumulate": 1,
}  # fmt: skip
RECOMMENDER = {"model": "two_tower", "width": 16, "hidden": 64, "layers": 2, "buckets": 100_000, "accumulate": 1}
LINKED = Wiring("sxm", "link", "tcp", None, False, "")
NAMES = {"A100": "NVIDIA A100-SXM4-80GB", "H100": "NVIDIA H100 80GB HBM3"}


def gpu(model: str, form: str = "sxm", gigabytes: int = 80) -> Gpu:
    return next(one for one in gpus() if (one.model, one.form, one.memory_bytes) == (model, form, gigabytes * 10**9))


def figure(name: str, value: float, **about: Any) -> Figure:
    unit = "samples_per_second" if name.startswith("recipe_") else "flops"
    return Figure(name=name, value=value, unit=unit, spread_ratio=0.02, repeats=7, about=about)


def measured(recipe: str = "language", settings: Mapping[str, Any] = LANGUAGE, value: float = 1000.0, batch: int = 64) -> Figure:
    return figure(f"recipe_{recipe}", value, settings=settings, batch_size=batch, precision="bf16", ranks=1)


def calibration(*figures: Figure, model: str | None = "A100", ranks: int = 1, day: int = 1, **more: Any) -> Calibration:
    known = {
        "id": f"{day}", "measured_at": datetime(2026, 11, day, tzinfo=UTC), "node": "box", "cloud": None, "region": None,
        "instance_type": None, "usd_per_hour": None, "gpu": NAMES.get(model or ""), "gpu_count": 8 if model else 0,
        "gpu_memory_bytes": 85 * 10**9, "ranks": ranks, "cpu": "a CPU", "threads": 8, "torch": "2.9", "cuda": "12.8", "driver": None,
        "host": "box", "figures": figures,
    }  # fmt: skip
    return Calibration(**{**known, **more})  # type: ignore[arg-type]


def work(recipe: str = "language", settings: Mapping[str, Any] = LANGUAGE, batch: int = 64, precision: str = "auto") -> Work:
    return Work(recipe=recipe, settings=settings, batch_size=batch, precision=precision)


def told(asked: Work, target: Target, *kept: Calibration) -> Estimate:
    found = estimate(asked, target, kept)
    assert isinstance(found, Estimate), found
    return found


def on(model: str, count: int = 1, **form: Any) -> Target:
    return Target(gpu=gpu(model, **form), count=count, wiring=LINKED)


def test_the_same_gpus_settings_and_batch_are_measured_and_the_spread_is_the_range() -> None:
    found = told(work(), on("A100"), calibration(measured(value=900.0)), calibration(measured(), day=2))
    assert (found.how, found.samples_per_second, found.low, found.high) == ("measured", 1000, 980, 1020), "the newer one counts"
    assert found.calibration is not None and found.calibration.id == "2" and "2026-11-02" in found.why


def test_another_gpu_is_scaled_by_the_peak_that_binds_and_ranges_to_the_other() -> None:
    """H100 to A100 (SXM, 80 GB): 989 / 312 TFLOPS = 3.1699; 3,350 / 2,039 GB/s = 1.6430."""
    found = told(work(), on("H100"), calibration(measured()))
    assert found.how == "scaled" and found.samples_per_second == pytest.approx(3169.87, abs=0.01)
    assert found.low == pytest.approx(1642.96 * 0.98, abs=0.01) and found.high == pytest.approx(3169.87 * 1.02, abs=0.01)
    assert "3.17 x peak matrix products" in found.why
    memory = told(work("recommender", RECOMMENDER), on("H100"), calibration(measured("recommender", RECOMMENDER)))
    assert memory.samples_per_second == pytest.approx(1642.96, abs=0.01) and "1.64 x peak memory bandwidth" in memory.why


def test_what_both_nodes_reach_counts_before_what_data_sheets_promise() -> None:
    base = calibration(measured(), figure("matmul_bf16", 250e12))
    near = calibration(figure("matmul_bf16", 600e12), model="H100")
    found = told(work(), on("H100"), base, near)
    assert found.samples_per_second == pytest.approx(2400) and "2.4 x measured matrix products" in found.why
    assert found.high == pytest.approx(2400 * 1.04 * 1.02), "their spreads are in the range"
    assert told(work(), on("H100"), base).samples_per_second == pytest.approx(3169.87, abs=0.01), "one alone tells no ratio"


def test_a_gpu_without_bf16_is_counted_in_fp16() -> None:
    """T4: 65 TFLOPS in fp16; 65 / 312."""
    found = told(work(), on("T4", form="pcie", gigabytes=16), calibration(measured()))
    assert (found.precision, found.how) == ("fp16", "scaled") and found.samples_per_second == pytest.approx(1000 * 65 / 312)


def test_other_settings_are_scaled_by_the_operations_of_a_sample() -> None:
    """A token: 6 x (6 x 12 x 384^2 + 64 x 384) + 12 x 6 x 384 x 256 = 70,926,336; of width 768: 269,254,656."""
    found = told(work(settings={**LANGUAGE, "width": 768}), on("A100"), calibration(measured()))
    assert found.how == "scaled" and found.samples_per_second == pytest.approx(1000 * 70_926_336 / 269_254_656)
    assert "3.8 x the operations of a sample (width)" in found.why
    other = told(work(batch=128), on("A100"), calibration(measured()))
    assert (other.how, other.samples_per_second) == ("scaled", 1000) and "at a batch of 64, not 128" in other.why


def test_more_gpus_than_were_measured_pay_for_the_exchange_of_gradients() -> None:
    """10,770,432 parameters: 7/8 x 8 bytes each over 231 GB/s, 14 hops of 5 us: 396 us, a third of the compute is hidden."""
    slow = told(work(), on("A100", 8), calibration(measured()))
    assert (slow.how, slow.samples_per_second) == ("scaled", pytest.approx(8000)), "behind 8 ms of compute it is hidden"
    fast = told(work(), on("A100", 8), calibration(measured(value=100_000.0)))
    compute, exchange = 64 / 8 / 100_000, 10_770_432 * 7 / 231e9 + 14 * 5e-6
    assert fast.samples_per_second == pytest.approx(64 / (compute + exchange - compute / 3))
    eight = told(work(), on("A100", 8), calibration(measured(value=6000.0), ranks=8), calibration(measured()))
    assert (eight.how, eight.samples_per_second) == ("measured", 6000), "as many GPUs count before one"


def test_without_a_measurement_a_share_of_the_peak_is_taken_and_has_no_range() -> None:
    """35 % of 312 TFLOPS over 256 x 70,926,336 operations."""
    found = told(work(), on("A100"))
    assert (found.how, found.low, found.high) == ("peak", None, None)
    assert found.samples_per_second == pytest.approx(0.35 * 312e12 / (256 * 70_926_336))
    held = told(work(), on("A100"), calibration(figure("matmul_bf16", 60e12)))
    assert held.samples_per_second == pytest.approx(60e12 / (256 * 70_926_336)), "no more than its own products reach"


def test_a_cpu_is_measured_on_its_own_node_and_nothing_is_scaled_from_it() -> None:
    base = calibration(replace(measured("recommender", RECOMMENDER), about={**measured("recommender", RECOMMENDER).about, "precision": "fp32"}), model=None)
    asked = work("recommender", RECOMMENDER)
    assert told(asked, Target(gpu=None, count=0, node="box"), base).how == "measured"
    assert estimate(asked, on("A100"), [base]) == "measured on a CPU, of which no peak figure is at hand to scale by"
    assert "no peak figure" in str(estimate(asked, Target(gpu=None, count=0, node="other"), [base]))


@pytest.mark.parametrize(
    ("asked", "target", "sentence"),
    [
        (work(batch=65), on("A100", 8), "a batch of 65 cannot be shared by 8 GPUs"),
        (work(precision="bf16"), on("T4", form="pcie", gigabytes=16), "the T4 has no bf16"),
        (work(precision="fp16"), Target(gpu=None, count=0, node="box"), "the CPU has no fp16"),
        (
            work("recommender", {**RECOMMENDER, "width": 32}), on("A100"),
            "measured on box with width=16, and width=32 is asked: not comparable",
        ),
        (work("vision", {"channels_last": True, "accumulate": 1, "model": "other"}), on("A100"), "the recipe vision was not measured on anything"),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_is_a_sentence(asked: Work, target: Target, sentence: str) -> None:
    assert str(estimate(asked, target, [calibration(measured(), measured("recommender", RECOMMENDER))])).startswith(sentence)


def test_a_model_that_no_gpu_of_a_type_holds_is_left_out_with_why() -> None:
    """48 layers of 4,096 are 9.7 billion parameters, 18 bytes each: 174 GB, or 22 GB on each of eight that share them."""
    large = {**LANGUAGE, "layers": 48, "width": 4096, "heads": 32}
    sentence = str(estimate(work(settings=large), on("A100", 8), [calibration(measured())]))
    assert sentence.startswith("needs more than 174.") and sentence.endswith("the A100 of 80 GB has room for 72.0 GB")
    assert told(work(settings={**large, "parallel": "fsdp"}), on("A100", 8)).how == "peak"


def test_a_way_of_sharing_that_was_not_measured_is_taken_from_the_peak() -> None:
    assert told(work(settings={**LANGUAGE, "parallel": "fsdp"}), on("A100"), calibration(measured())).how == "peak"


@pytest.mark.parametrize(
    ("name", "parameters", "products"), [("resnet18", 11_689_512, 1_814_073_344), ("resnet34", 21_797_672, 3_663_761_408), ("resnet50", 25_557_032, 4_089_184_256)]
)  # fmt: skip
def test_the_size_of_a_resnet_is_what_torchvision_publishes(name: str, parameters: int, products: int) -> None:
    """Its table of weights: 11,689,512 parameters and 1.81 GFLOPS (of multiply-and-adds) for resnet18, and so on."""
    size = size_of("vision", {"model": name, "image_size": 224, "classes": 1000})
    assert size is not None and (size.parameters, size.flops_per_sample) == (parameters, 6 * products)


def test_a_form_and_a_memory_are_read_from_the_drivers_words() -> None:
    for words, gigabytes, model, form in (
        ("NVIDIA A100-PCIE-40GB", 42, "A100", "pcie"), ("NVIDIA H100 NVL", 100, "H100", "nvl"), ("Tesla T4", 16, "T4", "pcie"),
        ("NVIDIA A10G", 24, "A10G", "pcie"), ("NVIDIA H200", 150, "H200", "sxm"),
    ):  # fmt: skip
        row = calibration(gpu=words, gpu_memory_bytes=gigabytes * 10**9).row
        assert row is not None and (row.model, row.form) == (model, form)
    assert calibration(gpu="NVIDIA Nothing 9000").row is None
