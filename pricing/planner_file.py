"""Reads a workload from TOML, strictly: every key by its type and unit, unknown and contradictory keys refused.

Invariant: a fault is one WorkloadError that names the file and the key and says what to do. A what-if is laid over the
workload before it is read, so that the same rules hold for it.

    name = "image-classifier"
    [model]
    parameters = "25.6M"
    flops_per_sample = "24.6 GFLOP"     # forward and backward; or tokens_per_sample: then 6 x parameters x tokens
    precision = "fp16"                  # fp32 tf32 fp16 bf16 fp8 int8
    fallback = "fp32"                   # taken where the hardware lacks it; without one such hardware does not fit
    optimizer = "sgd_momentum"          # none sgd sgd_momentum adam adamw adam_8bit lion
    activations_per_sample = "100MB"    # or layers, hidden, heads; or gpu_memory = "12GB" (measured, of one GPU)
    [train]
    samples = "1.28M"                   # or tokens = "10B"
    epochs = 90
    global_batch = 1024
    [data]
    size = "500GB"
    bytes_per_sample = "110kB"
    [checkpoint]
    size = "205MB"
    every = "30m"
    [run]
    deadline = "48h"
    interruptible = true
    [[measured]]
    gpu = "A100"
    samples_per_second = 2470           # or tokens_per_second; of `gpus` together (1 unless told)
    source = "our run of 2026-10-01"
    [limits]                            # clouds, regions, gpu_models, instance_types, purchases, max_nodes, gpus, budget ...
    [assume]                            # efficiency, overlap, ...
    [reference]                         # the hardware in mind: gpu_model, gpus, local_nvme
    [[prices]]                          # instance_type, cloud, region, purchase; usd_per_hour or factor
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from datetime import date
from fractions import Fraction
from pathlib import Path
from typing import Any

from pricing import planner_units as units
from pricing.catalog import CLOUDS
from pricing.errors import WorkloadError
from pricing.hardware import PRECISIONS, gpus
from pricing.offers import PURCHASES
from pricing.planner_reader import Table
from pricing.planner_workload import (
    OPTIMIZER_BYTES, RUNTIMES, TIERS, Assumed, Checkpoint, Data, Limits, Measured, Model, PriceChange, Reference, Run, Workload,
)  # fmt: skip
from pricing.toml_file import read_toml

EXAMPLES = Path(__file__).parent / "examples"


def example_names() -> list[str]:
    """The workloads that ship with the program."""
    return sorted(path.stem for path in EXAMPLES.glob("*.toml"))


def find(word: str) -> Path:
    """The file that is meant: a path, or the name of an example. WorkloadError: neither."""
    path = Path(word).expanduser()
    if path.is_file():
        return path
    if word in example_names():
        return EXAMPLES / f"{word}.toml"
    near = difflib.get_close_matches(word, example_names(), 1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(example_names())}."
    raise WorkloadError(f"{word}: no such file, and no example of that name; {hint}")


def table_of(path: Path) -> dict[str, Any]:
    """The file as TOML gives it."""
    return read_toml(path, WorkloadError)


def load(path: Path, over: Path | None = None) -> Workload:
    """The workload of a file, with the what-if of another laid over it."""
    if over is None:
        return read(table_of(path), str(path))
    return read(laid(table_of(path), table_of(over)), f"{path} under {over}")


def laid(table: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Keys of `over` take the place of those of `table`; of a list of tables, the whole list. `[[prices]]` are added."""
    merged = dict(table)
    for key, value in over.items():
        if isinstance(value, Mapping) and isinstance(merged.get(key), Mapping):
            merged[key] = laid(merged[key], value)
        elif key == "prices" and isinstance(value, list) and isinstance(merged.get(key), list):
            merged[key] = [*merged[key], *value]
        else:
            merged[key] = value
    return merged


def read(table: Mapping[str, Any], file: str = "workload") -> Workload:
    """From what TOML gives."""
    top = Table(file, "", table)
    model = _model(top.table("model", needed=True))
    samples, epochs, batch = _train(top.table("train", needed=True), model)
    workload = Workload(
        name=top.text("name") or Path(file).stem,
        note=top.text("note") or "",
        model=model,
        samples=samples,
        epochs=epochs,
        global_batch=batch,
        data=_data(top.table("data")) if top.has("data") else None,
        checkpoint=_checkpoint(top.table("checkpoint"), model),
        run=_run(top.table("run")),
        measured=tuple(_measured(one, model) for one in top.tables("measured")),
        limits=_limits(top.table("limits")),
        assumed=_assumed(top.table("assume")),
        reference=_reference(top.table("reference")) if top.has("reference") else None,
        prices=tuple(_price(one) for one in top.tables("prices")),
    )
    top.done()
    if model.flops_per_sample is None and not workload.measured:
        raise top.fault("model.flops_per_sample", "is missing: give it, or tokens_per_sample, or a [[measured]] throughput")
    return workload


