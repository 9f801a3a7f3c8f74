"""What a sweep is, as the client has checked it and sent it along, and the settings of each trial where nothing learns.

Invariant: trial N of a random or grid search has the same settings whenever and wherever it is asked for.
"""

from __future__ import annotations

import itertools
import json
import math
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from decimal import Decimal
from pathlib import Path
from typing import Any

from agent.recipes.faults import WrongSettings

FILE = "sweep.json"
MAY_CHANGE = ("budget", "reserve_seconds", "at_once", "nodes")
"""Of a sweep that goes on."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One sweep."""

    name: str
    metric: str
    mode: str
    trials: int
    at_once: int
    cpus: float
    gpus: float
    """Of each trial."""
    nodes: int
    search: str
    scheduler: str
    grace: int
    reduction: float
    max_steps: int | None
    """Of a trial; None: not known, and nothing is stopped early."""
    budget: str | None
    reserve_seconds: float
    """So long before the budget's end the job is told to stop: trials that would still run then are not worth their start."""
    seed: int
    space: Mapping[str, Mapping[str, Sequence[Any]]]
    """Key -> {kind: values}."""
    command: tuple[str, ...]
    """Of a trial, with `{key}` where a value of the space goes, and `{python}`."""
    train: tuple[str, ...]
    """The command line that trains the best one, alike; none where there is no shorter one than `command`."""

    @property
    def budget_usd(self) -> Decimal | None:
        return None if self.budget is None else Decimal(self.budget)

    def same(self) -> dict[str, Any]:
        """What has to be the same where a sweep goes on."""
        return {one.name: _plain(getattr(self, one.name)) for one in fields(self) if one.name not in MAY_CHANGE}

    def better(self, one: float, other: float) -> bool:
        return one < other if self.mode == "min" else one > other


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value))


def read(path: Path) -> Plan:
    """Raises `WrongSettings`."""
    try:
        raw = json.loads(path.read_text("utf-8"))
        return Plan(**{**raw, "command": tuple(raw["command"]), "train": tuple(raw["train"])})
    except OSError as error:
        raise WrongSettings(f"{path}: {(error.strerror or str(error)).lower()}.") from None
    except (ValueError, TypeError, KeyError, AttributeError):
        raise WrongSettings(f"{path} is no sweep as this version of `rackrate sweep` writes it.") from None


def filled(words: Sequence[str], values: Mapping[str, Any]) -> list[str]:
    """The words with the values in the place of `{key}`; other braces stay."""
    names = re.compile("{(" + "|".join(map(re.escape, values)) + ")}") if values else None
    return [names.sub(lambda found: text(values[found[1]]), word) if names else word for word in words]


def text(value: object) -> str:
    """As a command line has it."""
    return str(value).lower() if isinstance(value, bool) else f"{value:.6g}" if isinstance(value, float) else str(value)


def planned(plan: Plan, number: int) -> dict[str, Any] | None:
    """Settings of trial `number` (from 1) of a random or grid search; None: there are no more."""
    if number > plan.trials:
        return None
    if plan.search == "grid":
        choices = [next(iter(one.values())) for one in plan.space.values()]
        chosen = next(itertools.islice(itertools.product(*choices), number - 1, None), None)
        return None if chosen is None else dict(zip(plan.space, chosen, strict=True))
    chance = random.Random(f"{plan.seed}-{number}")
    return {key: _drawn(chance, *next(iter(one.items()))) for key, one in plan.space.items()}


def _drawn(chance: random.Random, kind: str, values: Sequence[Any]) -> Any:
    if kind == "choice":
        return chance.choice(values)
    low, high = values
    if kind == "randint":
        return chance.randint(low, high)
    if kind == "uniform":
        return rounded(chance.uniform(low, high))
    return rounded(math.exp(chance.uniform(math.log(low), math.log(high))))


def rounded(value: float) -> float:
    """To the digits that a command line shows, so that the trial and the line that trains it again are the same."""
    return float(f"{value:.6g}")
