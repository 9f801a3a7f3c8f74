"""Runs a sweep: its own Ray, Ray Tune over it, lines of what happens, a state from which it goes on.

Invariant: a trial that ended is never run again; one whose node was lost or that somebody killed (SIGKILL: for its memory, or
by hand) is, once, as Ray Tune does with `max_failures` and Optuna after a lost heartbeat; one that failed by itself is not. A
soft stop lets the running ones save, and leaves what a start in the same folder goes on from.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from agent.recipes import sweep_cluster as cluster
from agent.recipes.alone import alone
from agent.recipes.faults import CheckpointFault
from agent.recipes.journal import Journal
from agent.recipes.sweep_money import Money
from agent.recipes.sweep_plan import Plan

STATE = "tune"
PLAN = "plan.json"


def run(plan: Plan, work: Path) -> int:
    """This node's part; the exit code."""
    checkpoints = Path(os.environ.get("RACKRATE_CHECKPOINT_DIR") or "checkpoints").absolute()
    with contextlib.suppress(OSError):  # told of right below
        checkpoints.mkdir(parents=True, exist_ok=True)
    meet, gpus = cluster.gang(), cluster.own_gpus()
    if meet is not None and not meet.here:
        return cluster.join(meet, cluster.prepare(plan, work, checkpoints, gpus), gpus, Stop().asked)
    with alone(checkpoints):
        _same(plan, checkpoints)
        cpus, stop = cluster.prepare(plan, work, checkpoints, gpus), Stop()

        def lead() -> int:
            with cluster.head(meet, cpus, gpus) as address:
                return Sweep(plan, checkpoints, stop, address, meet.nodes if meet else 1).run()

        return cluster.tried(lead, stop.asked)


