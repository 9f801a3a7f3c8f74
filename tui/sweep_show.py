"""The trials of a sweep, gathered from the lines that it wrote, and what each of them and the rest of the job cost.

Invariant: what the trials and the idle rest cost is together what the job cost, to the last digit that the node told; a trial
whose price is not known costs None. Lines of another kind are passed over.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec

STATES = ("started", "reported", "stopped early", "ended", "failed", "lost", "stopped")
_SIGNIFICANT = 6


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """As its newest line tells it."""

    number: int
    state: str
    config: dict[str, Any]
    metric: float | None = None
    step: int | None = None
    seconds: float | None = None
    cost: Decimal | None = None
    """Of all its runs."""
    earlier: Decimal | None = None
    """Of its cost: in other jobs, before the sweep was stopped."""
    gpus: float | None = None
    node: str | None = None
    why: str | None = None

    @property
    def runs(self) -> bool:
        return self.state in ("started", "reported")


class Swept(msgspec.Struct, frozen=True, kw_only=True):
    """A sweep as far as its lines tell."""

    name: str | None = None
    metric: str | None = None
    mode: str = "min"
    wanted: int | None = None
    search: str | None = None
    nodes: int | None = None
    trials: tuple[Trial, ...] = ()
    best: int | None = None
    """Number of the best trial: at the end as it says, before that of those that told a metric."""
    command: str | None = None
    """What trains the best one; None before the end."""
    over: bool = False
    stopped: str | None = None
    why: str | None = None

    @property
    def trials_cost(self) -> Decimal | None:
        """In this job; None where not one is known."""
        known = [one.cost - (one.earlier or 0) for one in self.trials if one.cost is not None]
        return sum(known, Decimal(0)) if known else None

    @property
    def earlier_cost(self) -> Decimal:
        """Of the trials, in other jobs before the sweep was stopped."""
        return sum((one.earlier for one in self.trials if one.earlier is not None), Decimal(0))

    def idle(self, job_cost: Decimal | None) -> Decimal | None:
        """What the job cost beside its trials: starts of processes, and GPUs that waited."""
        return None if job_cost is None or self.trials_cost is None else job_cost - self.trials_cost


class Gathering:
    """Takes lines in their order, as they come."""

    def __init__(self) -> None:
        self._head: dict[str, Any] = {}
        self._trials: dict[int, Trial] = {}
        self._best: dict[str, Any] | None = None
        self._end: dict[str, Any] | None = None

    def feed(self, lines: Iterable[str]) -> None:
        for line in lines:
            if line.startswith('{"event"'):
                self._take(line)

    def _take(self, line: str) -> None:
        try:
            told = json.loads(line)
        except ValueError:
            return
        event = told.get("event")
        if event == "sweep":
            self._head, self._best, self._end = told, None, None
        elif event == "trial" and type(number := told.get("trial")) is int and told.get("state") in STATES:
            self._trials[number] = _next(self._trials.get(number), number, told)
        elif event == "best":
            self._best = told
        elif event == "swept":
            self._end = told

    @property
    def is_sweep(self) -> bool:
        return bool(self._head)

    def result(self) -> Swept:
        head, end = self._head, self._end or {}
        mode = "max" if head.get("mode") == "max" else "min"
        best = self._best or {}
        return Swept(
            name=_text(head.get("name")), metric=_text(head.get("metric")), mode=mode, wanted=_whole(head.get("trials")),
            search=_text(head.get("search")), nodes=_whole(head.get("nodes")),
            trials=tuple(sorted(self._trials.values(), key=lambda one: one.number)),
            best=_whole(best.get("trial")) if self._best else _best(self._trials.values(), mode), command=_text(best.get("command")),
            over=self._end is not None, stopped=_text(end.get("stopped")), why=_text(end.get("why")),
        )  # fmt: skip


def _next(before: Trial | None, number: int, told: Mapping[str, Any]) -> Trial:
    """A line tells what is new; the rest stays."""
    config = told.get("config")
    old = before or Trial(number=number, state="", config={})
    return Trial(
        number=number, state=told["state"], config=config if isinstance(config, dict) else old.config,
        metric=old.metric if _number(told.get("metric")) is None else _number(told.get("metric")),
        step=old.step if _whole(told.get("step")) is None else _whole(told.get("step")),
        seconds=old.seconds if _number(told.get("seconds")) is None else _number(told.get("seconds")),
        cost=old.cost if _money(told.get("cost")) is None else _money(told.get("cost")),
        earlier=old.earlier if _money(told.get("earlier")) is None else _money(told.get("earlier")),
        gpus=old.gpus if _number(told.get("gpus")) is None else _number(told.get("gpus")),
        node=_text(told.get("node")) or old.node, why=_text(told.get("why")),
    )  # fmt: skip


def _best(trials: Iterable[Trial], mode: str) -> int | None:
    known = [one for one in trials if one.metric is not None and one.state not in ("failed", "lost")]
    sign = 1 if mode == "min" else -1
    return min(known, key=lambda one: (sign * (one.metric or 0.0), one.number)).number if known else None


def config_text(trial: Trial) -> str:
    """`learning_rate 0.01  width 64`."""
    return "  ".join(f"{key} {value_text(value)}" for key, value in trial.config.items())


def value_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.{_SIGNIFICANT}g}" if isinstance(value, float) else str(value)


def metric_text(trial: Trial) -> str:
    return "–" if trial.metric is None else f"{trial.metric:.{_SIGNIFICANT}g}"


def record(swept: Swept, job_cost: Decimal | None) -> dict[str, Any]:
    """For --json."""
    idle = swept.idle(job_cost)
    trials = [
        {**msgspec.to_builtins(one), "cost": _told(one.cost), "earlier": _told(one.earlier), "best": one.number == swept.best}
        for one in swept.trials
    ]
    return {
        **msgspec.to_builtins(swept), "trials": trials, "job_cost": _told(job_cost), "idle_cost": _told(idle),
    }  # fmt: skip


def _told(cost: Decimal | None) -> str | None:
    return None if cost is None else str(cost)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _whole(value: object) -> int | None:
    return value if type(value) is int else None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _money(value: object) -> Decimal | None:
    try:
        found = Decimal(value) if isinstance(value, str) else None
    except InvalidOperation:
        return None
    return found if found is not None and found.is_finite() else None
