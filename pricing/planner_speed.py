"""How fast a workload runs on some GPUs: the speed of one, the exchange of gradients between them, the step they make.

Invariant: measured throughput counts where there is one, else one scaled from a measured GPU by peak figures, else peak
figures with a stated efficiency; the answer says which. More bandwidth of any kind is never slower.

One step takes ceil(B / G) samples on each of G GPUs, then the exchange of S bytes of gradients in a ring, which moves
2 (G - 1) / G x S bytes through the slowest link (Patarasuk and Yuan, JPDC 2009; nccl-tests doc/PERFORMANCE.md). Of it,
`overlap` of the backward pass (2/3 of the last micro-batch's compute) is hidden. Fully sharded weights are gathered twice and
their gradients reduced once in every micro-batch (ZeRO, SC 2020, section 7), hidden behind `overlap` of the whole compute.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil, log
from typing import Literal, NamedTuple

from pricing.hardware import PCIE_NEW, PCIE_OLD, Gpu, Wiring, gpus
from pricing.planner_memory import HALF
from pricing.planner_workload import Assumed, Measured, Model, Workload

VECTOR_EFFICIENCY = Fraction(1, 2)
"""Without matrix cores. ResNet-50 in fp32 on V100: 367 img/s x 24.6 GFLOP = 57 % of 15.7 TFLOPS (NVIDIA/DeepLearningExamples)."""
TOKEN_EFFICIENCY = Fraction(35, 100)
"""Transformers on matrix cores. Llama 3 8B, H100, FP8: 711 of 1979 TFLOPS = 36 % (NeMo 24.12); GPT-2 1.2B, V100: 48 %
(Megatron-LM v1.0); older: Transformer-XL base, V100 34 %, A100 22 % (DeepLearningExamples)."""
OTHER_EFFICIENCY = Fraction(20, 100)
"""Anything else on matrix cores. ResNet-50: A100 2470 img/s = 19 %, V100 1200 img/s = 24 % of the peak (DeepLearningExamples)."""
MEMORY_EFFICIENCY = 0.6
"""Of a GPU's memory bandwidth, for scattered reads (embeddings): an assumption."""
BACKWARD_SHARE = 2 / 3
RECOMPUTE = 4 / 3
"""Activation checkpointing computes the forward pass twice."""
LINK_SECONDS, EFA_SECONDS, TCP_SECONDS = 5e-6, 20e-6, 50e-6
"""Latency of one of the 2 (G - 1) hops of a ring: assumptions."""
How = Literal["measured", "scaled", "peak"]


class Speed(NamedTuple):
    """Of one GPU (or the part of one that the type has)."""

    samples_per_second: float
    how: How
    efficiency: float | None
    """Of the peak; None where the operations of a sample are not known."""
    peak_flops: float | None
    source: str
    measured_gpus: int = 1
    """On how many together it was measured: an exchange among so many is within it."""


class Exchange(NamedTuple):
    """Of the gradients (or the sharded weights) of one step."""

    bytes_moved: float
    """Through each GPU's link."""
    bytes_per_second: float
    bottleneck: str
    seconds: float
    hidden_seconds: float

    @property
    def exposed_seconds(self) -> float:
        return max(0.0, self.seconds - self.hidden_seconds)


class Step(NamedTuple):
    """Of the whole job: `samples` on `gpus`, in `compute_seconds`, then the exposed exchange."""

    samples: int
    gpus: int
    samples_per_gpu: int
    micro_batches: int
    compute_seconds: float
    exchange: Exchange | None

    @property
    def seconds(self) -> float:
        return self.compute_seconds + (self.exchange.exposed_seconds if self.exchange else 0.0)


NO_PRECISION = "the {gpu} has no {precision}"


def precision_on(model: Model, gpu: Gpu) -> tuple[str, str | None]:
    """(the precision it runs in, why it is another than asked for). ValueError: none of them, as a sentence."""
    if not gpu.lacks(model.precision):
        return model.precision, None
    lack = NO_PRECISION.format(gpu=gpu.model, precision=model.precision)
    if model.precision == "tf32":
        return "fp32", f"{lack}: it computes in fp32"
    if model.fallback is None:
        raise ValueError(f"{lack}; `fallback` may name another precision")
    if gpu.lacks(model.fallback):
        raise ValueError(f"{lack}, and no {model.fallback} either")
    return model.fallback, f"{lack}: it falls back to {model.fallback}"


