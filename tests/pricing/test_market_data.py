"""The whole of the real spot history, where it is there: it parses, its known traps are told, its gaps are found."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest

from pricing.market import Market, SeriesKey, availability_history, hazard, read_history, stitched_ticks, trace_prices

SPOT = Path(__file__).resolve().parents[3] / "shared" / "data" / "spot"
pytestmark = pytest.mark.skipif(not SPOT.is_dir(), reason="no ../shared/data/spot beside the project")


def test_the_price_history_of_aws_is_stitched_from_its_dumps_and_its_gaps_are_reported() -> None:
    reading = read_history(SPOT / "aws_spot_price_history_2019-12_2020-03.tar.gz")
    assert (reading.files, reading.rows) == (270, 16_973)
    assert Counter(one.kind for one in reading.traps) == {"empty_list": 110, "truncated_page": 1}
    (full,) = [one for one in reading.traps if one.kind == "truncated_page"]
    assert (full.file, full.row) == ("cost/us-east-1/p2.xlarge.json", 1000)
    market = Market(reading.fetches)
    assert len(market) == 98 and market.traps == ()
    gaps = market.gaps()
    assert {gap.start.date().isoformat() for _, gap in gaps} == {"2020-03-04", "2020-03-05", "2020-03-13"}
    assert max(gap.end - gap.start for _, gap in gaps).total_seconds() < 2.1 * 86_400
    full_zone = market[SeriesKey("us-east-2c", "p3.2xlarge", "Linux/UNIX")]
    least, _ = full_zone.steps.extremes(full_zone.steps.start_ms, full_zone.steps.end_ms)
    assert least is not None and least >= Decimal("3.06"), "no spare room"
    for history in market.values():
        assert Fraction(9, 10) < history.known_ratio(history.start, history.end) <= 1
    cheap = market[SeriesKey("us-east-2b", "p3.2xlarge", "Linux/UNIX")]
    assert cheap.price_at(datetime(2020, 2, 20, 22, 54, 57, tzinfo=UTC)) == Decimal("1.1409")


def test_the_windows_of_one_region_come_together_without_a_contradiction() -> None:
    reading = read_history(SPOT / "single_region_availability.tar.gz", available=0, match="*overhead=0.20*random_start/*")
    assert len(reading.traces) == reading.files == 2400 and not reading.traps
    assert {len(trace.states) for trace in reading.traces} == {554}
    whole, traps = stitched_ticks(reading.traces)
    assert not traps and [len(trace.states) for trace in whole] == [1764] * 8
    found = {trace.place: trace for trace in whole}
    assert round(float(found["us-west-2a_k80_1"].availability or 0), 4) == 0.9535
    one = found["us-west-2b_v100_1"].hazard()
    assert (one.interruptions, round(float(one.per_hour or 0), 3)) == (89, 0.511)
    assert hazard(whole).interruptions == sum(trace.hazard().interruptions for trace in whole)


def test_the_windows_of_nine_zones_have_prices_and_a_clock() -> None:
    reading = read_history(SPOT / "multi_region_availability_prices.tar.gz", available=0)
    assert len(reading.traces) == 900 and Counter(one.kind for one in reading.traps) == {"local_time": 900}
    prices, contradictions = trace_prices(reading.traces)
    available, _ = availability_history(reading.traces)
    assert len(prices) == len(available) == 9
    assert contradictions, "windows were sampled anew, so the moments of changes differ by up to a tick"
    for place, history in prices.items():
        mean = history.mean(history.start, history.end)
        assert mean.known_ratio == 1 and mean.value is not None and Fraction(9, 10) < mean.value < 3
        assert available[place].start_ms == history.steps.start_ms