def _model(table: Table) -> Model:
    table.either("gpu_memory", "activations_per_sample")
    table.either("activations_per_sample", "layers")
    table.either("activations_per_sample", "activation_checkpointing")
    parameters = table.need("parameters", units.count)
    task = table.word("task", ("train", "infer")) or "train"
    tokens = table.get("tokens_per_sample", units.count)
    flops = table.get("flops_per_sample", units.flops)
    if flops is None and tokens is not None:
        flops = (6 if task == "train" else 2) * parameters * tokens
    exchanged = table.get("exchanged_parameters", units.count)
    if exchanged is not None and exchanged > parameters:
        raise table.fault("exchanged_parameters", "is more than `parameters`")
    default = "none" if task == "infer" else "adam"
    sizes = {key: table.whole(key, most=10**6) for key in ("layers", "hidden", "heads")}
    if any(sizes.values()) and not (all(sizes.values()) and tokens):
        raise table.fault("layers", "is used only together with `hidden`, `heads` and `tokens_per_sample`: give them all")
    model = Model(
        parameters=parameters,
        precision=_precision(table, task),
        task=task,  # type: ignore[arg-type]
        fallback=table.word("fallback", PRECISIONS),
        flops_per_sample=flops,
        tokens_per_sample=tokens,
        exchanged_parameters=exchanged,
        gradient_bytes=table.whole("gradient_bytes", most=8) or 4,
        optimizer=table.word("optimizer", tuple(OPTIMIZER_BYTES)) or default,
        sharding=table.word("sharding", ("none", "full")) or "none",  # type: ignore[arg-type]
        gpu_memory_bytes=table.get("gpu_memory", units.size),
        activation_bytes_per_sample=table.get("activations_per_sample", units.size),
        activation_checkpointing=table.flag("activation_checkpointing"),
        memory_traffic_per_sample=table.get("memory_traffic_per_sample", units.size),
        **sizes,
    )
    table.done()
    if task == "infer" and model.optimizer != "none":
        raise table.fault("optimizer", f'is {model.optimizer}, but task = "infer" has none: leave one of them out')
    return model


def _precision(table: Table, task: str) -> str:
    precision = table.word("precision", PRECISIONS)
    if precision is None:
        raise table.fault("precision", f"is missing: one of {', '.join(PRECISIONS)}")
    if precision == "int8" and task == "train":
        raise table.fault("precision", 'is int8, in which nothing is trained: write task = "infer", or another precision')
    return precision


def _train(table: Table, model: Model) -> tuple[Fraction, Fraction, int | None]:
    table.either("samples", "tokens")
    epochs = table.get("epochs", units.count) or Fraction(1)
    samples = table.get("samples", units.count)
    tokens = table.get("tokens", units.count)
    if tokens is not None:
        if model.tokens_per_sample is None:
            raise table.fault("tokens", "needs `model.tokens_per_sample`: how many tokens one sample has")
        samples = tokens / model.tokens_per_sample
    if samples is None:
        raise table.fault("samples", "is missing: give it, or `tokens`")
    batch = table.whole("global_batch")
    if batch is None and model.task == "train":
        raise table.fault("global_batch", "is missing: how many samples one step takes over all GPUs")
    table.done()
    return samples * epochs, epochs, batch


def _data(table: Table) -> Data:
    cpu = table.get("cpu_ms_per_sample", units.number)
    data = Data(
        size_bytes=table.need("size", units.size),
        bytes_per_sample=table.need("bytes_per_sample", units.size),
        tiers=table.words("storage", TIERS) or TIERS,
        cloud=table.word("cloud", CLOUDS),
        region=table.text("region"),
        cpu_seconds_per_sample=None if cpu is None else cpu / 1000,
    )
    table.done()
    if data.region is not None and data.cloud is None:
        raise table.fault("region", "needs `cloud`: whose region it is")
    if data.bytes_per_sample > data.size_bytes:
        raise table.fault("bytes_per_sample", "is more than `size`: the whole of the data is smaller than one sample")
    return data


def _checkpoint(table: Table, model: Model) -> Checkpoint | None:
    if model.task == "infer":
        if table.has("size") or table.has("every"):
            raise table.fault("size", 'is of training: leave [checkpoint] out with task = "infer"')
        return None
    size = table.get("size", units.size)
    estimate = model.parameters * (4 + OPTIMIZER_BYTES[model.optimizer])
    found = Checkpoint(
        size_bytes=estimate if size is None else size,
        every_seconds=table.get("every", units.seconds),
        keep=table.whole("keep", most=10**6) or 2,
        asynchronous=table.flag("asynchronous"),
        estimated=size is None,
    )
    table.done()
    return found