def speed_of(workload: Workload, gpu: Gpu, precision: str, part: float, used: int, memory_bytes: float) -> Speed | str:
    """On one GPU, or on the `part` of it that the type has; `used`: how many in all. A text: why it cannot be told."""
    peak = gpu.flops.get(precision)
    own = _best_measured(workload, gpu, precision, used, memory_bytes)
    flops = None if workload.model.flops_per_sample is None else float(workload.model.flops_per_sample)
    if own is not None:
        rate = float(own.samples_per_second) / own.gpus * part
        efficiency = rate * flops / (peak * part) if flops and peak else None
        return Speed(rate, "measured", efficiency, peak, own.source, own.gpus)
    if peak is None:
        return f"no peak figure of the {gpu.model} in {precision} is at hand: a [[measured]] throughput would do"
    base = None if workload.assumed.efficiency is not None else _scaled(workload, gpu, precision)
    if base is not None:
        return _limited(
            Speed(base[0] * part, "scaled", base[0] * flops / peak if flops else None, peak, base[1]), workload, gpu, part
        )
    if flops is None:
        return "nothing tells its speed: neither flops_per_sample nor a measurement to scale from"
    efficiency, why = efficiency_of(workload, gpu, precision)
    if workload.model.activation_checkpointing:
        flops *= RECOMPUTE
        why += ", a third more computed for activation checkpointing"
    speed = Speed(peak * part * float(efficiency) / flops, "peak", float(efficiency), peak, why)
    return _limited(speed, workload, gpu, part)


def efficiency_of(workload: Workload, gpu: Gpu, precision: str) -> tuple[Fraction, str]:
    """The share of the peak that is counted, and why."""
    if workload.assumed.efficiency is not None:
        return workload.assumed.efficiency, f"{float(workload.assumed.efficiency):.0%} of the peak (stated in [assume])"
    if precision == "fp32" or not gpu.matrix:
        return VECTOR_EFFICIENCY, f"{float(VECTOR_EFFICIENCY):.0%} of the peak, as ResNet-50 in fp32 on V100"
    if workload.model.tokens_per_sample is not None:
        return TOKEN_EFFICIENCY, f"{float(TOKEN_EFFICIENCY):.0%} of the peak, as published for transformers"
    return OTHER_EFFICIENCY, f"{float(OTHER_EFFICIENCY):.0%} of the peak, as published for ResNet-50"


def _limited(speed: Speed, workload: Workload, gpu: Gpu, part: float) -> Speed:
    """Not faster than the memory of the GPU gives what a sample reads and writes."""
    traffic = workload.model.memory_traffic_per_sample
    if traffic is None or gpu.memory_bytes_per_second is None:
        return speed
    limit = gpu.memory_bytes_per_second * part * MEMORY_EFFICIENCY / float(traffic)
    if limit >= speed.samples_per_second:
        return speed
    why = f"{speed.source}; limited by the GPU's memory ({MEMORY_EFFICIENCY:.0%} of {gpu.memory_bytes_per_second / 1e9:,.0f} GB/s)"
    return speed._replace(samples_per_second=limit, source=why)


def _best_measured(workload: Workload, gpu: Gpu, precision: str, used: int, memory_bytes: float) -> Measured | None:
    """On this model and precision; of several the one on the fewest GPUs that are not less than `used`, else on the most."""
    fit = [
        one
        for one in workload.measured
        if one.gpu_model == gpu.model
        and (one.precision or workload.model.precision) == precision
        and (one.gpu_memory_bytes is None or abs(float(one.gpu_memory_bytes) - memory_bytes) < 0.15 * memory_bytes)
    ]
    return min(fit, key=lambda one: (one.gpus < used, abs(one.gpus - used), one.samples_per_second), default=None)


def _scaled(workload: Workload, gpu: Gpu, precision: str) -> tuple[float, str] | None:
    """One GPU's rate, from the measured one that is nearest: in precision first, then in kind of cores, then in peak.

    By the smaller of the ratios of peak and of memory bandwidth: ResNet-50 from V100 to A100 comes out at 2,082 img/s so,
    2,470 were measured; by the peak alone 2,995 would.
    """
    best: tuple[tuple[bool, bool, float, int, int], float, str] | None = None
    for place, one in enumerate(workload.measured):
        measured_in = one.precision or workload.model.precision
        base = _measured_gpu(one, measured_in)
        if base is None:
            continue
        ratio, words = _ratio(gpu, precision, base, measured_in)
        vector, other = precision == "fp32" or not gpu.matrix, measured_in == "fp32" or not base.matrix
        peaks = (gpu.flops[precision] or 0.0) / (base.flops[measured_in] or 1.0)
        rank = (measured_in != precision, vector != other, abs(log(peaks)), one.gpus, place)
        if best is None or rank < best[0]:
            rate = float(one.samples_per_second) / one.gpus * ratio
            best = (rank, rate, f"from the {one.gpu_model} by {words} ({one.source})")
    return None if best is None else (best[1], best[2])


