"""Spot policies under a deadline on recorded availability: the paper's table, our policy out of sample, speed.

Invariant: prints figures, asserts none. `python tests/bench/bench_spot.py [--quick]` (8 minutes of CPU, most of them for the
optimum at the shortest changeover; --quick: two cells of each table, one minute); needs ../shared/data/spot beside the
project. Our policy is never judged on a zone that it was fitted on: in 2022 each zone by a model of the seven others, in 2023
all zones by a model of 2022.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from pricing.market_traces import Trace
from pricing.spot import HOUR_MS, POLICIES, Decision, Job, State, job_of, policy_of
from pricing.spot_backtest import Worlds
from pricing.spot_hazard import SpotModel, fit
from pricing.spot_judge import Judgement, judge, leave_one_out
from pricing.spot_traces import read_traces, starts_of, states_of, tick_of

SPOT = Path(__file__).resolve().parents[3] / "shared" / "data" / "spot"
SAMPLE, LATER = SPOT / "single_region_availability.tar.gz", SPOT / "multi_region_availability_prices.tar.gz"
PRICES = {"on_demand": 3.06, "spot": 0.9731}
RATIOS, CHANGEOVERS = (0.6, 0.7, 0.8, 0.9), (0.02, 0.2, 0.4)
NAMES = ("greedy", "uniform_progress", "rackrate", "omniscient")


def job(work: float, ratio: float, changeover: float, tick_ms: int) -> Job:
    return job_of(work_hours=work, deadline_hours=work / ratio, changeover_hours=changeover, tick_ms=tick_ms, **PRICES)


def table_3(traces: Sequence[Trace]) -> Worlds:
    """The published table: hours of work on demand and on spot."""
    one = job(48, 0.8, 0.2, tick_of(traces))
    worlds, _ = starts_of(traces, one)
    begin = time.process_time()
    found = judge(POLICIES, worlds, one)
    took = time.process_time() - begin
    print(f"\nTable 3 on {len(worlds.states):,} windows (C 48 h, R 60 h, d 0.2 h); published: greedy 30.8/17.2, UP 25.1/22.9")
    print("policy                  od h   spot h  saving    ±     gap  vs UP    ±  late   (with the coefficients that ship)")
    for row in found.verdicts:
        vs = "     –    –" if row.paired_difference is None else f"{points(row.paired_difference)} {points(row.paired_standard_error)}"
        gap = (row.gap_closed_ratio or 0) * 100
        print(
            f"{row.policy:<23} {row.on_demand_hours:5.2f} {row.spot_hours:7.2f} {row.saving_ratio * 100:6.2f} % "
            f"{points(row.standard_error)} {gap:6.1f} % {vs} {row.late_runs:5d}"
        )
    print(f"{len(POLICIES)} policies over {len(worlds.states):,} windows in {took:.1f} s of CPU")
    return worlds


def points(value: float | None) -> str:
    return "    –" if value is None else f"{value * 100:5.2f}"


def cells(title: str, setups: Mapping[tuple[float, float], tuple[Worlds, Job]], models: SpotModel | Mapping[int, SpotModel]) -> None:
    """A line a cell: savings, how much of the gap is closed, the paired difference to Uniform Progress with its errors."""
    print(f"\n{title}")
    print("C/R  d     greedy     UP   ours   omni   gap UP  gap ours  ours-UP ± clustered (naive) [zones]  late  above greedy")
    gaps = []
    for (ratio, changeover), (worlds, one) in setups.items():
        found = judge(NAMES, worlds, one, models=models)
        rows = {row.policy: row for row in found.verdicts}
        ours = rows["rackrate"]
        gaps.append((rows["uniform_progress"].gap_closed_ratio or 0, ours.gap_closed_ratio or 0))
        savings = "  ".join(f"{rows[name].saving_ratio * 100:5.2f}" for name in NAMES)
        print(
            f"{ratio:.1f}  {changeover:.2f}   {savings}  {gaps[-1][0] * 100:6.1f} % {gaps[-1][1] * 100:7.1f} %  "
            f"{points(ours.paired_difference)} ± {points(ours.paired_standard_error)} {errors(found, worlds)} {ours.late_runs:5d}  "
            f"{points(ours.saving_ratio - rows['greedy'].saving_ratio)}",
            flush=True,
        )
    mean = np.mean(gaps, axis=0) * 100
    print(f"mean gap closed: Uniform Progress {mean[0]:.1f} %, ours {mean[1]:.1f} %")


def errors(found: Judgement, worlds: Worlds) -> str:
    """The naive error of the paired difference, and that over the means of zones alone."""
    paired = found.savings["rackrate"] - found.savings["uniform_progress"]
    zones = np.array([paired[worlds.zone == zone].mean() for zone in np.unique(worlds.zone)])
    return f"({points(paired.std(ddof=1) / len(paired) ** 0.5)}) [{points(zones.std(ddof=1) / len(zones) ** 0.5)}]"


def speed() -> None:
    """A live decision of our policy, and the solution before the first."""
    one = job(48, 0.8, 0.2, 600_000)
    policy = policy_of("rackrate")
    policy.start(one)
    begin, state = time.process_time(), State(60 * HOUR_MS, 48 * HOUR_MS, Decision.IDLE, 0, available=False)
    policy.observe(np.array([0], np.uint8), 600_000)
    policy.decide(state)
    first = time.process_time() - begin
    begin, looks = time.process_time(), 2000
    for number in range(looks):
        policy.observe(np.array([number // 7 % 2], np.uint8), 60_000)
        policy.decide(State((60 * 60 - number) * 60_000, 48 * HOUR_MS, Decision.IDLE, 0, available=bool(number // 7 % 2)))
    each = (time.process_time() - begin) / looks
    print(f"\na live job: {first:.2f} s of CPU before its first decision, {each * 1000:.3f} ms each after that (budget 1 ms)")


def main(arguments: list[str]) -> None:
    if not SAMPLE.is_file():
        print("no ../shared/data/spot beside the project")
        return
    quick = "--quick" in arguments
    wanted = [(0.8, 0.2), (0.9, 0.4)] if quick else [(ratio, changeover) for ratio in RATIOS for changeover in CHANGEOVERS]
    traces = {changeover: read_traces([SAMPLE], changeover_hours=changeover).traces for changeover in CHANGEOVERS}
    worlds = table_3(traces[0.2])
    speed()
    by_zone = {zone: states_of([one for one in traces[0.2] if one.place == zone]) for zone in worlds.zones}
    models = leave_one_out(worlds.zones, by_zone)
    setups = {}
    for ratio, changeover in wanted:
        one = job(48, ratio, changeover, tick_of(traces[changeover]))
        setups[ratio, changeover] = (starts_of(traces[changeover], one)[0], one)
    cells("2022, eight zone-types, each judged by a model of the seven others; 2,400 windows, cold", setups, models)
    later = read_traces([LATER]).traces
    setups = {}
    for ratio, changeover in wanted:
        one = job(59.9 * ratio, ratio, changeover, tick_of(later))
        setups[ratio, changeover] = (starts_of(later, one)[0], one)
    model = fit([trace for found in by_zone.values() for trace in found], "2022")
    cells("2023, nine zones, a model of 2022; 900 windows of 59.9 h, ticks of 195 s, cold", setups, model)


if __name__ == "__main__":
    main(sys.argv[1:])
