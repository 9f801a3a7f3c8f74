"""Policies side by side: the figures of a small table by hand, standard errors, zones left out; the published table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pricing.spot import job_of
from pricing.spot_backtest import Worlds
from pricing.spot_judge import clustered, judge, leave_one_out
from pricing.spot_traces import read_traces, starts_of

SPOT = Path(__file__).resolve().parents[3] / "shared" / "data" / "spot"
SAMPLE = SPOT / "single_region_availability.tar.gz"


def test_the_figures_of_two_windows_are_those_by_hand() -> None:
    """Two hours of work in three, ticks of ten minutes, a changeover of ten: spot all the time, and spot never."""
    job = job_of(work_hours=2, deadline_hours=3, changeover_hours=1 / 6, on_demand=3, spot=1)
    states = np.repeat(np.array([[1], [0]], np.uint8), 18, axis=1)
    worlds = Worlds(states, np.empty((2, 0), np.uint8), np.array([0, 1]), ("good", "dead"))
    found = {one.policy: one for one in judge(["on_demand", "greedy", "omniscient"], worlds, job).verdicts}
    assert found["on_demand"].saving_ratio == pytest.approx(1 - (13 / 6 * 3) / 6)
    greedy = found["greedy"]
    assert greedy.cost == pytest.approx((13 / 6 * 1 + 13 / 6 * 3) / 2)
    assert (greedy.spot_hours, greedy.on_demand_hours) == pytest.approx((1, 1))
    assert (greedy.billed_spot_hours, greedy.billed_on_demand_hours) == pytest.approx((13 / 12, 13 / 12))
    assert greedy.gap_closed_ratio is None, "greedy is the optimum here"
    assert greedy.saving_ratio == pytest.approx(found["omniscient"].saving_ratio)
    assert greedy.late_runs == 0 and greedy.runs == 2
    assert greedy.standard_error == pytest.approx(np.std([1 - 13 / 36, 1 - 13 / 12], ddof=1) / np.sqrt(2))


def test_a_clustered_error_counts_what_moves_together_once() -> None:
    values = np.array([1.0, 1.0, 1.0, 0.0, 0.0, 0.0])
    alone, together = clustered(values, np.arange(6)), clustered(values, np.array([0, 0, 0, 1, 1, 1]))
    assert alone == pytest.approx(np.std(values, ddof=1) / np.sqrt(6))
    assert together == pytest.approx(0.5), "two observations: 1 and 0"
    assert clustered(values, np.zeros(6)) is None


def test_a_zone_is_judged_by_a_model_of_the_others() -> None:
    rng = np.random.default_rng(0)
    quick, slow = ((np.cumsum(rng.random(3000) < chance) % 2).astype(np.uint8) for chance in (0.3, 0.03))
    models = leave_one_out(("quick", "slow"), {"quick": [(quick, 1 / 6)], "slow": [(slow, 1 / 6)]})
    ages, shares = np.array([0.5]), np.array([0.5])
    assert models[0].hazard(True, ages, shares) < models[1].hazard(True, ages, shares)
    assert models[0].source == "all zones but quick"
    job = job_of(work_hours=4, deadline_hours=6, changeover_hours=0.2, on_demand=3.06, spot=0.9731)
    states = np.stack([quick[:36], slow[:36], quick[50:86]])
    worlds = Worlds(states, np.empty((3, 0), np.uint8), np.array([0, 1, 0]), ("quick", "slow"))
    judged = judge(["rackrate"], worlds, job, models=models)
    alone = judge(["rackrate"], worlds.of(np.array([1])), job, models=models[1])
    assert judged.savings["rackrate"][1] == pytest.approx(alone.savings["rackrate"][0])
    assert judged.zones["quick"][0] == 2


@pytest.mark.skipif(not SAMPLE.is_file(), reason="no ../shared/data/spot beside the project")
def test_the_papers_table_comes_out_on_the_sample_of_its_traces() -> None:
    traces = read_traces([SAMPLE], changeover_hours=0.2).traces
    job = job_of(work_hours=48, deadline_hours=60, changeover_hours=0.2, on_demand=3.06, spot=0.9731)
    worlds, notes = starts_of(traces, job)
    names = ["on_demand", "greedy", "uniform_progress", "rackrate", "omniscient"]
    judgement = judge(names, worlds, job)
    found = {one.policy: one for one in judgement.verdicts}
    assert not notes and {one.runs for one in found.values()} == {2400} and {one.late_runs for one in found.values()} == {0}
    hours = {name: (round(one.on_demand_hours, 1), round(one.spot_hours, 1)) for name, one in found.items()}
    assert hours["greedy"] == (32.1, 15.9) and hours["uniform_progress"] == (26.1, 21.9) and hours["on_demand"] == (48, 0)
    assert found["omniscient"].saving_ratio == pytest.approx(0.347, abs=0.0005)
    ours = found["rackrate"]
    assert ours.gap_closed_ratio is not None and ours.gap_closed_ratio > 0.6
    assert ours.paired_difference is not None and ours.paired_difference > 0.02
    assert judgement.clusters == 32 and (judgement.savings["omniscient"] >= judgement.savings["rackrate"] - 1e-9).all()
