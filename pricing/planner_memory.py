"""What one GPU has to hold, and how many samples at a time fit beside it.

Invariant: an estimate is the sum of named parts whose formula is told; where a part is not known it is None and room is kept
for it. Sizes in bytes.
Sources: ZeRO (Rajbhandari et al., SC 2020, section 3) for weights, gradients and optimizer state; Korthikanti et al. 2022,
section 4.1, for activations of transformer layers: s b h (34 + 5 a s / h) bytes a layer, 2 s b h with checkpointing.
"""

from __future__ import annotations

from fractions import Fraction
from math import floor
from typing import NamedTuple

from pricing.planner_workload import OPTIMIZER_BYTES, Model

HALF = ("fp16", "bf16", "fp8", "int8")
WEIGHT_BYTES = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1}
UNKNOWN_ACTIVATIONS = Fraction(1, 4)
"""Of the memory, kept free where nothing tells how much the activations need."""


class Memory(NamedTuple):
    """Of one GPU. `samples`: how many at a time (a micro-batch) fit; None where their size is not known."""

    weights_bytes: float
    gradients_bytes: float
    optimizer_bytes: float
    activations_bytes_per_sample: float | None
    stated_bytes: float | None
    """What the workload states that a GPU needs; then nothing is estimated."""
    room_bytes: float
    """Of the GPU, less the reserve."""
    samples: int | None
    formula: str

    @property
    def fixed_bytes(self) -> float:
        return self.weights_bytes + self.gradients_bytes + self.optimizer_bytes


def memory_of(model: Model, precision: str, ranks: int, gpu_bytes: float, reserve: Fraction) -> Memory:
    """On a GPU of `gpu_bytes`, one of `ranks`."""
    room = gpu_bytes * float(1 - reserve)
    if model.gpu_memory_bytes is not None:
        return Memory(0.0, 0.0, 0.0, None, float(model.gpu_memory_bytes), room, None, "stated by the workload (gpu_memory)")
    parameters = float(model.parameters) / (ranks if model.sharding == "full" else 1)
    weights, gradients, state, formula = _bytes_per_parameter(model, precision)
    fixed = parameters * (weights + gradients + state)
    each = _activations(model, precision)
    kept = room - fixed - (gpu_bytes * float(UNKNOWN_ACTIVATIONS) if each is None and model.task == "train" else 0.0)
    samples = max(0, floor(kept / each)) if each else None
    if each is None and kept < 0:
        samples = 0
    if model.sharding == "full":
        formula += f", shared by {ranks} GPUs"
    return Memory(
        parameters * weights,
        parameters * gradients,
        parameters * state,
        each,
        None,
        room,
        samples,
        formula + _told(model, each),
    )


def _bytes_per_parameter(model: Model, precision: str) -> tuple[int, int, int, str]:
    """Weights, gradients, optimizer state, and how they are counted."""
    if model.task == "infer":
        weights = WEIGHT_BYTES[precision]
        return weights, 0, 0, f"{weights} B a parameter for {precision} weights"
    state = OPTIMIZER_BYTES[model.optimizer]
    weights = 6 if precision in HALF else 4
    words = "4 B fp32 weights + 2 B half copy" if precision in HALF else "4 B weights"
    return weights, 4, state, f"{words} + 4 B gradients + {state} B {model.optimizer} state a parameter"


def _activations(model: Model, precision: str) -> float | None:
    if model.activation_bytes_per_sample is not None:
        return float(model.activation_bytes_per_sample)
    if not (model.layers and model.hidden and model.heads and model.tokens_per_sample):
        return None
    length = float(model.tokens_per_sample)
    if model.activation_checkpointing:
        return 2 * length * model.hidden * model.layers
    each = length * model.hidden * (34 + 5 * model.heads * length / model.hidden) * model.layers
    return each if precision in HALF else 2 * each


def _told(model: Model, each: float | None) -> str:
    if each is None:
        return "; activations not told: a quarter of the memory is kept for them" if model.task == "train" else ""
    how = "as stated" if model.activation_bytes_per_sample is not None else "Korthikanti et al. 2022"
    return f"; activations {each / 1e6:,.0f} MB a sample ({how})"


def misfit(memory: Memory, model_name: str) -> str | None:
    """Why it does not fit, as a sentence; None when it does."""
    need = memory.stated_bytes
    if need is not None:
        if need <= memory.room_bytes:
            return None
        return f"needs {_gb(need)} on each GPU; the {model_name} has room for {_gb(memory.room_bytes)}"
    if memory.samples is None or memory.samples >= 1:
        return None
    need = memory.fixed_bytes + (memory.activations_bytes_per_sample or 0)
    what = (
        "weights, gradients, optimizer and one sample"
        if memory.activations_bytes_per_sample
        else "weights and state beside room for activations"
    )
    return f"needs more than {_gb(need)} on each GPU ({what}); the {model_name} has room for {_gb(memory.room_bytes)}"


def _gb(value: float) -> str:
    return f"{value / 1e9:,.1f} GB"
