"""Which settings the next trial gets: planned, or learned from those that ended; none once the budget would not last.

Invariant: each trial has a number from 1, by which its folder and its lines are known; a state that is saved goes on.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ray import tune
from ray.tune.schedulers import ASHAScheduler
from ray.tune.search import Searcher

from agent.recipes.sweep_money import Money
from agent.recipes.sweep_plan import Plan, planned, rounded

MONEY: list[Money] = []
"""Of this process: a searcher is written to disk, and a clock cannot be."""
_DOMAINS: dict[str, Callable[[Any], Any]] = {
    "uniform": lambda of: tune.uniform(*of), "loguniform": lambda of: tune.loguniform(*of), "choice": tune.choice,
    "randint": lambda of: tune.randint(of[0], of[1] + 1),
}  # fmt: skip


class Search(Searcher):
    """Around the searchers of Ray Tune, and in their place where nothing learns."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(metric="metric", mode=plan.mode)
        self._plan = plan
        self._inner = _learning(plan)
        self._number = 0

    def set_search_properties(self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any) -> bool:
        return True

    def suggest(self, trial_id: str) -> Any:
        if self._number >= self._plan.trials or (MONEY and not MONEY[0].may_start()):
            return Searcher.FINISHED
        values = self._inner.suggest(trial_id) if self._inner else planned(self._plan, self._number + 1)
        if values is None:
            return Searcher.FINISHED if self._inner is None else None
        self._number += 1
        return {"number": self._number, "values": {key: _plain(value) for key, value in values.items()}}

    def on_trial_complete(self, trial_id: str, result: Mapping[str, Any] | None = None, error: bool = False) -> None:
        if self._inner is not None:
            bare = not result or "metric" not in result
            self._inner.on_trial_complete(trial_id, None if bare else result, error or bare)  # type: ignore[arg-type]

    def save(self, checkpoint_path: str) -> None:
        inner = None
        if self._inner is not None:
            with tempfile.TemporaryDirectory() as folder:
                self._inner.save(f"{folder}/inner")
                inner = Path(folder, "inner").read_bytes()
        Path(checkpoint_path).write_bytes(pickle.dumps((self._number, inner)))

    def restore(self, checkpoint_path: str) -> None:
        self._number, inner = pickle.loads(Path(checkpoint_path).read_bytes())  # noqa: S301 - of our own folder
        if self._inner is not None and inner is not None:
            with tempfile.TemporaryDirectory() as folder:
                Path(folder, "inner").write_bytes(inner)
                self._inner.restore(f"{folder}/inner")


class Asha(ASHAScheduler):  # type: ignore[misc]
    """By the trial's own steps; one that has come to its last step ends by itself: it judges what it learned, and saves."""

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        if result.get(self._time_attr, 0) >= self._max_t:
            return str(self.CONTINUE)
        return str(super().on_trial_result(tune_controller, trial, result))


def _learning(plan: Plan) -> Searcher | None:
    """Of Ray Tune; None for a search that is planned."""
    if plan.search not in ("optuna", "hyperopt"):
        return None
    space = {key: _DOMAINS[kind](values) for key, one in plan.space.items() for kind, values in one.items()}
    if plan.search == "optuna":
        import optuna
        from ray.tune.search.optuna import OptunaSearch

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        return OptunaSearch(OptunaSearch.convert_search_space(space), metric="metric", mode=plan.mode, seed=plan.seed)
    from ray.tune.search.hyperopt import HyperOptSearch

    converted = HyperOptSearch.convert_search_space(space)
    return HyperOptSearch(converted, metric="metric", mode=plan.mode, random_state_seed=plan.seed)


def _plain(value: Any) -> Any:
    """Of numpy's kinds, as JSON has them; rounded like all settings."""
    value = value.item() if hasattr(value, "item") else value
    return rounded(value) if isinstance(value, float) else value
