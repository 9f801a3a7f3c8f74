"""Advice on the published traces, where they are there: purchases for Philly judged on what followed, real idle GPUs shared."""

from __future__ import annotations

import csv
import io
import tarfile
from collections import defaultdict
from datetime import timedelta
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from pricing.advice import Case, advise
from pricing.advice_judge import Judgement, after, judge
from pricing.advice_shrink import FULL, MOST_ON_ONE, SHARE_UP_TO, _pack
from pricing.catalog import Catalog
from pricing.demand import Demand, read_usage
from pricing.rate_card import FileCard, read_rates
from tests.bench import philly_usage

DUTY = philly_usage.TRACE.parent / "genai_2026_gpu_duty_cycle.tar.gz"
pytestmark = pytest.mark.skipif(not philly_usage.TRACE.is_file(), reason="no ../shared/data/usage beside the project")


@pytest.fixture(scope="module")
def philly(tmp_path_factory: pytest.TempPathFactory) -> tuple[Demand, FileCard]:
    folder: Path = tmp_path_factory.mktemp("philly")
    (folder / "usage.csv").write_text("\n".join(philly_usage.usage_lines()))
    (folder / "rates.csv").write_text("\n".join(philly_usage.rate_lines()))
    return read_usage(folder / "usage.csv"), read_rates(folder / "rates.csv", Catalog.embedded())


def judged_at(days: int, philly: tuple[Demand, FileCard]) -> Judgement | None:
    whole, card = philly
    at = whole.start + timedelta(days=days)
    case = Case(whole.between(whole.start, at), card, at)
    return judge(advise(case, ("commit",)), case, after(case, whole))


def test_the_fleet_is_what_the_trace_fills(philly: tuple[Demand, FileCard]) -> None:
    demand, _ = philly
    (key,) = demand.counts
    assert (key.instance_type, demand.hours, demand.known_hours, demand.partial) == ("p3.16xlarge", 1944, 1944, False)
    assert demand.series(key).max() == 135 and round(float(demand.series(key).mean()), 2) == 53.61


def test_advice_on_weeks_that_shrink_saves_where_the_clouds_rule_loses(philly: tuple[Demand, FileCard]) -> None:
    found = [one for days in range(21, 64, 7) if (one := judged_at(days, philly)) is not None]
    ours = sum((one.together.realised for one in found), Fraction(0))
    rule = sum((one.look_backs[7][1] for one in found), Fraction(0))
    assert ours > 0 > rule, "the fleet falls from 80 nodes a week to 7, and each purchase binds to the end"
    assert all(one.together.realised >= one.look_backs[7][1] for one in found)
    assert all(one.hindsight is not None and one.together.realised <= one.hindsight for one in found)


def test_what_came_of_the_advice_lies_within_its_range_at_every_date(philly: tuple[Demand, FileCard]) -> None:
    found = [one.together for days in range(21, 64, 7) if (one := judged_at(days, philly)) is not None]
    assert len(found) == 7
    assert all(one.advised_range[0] <= one.realised <= one.advised_range[1] for one in found)
    assert sum(one.advised_range[0] < 0 for one in found) >= 4, "from the fifth week on it is told that it may lose"


def test_after_four_weeks_it_comes_close_to_the_best_in_hindsight(philly: tuple[Demand, FileCard]) -> None:
    found = judged_at(28, philly)
    assert found is not None and found.hindsight is not None and found.later.known_hours == 1272
    assert round(float(found.without.total), 2) == 1_313_645.76
    assert (found.look_backs[7][0], round(float(found.look_backs[7][1]), 2)) == (78, -243_651.40)
    assert found.together.realised > found.hindsight * Fraction(3, 4)


def duty_cycles() -> np.ndarray:
    """float (containers, minutes): what the GPUs of the containers that ran all 23 hours did, 0 to 1."""
    found: dict[str, dict[float, float]] = defaultdict(dict)
    with tarfile.open(DUTY) as archive:
        stream = archive.extractfile(next(one for one in archive if one.name.endswith(".csv")))
        assert stream is not None
        for row in csv.DictReader(io.TextIOWrapper(stream)):
            found[row["container_ip"]][float(row["timestamp_anon"])] = float(row["value"]) / 100
    most = max(map(len, found.values()))
    whole = [of for of in found.values() if len(of) >= 0.9 * most]
    times = [at for at in sorted(set().union(*whole)) if all(at in of for of in whole)]
    return np.array([[of[at] for at in times] for of in whole])


def test_gpus_that_would_share_by_half_a_day_of_real_use_bear_it_in_the_other_half() -> None:
    past, later = np.array_split(duty_cycles(), 2, axis=1)
    busiest = np.max([part.mean(axis=1) for part in np.array_split(past, 7, axis=1)], axis=0)
    light = np.flatnonzero((busiest > 0) & (busiest < SHARE_UP_TO))
    bins: list[list[int]] = []
    for gpu in sorted(light, key=lambda gpu: -busiest[gpu]):  # as `_pack` does it, keeping who is where
        fit = next((one for one in bins if busiest[[*one, gpu]].sum() <= FULL and len(one) < MOST_ON_ONE), None)
        bins.append([gpu]) if fit is None else fit.append(gpu)
    packed = _pack([(float(busiest[gpu]), float(past[gpu].mean())) for gpu in light], MOST_ON_ONE)
    assert (len(light), len(bins)) == (93, 25) and len(packed.bins) == len(bins)
    loads = np.array([later[members].sum(axis=0) for members in bins])
    assert float((loads > 1).mean()) < 0.01, "more than a whole GPU is wanted in less than 1 % of the minutes"
    work = np.array([(later[members] * np.maximum(1, loads[at])).sum() for at, members in enumerate(bins)])
    slower = float(work.sum() / later[light].sum())
    assert slower < float(np.mean(packed.slow_downs)) + 0.03 < 1.07, "the model tells about what the minutes show"
