"""A trial as Ray Tune sees it: an actor that holds the trial's process and hands its reports on.

Invariant: what a trial costs and which GPUs it sees comes from the node that it runs on.
"""

from __future__ import annotations

import os
import socket
from decimal import Decimal
from pathlib import Path
from typing import Any

from ray import tune

from agent.recipes.sweep_plan import FILE, Plan, read
from agent.recipes.sweep_process import Running

WORK = "RACKRATE_SWEEP_WORK"
"""The folder of what was sent along, on this node."""
CPUS = "RACKRATE_SWEEP_CPUS"
RATE = "RACKRATE_USD_PER_HOUR"
CHECKPOINTS = "RACKRATE_CHECKPOINT_DIR"
GPUS = "RACKRATE_SWEEP_GPUS"


class Trial(tune.Trainable):
    """One actor; it may run several trials, one after the other."""

    def setup(self, config: dict[str, Any]) -> None:
        """Starts nothing: Tune may give the trial to another actor that is free sooner, and still set this one up."""
        self._plan = read(Path(os.environ[WORK]) / FILE)
        self._rate = usd_per_hour(self._plan)
        self._config, self._failed = config, False
        self._run: Running | None = None

    def step(self) -> dict[str, Any]:
        """A fault is told in one report and raised in the next: so the driver knows it from a lost node."""
        if self._failed:
            raise RuntimeError("the trial's process failed")
        run = self._run = self._run or self._started()
        told = run.next()
        self._failed = "failed" in told
        return {
            **told, "done": "ended" in told, "usd_per_hour": "" if self._rate is None else str(self._rate),
            "pid_of_trial": run.pid, "node": socket.gethostname(), "on_gpus": os.environ.get("CUDA_VISIBLE_DEVICES", ""),
        }  # fmt: skip

    def _started(self) -> Running:
        work, checkpoints = Path(os.environ[WORK]), Path(os.environ[CHECKPOINTS])
        return Running(self._plan, self._config["number"], self._config["values"], work=work, checkpoints=checkpoints)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.cleanup()
        self.setup(new_config)
        return True

    def cleanup(self) -> None:
        if self._run is not None:
            self._run.end()


def usd_per_hour(plan: Plan) -> Decimal | None:
    """A trial's part of what the job costs on this node; None: not known."""
    text = os.environ.get(RATE)
    if not text:
        return None
    held, of = (plan.gpus, os.environ[GPUS]) if plan.gpus else (plan.cpus, os.environ[CPUS])
    return Decimal(text) * Decimal(str(held)) / Decimal(of) if Decimal(of) else None