class Stop:
    """The soft stop: noted, and looked at by what can end; whenever it comes, none is lost."""

    def __init__(self) -> None:
        self.asked: dict[str, bool] = {}
        signal.signal(signal.SIGTERM, self._note)

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Whatever is done to the handler within, a signal that comes meanwhile is noted afterwards."""
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, self._note)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.asked["now"] = True


def _same(plan: Plan, folder: Path) -> None:
    """Raises `CheckpointFault` where the folder holds another sweep."""
    path = folder / PLAN
    with contextlib.suppress(OSError, ValueError):
        before = json.loads(path.read_text())
        if changed := [key for key, value in plan.same().items() if before.get(key) != value]:
            raise CheckpointFault(
                f"{folder} holds a sweep with another {' and '.join(changed[:3])}; go on with that one, or name another folder."
            )
    path.write_text(json.dumps(plan.same()))


class Sweep:
    """The head's part."""

    def __init__(self, plan: Plan, folder: Path, stop: Stop, address: str, nodes: int) -> None:
        self._plan, self._folder, self._stop, self._address, self._nodes = plan, folder, stop, address, nodes
        self._journal = Journal(speaks=True, out=sys.stdout)

    def run(self) -> int:
        import ray

        logging.getLogger("ray").setLevel(logging.ERROR)
        with self._stop.kept():  # Ray puts its own handler there
            try:
                ray.init(address=self._address, log_to_driver=False, logging_level=logging.ERROR, configure_logging=False)
            except (RuntimeError, ConnectionError, TimeoutError) as error:
                ray.shutdown()
                raise cluster.NotStarted(f"Ray has started and does not answer: {str(error).splitlines()[0]}") from None
        try:
            self._wait_for_nodes()
            if self._stop.asked:
                return 0
            self._tune()
        finally:
            ray.shutdown()
        return 0

    def _wait_for_nodes(self) -> None:
        import ray

        limit = time.monotonic() + cluster.JOIN_SECONDS
        while sum(node["Alive"] for node in ray.nodes()) < self._nodes and not self._stop.asked:
            if time.monotonic() > limit:
                there = sum(node["Alive"] for node in ray.nodes())
                raise cluster.NodeLost(f"{there} of {self._nodes} nodes came within {cluster.JOIN_SECONDS:.0f} s.")
            time.sleep(0.5)

    def _rate(self) -> Any:
        import ray

        return cluster.rates(ray.nodes())

    def _tune(self) -> None:
        import ray

        from agent.recipes import sweep_search
        from agent.recipes.sweep_lines import Teller

        money = Money(
            self._plan.budget_usd, self._rate, self._folder, reserve_seconds=self._plan.reserve_seconds,
            job=os.environ.get("RACKRATE_JOB"), began=_began(),
        )  # fmt: skip
        sweep_search.MONEY[:] = [money]
        teller = Teller(self._plan, money, self._journal, self._stop.asked)
        tuner, resumed = self._tuner(teller)
        rate, total = self._rate(), ray.cluster_resources()
        self._journal.line(
            event="sweep", name=self._plan.name, metric=self._plan.metric, mode=self._plan.mode, trials=self._plan.trials,
            search=self._plan.search, scheduler=self._plan.scheduler, nodes=self._nodes, gpus=total.get("GPU", 0.0),
            cpus=total.get("CPU", 0.0), usd_per_hour=None if rate is None else str(rate), budget=self._plan.budget,
            resumed=resumed, ray=self._address,
        )  # fmt: skip
        if resumed:
            for one in _over(tuner.get_results()):
                teller.kept(one)
        results = [] if self._stop.asked else list(self._fit(tuner))
        teller.stopped()
        money.keep()
        spent = money.spent()
        if not self._stop.asked:
            teller.best(results)
        asked = "a soft stop" if self._stop.asked else None
        started = sum(1 for one in results if one.metrics)
        self._journal.line(
            event="swept", trials=started, seconds=money.seconds, spent=None if spent is None else str(spent), stopped=asked,
            why=None if asked or started >= self._plan.trials else "another trial would go beyond the budget, or there are no more",
        )  # fmt: skip

    def _fit(self, tuner: Any) -> Any:
        with contextlib.redirect_stdout(sys.stderr):
            return tuner.fit()

    def _tuner(self, teller: Any) -> tuple[Any, bool]:
        from ray import tune

        from agent.recipes.sweep_search import Search
        from agent.recipes.sweep_trial import Trial

        plan, path = self._plan, str(self._folder / STATE)
        trainable = tune.with_resources(Trial, {"cpu": plan.cpus, "gpu": plan.gpus} if plan.gpus else {"cpu": plan.cpus})
        if tune.Tuner.can_restore(path):
            tuner = tune.Tuner.restore(path, trainable=trainable)
            tuner._local_tuner._run_config.callbacks = [teller]
            return tuner, True
        config = tune.TuneConfig(
            metric="metric", mode=plan.mode, num_samples=plan.trials, search_alg=Search(plan), scheduler=_scheduler(plan),
            max_concurrent_trials=plan.at_once, reuse_actors=True,
        )  # fmt: skip
        running = tune.RunConfig(
            name=STATE, storage_path=str(self._folder), callbacks=[teller], verbose=0, failure_config=tune.FailureConfig(1),
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
        )  # fmt: skip
        return tune.Tuner(trainable, tune_config=config, run_config=running), False


def _began() -> float:
    """When this process did, by the clock `monotonic`: the start of Ray costs too."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return time.monotonic() - max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))


def _over(grid: Any) -> list[Any]:
    """Results of trials that will not run again. An error alone does not tell: one that was lost has it while it is run again."""
    return [one for trial, one in zip(grid._experiment_analysis.trials, grid, strict=True) if trial.is_finished()]


def _scheduler(plan: Plan) -> Any:
    from ray.tune.schedulers import FIFOScheduler

    from agent.recipes.sweep_search import Asha

    if plan.scheduler != "asha" or plan.max_steps is None:
        return FIFOScheduler()
    return Asha(time_attr="step", max_t=plan.max_steps, grace_period=plan.grace, reduction_factor=plan.reduction, metric=None)
