"""What a sweep says: a JSON line for each thing that happens to a trial, and the best one at the end.

Invariant: a trial's last line tells how it ended, with what all its runs took; a line is a fact of one trial or of the whole.
"""

from __future__ import annotations

import shlex
import signal
import time
from collections.abc import Mapping
from typing import Any

from ray.tune import Callback

from agent.recipes.journal import Journal
from agent.recipes.sweep_money import Money, cost
from agent.recipes.sweep_plan import Plan, filled

EVERY_SECONDS = 1.0
"""A report of a trial at most so often, beside the first one."""
_FACTS = ("step", "metric", "node", "on_gpus")


class Teller(Callback):
    """Of Ray Tune's events; also keeps the money's account of each trial."""

    def __init__(self, plan: Plan, money: Money, journal: Journal, asked: Mapping[str, bool]) -> None:
        self._plan, self._money, self._journal, self._asked = plan, money, journal, asked
        self._told: dict[str, float] = {}
        self._last: dict[str, Mapping[str, Any]] = {}
        self._open: dict[str, Any] = {}

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        if self._asked:
            signal.raise_signal(signal.SIGUSR1)  # Ray Tune's own, which listens by now: saves its state and ends

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._open[trial.trial_id] = trial
        self._last.pop(trial.trial_id, None)
        self._line(trial, "started", config=trial.config["values"], gpus=self._plan.gpus, cpus=self._plan.cpus)

    def on_trial_result(self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any) -> None:
        if "failed" in result and not result["killed"]:
            trial.max_failures = 0  # its own fault: not run again, as one that was lost
        self._last[trial.trial_id] = dict(result)
        seconds = result["run_seconds"]
        self._money.runs(trial.config["number"], seconds, cost(result.get("usd_per_hour"), seconds))
        now = time.monotonic()
        if "metric" in result and now - self._told.get(trial.trial_id, -EVERY_SECONDS) >= EVERY_SECONDS:
            self._told[trial.trial_id] = now
            self._line(trial, "reported", **self._facts(trial.config["number"], result))

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        last = self._last.get(trial.trial_id, trial.last_result)
        self._over(trial, "ended" if last.get("ended") else "stopped early")

    def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        killed = self._last.get(trial.trial_id, {}).get("failed")
        cause = f"it was killed ({killed})" if killed else "its node was lost"
        self._over(trial, "lost", why=f"{cause}; it is run again, once")

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        why = self._last.get(trial.trial_id, {}).get("failed")
        self._over(trial, "failed" if why else "lost", why=why or "its node was lost")

    def stopped(self) -> None:
        """What ran when the sweep was stopped: it goes on from its own checkpoint when the sweep does."""
        for trial in list(self._open.values()):
            self._over(trial, "stopped", ended=False)

    def _over(self, trial: Any, state: str, *, ended: bool = True, **more: Any) -> None:
        self._open.pop(trial.trial_id, None)
        number, last = trial.config["number"], self._last.get(trial.trial_id, {})
        self._money.over(number, ended=ended and state != "lost")
        self._line(trial, state, config=trial.config["values"], **self._facts(number, last), **more)

    def _facts(self, number: int, result: Mapping[str, Any]) -> dict[str, Any]:
        """What a line tells of a report."""
        paid, earlier = self._money.paid(number), self._money.earlier(number)
        told = {name: result[name] for name in _FACTS if result.get(name) not in (None, "")}
        told |= {} if earlier is None else {"earlier": str(earlier)}
        return {**told, "seconds": round(paid.seconds, 3), "cost": None if paid.usd is None else str(paid.usd)}

    def _line(self, trial: Any, state: str, **values: Any) -> None:
        self._journal.line(event="trial", trial=trial.config["number"], state=state, **values)

    # Of the whole

    def kept(self, result: Any) -> None:
        """A trial that ended before the sweep was stopped."""
        last, number = result.metrics or {}, result.config["number"]
        state = "failed" if result.error else "ended" if last.get("ended") else "stopped early"
        told = {"trial": number, "state": state, "config": result.config["values"], **self._facts(number, last)}
        self._journal.line(event="trial", kept=True, **told)

    def best(self, results: list[Any]) -> None:
        """With the command line that trains it."""
        known = [one for one in results if one.metrics and "metric" in one.metrics and not one.error]
        if not known:
            self._journal.line(event="best", trial=None, why="no trial has ended with a metric")
            return
        sign = 1 if self._plan.mode == "min" else -1
        best = min(known, key=lambda one: (sign * one.metrics["metric"], one.config["number"]))
        argv = filled(self._plan.command, {"python": "python3", **best.config["values"]})
        command = filled(self._plan.train, best.config["values"]) or argv
        self._journal.line(
            event="best", trial=best.config["number"], metric=best.metrics["metric"], step=best.metrics.get("step"),
            config=best.config["values"], command=shlex.join(command),
        )  # fmt: skip
