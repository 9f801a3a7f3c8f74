"""The curves of a training as TensorBoard reads them, beside its JSON lines.

Invariant: what a training that was killed had written after its last checkpoint is hidden by the run that goes on from there
(`purge_step`): a curve has one value a step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FOLDER = "tensorboard"


class Scalars:
    """Writes into `folder`; without the package `tensorboard` it does nothing, and `error` says so where it was asked for."""

    def __init__(self, wanted: str, beside: Path, step: int, *, speaks: bool) -> None:
        self.error = ""
        self._writer: Any = None
        if wanted == "off" or not speaks:
            return
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            if wanted != "auto":
                self.error = "--tensorboard: tensorboard is not installed here (`pip install tensorboard`): no curves are written"
            return
        folder = beside / FOLDER if wanted == "auto" else Path(wanted)
        try:
            self._writer = SummaryWriter(str(folder), purge_step=step + 1, max_queue=100, flush_secs=10)
        except OSError as error:
            self.error = f"--tensorboard {folder}: curves cannot be written there ({error.strerror})"

    def add(self, step: int, values: Mapping[str, object]) -> None:
        """Those of them that are finite numbers."""
        for name, value in values.items():
            if self._writer is not None and isinstance(value, (int, float)) and math.isfinite(value):
                self._write(name, value, step)

    def _write(self, name: str, value: float, step: int) -> None:
        try:
            self._writer.add_scalar(name, value, step)
        except OSError as error:  # a full disk ends the curve, not the training
            self.error, self._writer = f"TensorBoard's curves end here: {error.strerror}", None

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