def _run(table: Table) -> Run:
    default = Run()
    run = Run(
        deadline_seconds=table.get("deadline", units.seconds),
        startup_seconds=table.get("startup", units.seconds) or default.startup_seconds,
        interruptible=table.flag("interruptible"),
        changeover_seconds=table.get("changeover", units.seconds) or default.changeover_seconds,
        interruptions_per_hour=table.get("interruptions_per_hour", units.number),
        spot_wait_seconds=table.get("spot_wait", units.seconds),
        late_chance=table.get("late_chance", units.share) or default.late_chance,
    )
    for key in ("changeover", "interruptions_per_hour", "spot_wait", "late_chance"):
        if table.has(key) and not run.interruptible:
            raise table.fault(key, "is of interruptible work: write interruptible = true, or leave it out")
    table.done()
    return run


def _measured(table: Table, model: Model) -> Measured:
    table.either("samples_per_second", "tokens_per_second")
    rate = table.get("samples_per_second", units.count)
    tokens = table.get("tokens_per_second", units.count)
    if tokens is not None:
        if model.tokens_per_sample is None:
            raise table.fault("tokens_per_second", "needs `model.tokens_per_sample`: how many tokens one sample has")
        rate = tokens / model.tokens_per_sample
    if rate is None:
        raise table.fault("samples_per_second", "is missing: give it, or `tokens_per_second`")
    source = table.text("source")
    if source is None:
        raise table.fault("source", "is missing: who measured it, and where")
    as_of = table.raw("as_of")
    if as_of is not None and not isinstance(as_of, date):
        raise table.fault("as_of", "must be a date like 2026-10-01")
    found = Measured(
        gpu_model=_gpu_model(table, "gpu", table.text("gpu")),
        samples_per_second=rate,
        source=source,
        gpus=table.whole("gpus", most=100_000) or 1,
        precision=table.word("precision", PRECISIONS),
        gpu_memory_bytes=table.get("gpu_memory", units.size),
        as_of=as_of,
    )
    table.done()
    return found


def _gpu_model(table: Table, key: str, word: str | None) -> str:
    if word is None:
        raise table.fault(key, "is missing: the model of the GPU, like A100")
    return table.one_of(key, word, tuple(sorted({gpu.model for gpu in gpus()})))


def _limits(table: Table) -> Limits:
    default = Limits()
    models = tuple(_gpu_model(table, "gpu_models", one) for one in table.words("gpu_models"))
    found = Limits(
        clouds=table.words("clouds", CLOUDS),
        regions=tuple("".join(one.lower().split()) for one in table.words("regions")),
        gpu_models=models,
        instance_types=table.words("instance_types"),
        purchases=table.words("purchases", PURCHASES),
        runtimes=table.words("runtimes", RUNTIMES) or default.runtimes,
        max_nodes=table.whole("max_nodes", most=1024) or default.max_nodes,
        gpus=table.whole("gpus", most=100_000),
        local_nvme_bytes=table.get("local_nvme", units.size),
        budget_usd=table.get("budget", units.dollars),
    )
    table.done()
    return found


def _assumed(table: Table) -> Assumed:
    default = Assumed()
    found = Assumed(
        efficiency=table.get("efficiency", units.share),
        overlap=default.overlap if not table.has("overlap") else _overlap(table),
        link_efficiency=table.get("link_efficiency", units.share) or default.link_efficiency,
        network_efficiency=table.get("network_efficiency", units.share) or default.network_efficiency,
        memory_reserve=table.get("memory_reserve", units.share) or default.memory_reserve,
    )
    table.done()
    return found


def _overlap(table: Table) -> Fraction:
    found = table.need("overlap", units.number)
    if found > 1:
        raise table.fault("overlap", f"is {float(found):g}: it must be from 0 to 1")
    return found


def _reference(table: Table) -> Reference:
    found = Reference(
        gpu_model=_gpu_model(table, "gpu_model", table.text("gpu_model")),
        gpus=table.whole("gpus", most=100_000) or 1,
        local_nvme_bytes=table.get("local_nvme", units.size),
    )
    table.done()
    return found


def _price(table: Table) -> PriceChange:
    table.either("usd_per_hour", "factor")
    found = PriceChange(
        instance_type=table.text("instance_type") or "*",
        cloud=table.word("cloud", CLOUDS),
        region=table.text("region"),
        purchase=table.word("purchase", PURCHASES),
        usd_per_hour=table.get("usd_per_hour", units.dollars),
        factor=table.get("factor", units.count),
    )
    table.done()
    if found.usd_per_hour is None and found.factor is None:
        raise table.fault("usd_per_hour", "is missing: give it, or `factor`")
    return found
