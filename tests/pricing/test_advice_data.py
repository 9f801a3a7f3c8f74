"""The Philly trace as a fleet, where it is there: what was advised at seven dates, judged on all the hours that followed."""

from __future__ import annotations

from datetime import timedelta
from fractions import Fraction
from pathlib import Path

import pytest

from pricing.advice import Case, advise
from pricing.advice_judge import Judgement, after, judge
from pricing.catalog import Catalog
from pricing.demand import Demand, read_usage
from pricing.rate_card import FileCard, read_rates
from tests.bench import philly_usage

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


def test_after_four_weeks_it_comes_close_to_the_best_in_hindsight(philly: tuple[Demand, FileCard]) -> None:
    found = judged_at(28, philly)
    assert found is not None and found.hindsight is not None and found.later.known_hours == 1272
    assert round(float(found.without.total), 2) == 1_313_645.76
    assert (found.look_backs[7][0], round(float(found.look_backs[7][1]), 2)) == (78, -243_651.40)
    assert found.together.realised > found.hindsight * Fraction(3, 4)