def _ratio(gpu: Gpu, precision: str, base: Gpu, measured_in: str) -> tuple[float, str]:
    """How much faster a GPU is counted than one that was measured, and by what."""
    peaks = (gpu.flops[precision] or 0.0) / (base.flops[measured_in] or 1.0)
    if gpu.memory_bytes_per_second and base.memory_bytes_per_second:
        memory = gpu.memory_bytes_per_second / base.memory_bytes_per_second
        if memory < peaks:
            return (
                memory,
                f"memory bandwidth, {base.memory_bytes_per_second / 1e9:,.0f} to {gpu.memory_bytes_per_second / 1e9:,.0f} GB/s",
            )
    before, after = (base.flops[measured_in] or 0) / 1e12, (gpu.flops[precision] or 0) / 1e12
    return peaks, f"peak, {measured_in} {before:g} to {precision} {after:g} TFLOPS"


def _measured_gpu(one: Measured, precision: str) -> Gpu | None:
    """The row of the GPU that was measured: of the memory told, else the form with the highest peak and the least memory."""
    found = [gpu for gpu in gpus() if gpu.model == one.gpu_model and gpu.flops.get(precision)]
    if one.gpu_memory_bytes is not None:
        near = float(one.gpu_memory_bytes)
        found = [gpu for gpu in found if abs(gpu.memory_bytes - near) < 0.15 * near] or found
    return max(found, key=lambda gpu: (gpu.flops[precision] or 0.0, -gpu.memory_bytes), default=None)


def link_of(gpu: Gpu, wiring: Wiring, per_node: int, assumed: Assumed) -> tuple[float, str]:
    """Bytes per second that a ring among a node's GPUs gives each of them, and over what."""
    if gpu.link_bytes_per_second and (wiring.inside == "link" or (wiring.inside == "pairs" and per_node <= 2)):
        return gpu.link_bytes_per_second * float(
            assumed.link_efficiency
        ), "NVLink" if gpu.runtime == "cuda" else "Infinity Fabric"
    return (PCIE_NEW if (gpu.compute_capability or 8.0) >= 8.0 else PCIE_OLD), "PCIe"


def exchange_of(
    workload: Workload, gpu: Gpu, wiring: Wiring, nodes: int, per_node: int, precision: str, compute: float, micro: int
) -> Exchange | None:
    """Between `nodes` x `per_node` GPUs, in one step of `compute` seconds and `micro` micro-batches. None: nothing to exchange.

    The network's speed must be known for more than one node.
    """
    ranks, model, assumed = nodes * per_node, workload.model, workload.assumed
    if ranks < 2 or model.task == "infer":
        return None
    rate, where = link_of(gpu, wiring, per_node, assumed)
    latency = LINK_SECONDS
    if nodes > 1:
        network = (wiring.network_bytes_per_second or 0.0) * float(assumed.network_efficiency)
        latency = TCP_SECONDS if wiring.network == "tcp" else EFA_SECONDS
        if per_node == 1 or network < rate:
            rate, where = network, _network_name(wiring)
    size = float(model.exchanged_parameters or model.parameters)
    if model.sharding == "full":
        rounds, each = 3 * micro, micro * (2 * (2 if precision in HALF else 4) + model.gradient_bytes)
        behind = compute
    else:
        rounds, each = 2, 2 * model.gradient_bytes
        behind = BACKWARD_SHARE * compute / micro
    moved = (ranks - 1) / ranks * size * each
    seconds = moved / rate + rounds * (ranks - 1) * latency
    return Exchange(moved, rate, where, seconds, float(assumed.overlap) * behind)


def _network_name(wiring: Wiring) -> str:
    name = {"efa": "EFA", "infiniband": "InfiniBand", "gpudirect": "GPUDirect-TCPX", "tcp": "Ethernet"}[wiring.network]
    return f"{name} {(wiring.network_bytes_per_second or 0) * 8 / 1e9:g} Gbit/s"


def step_of(
    workload: Workload, gpu: Gpu, wiring: Wiring, speed: Speed, nodes: int, per_node: int, precision: str, fits: int | None
) -> Step:
    """One step on all GPUs. `fits`: samples of a micro-batch that fit into one GPU's memory; None: not known."""
    ranks = nodes * per_node
    batch = workload.global_batch or ranks
    each = ceil(batch / ranks)
    micro = 1 if fits is None or fits >= each else ceil(each / fits)
    compute = each / speed.samples_per_second
    within = nodes == 1 and speed.how == "measured" and speed.measured_gpus >= per_node and _same_link(gpu, wiring, per_node)
    exchange = None if within else exchange_of(workload, gpu, wiring, nodes, per_node, precision, compute, micro)
    return Step(batch, ranks, each, micro, compute, exchange)


def _same_link(gpu: Gpu, wiring: Wiring, per_node: int) -> bool:
    """Measured on several: on NVLink, where the model has it."""
    return not gpu.link_bytes_per_second or wiring.inside == "link" or (wiring.inside == "pairs" and per_node <= 2)
