"""Spot history as step functions: what is known is exact, what is not known stays unknown, the order of sources is nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pricing.market import (
    EMPTY,
    Fetch,
    History,
    Market,
    SeriesKey,
    StepFunction,
    Trace,
    availability_history,
    hazard,
    read_rows,
    steps_hazard,
    stitched_ticks,
    trace_prices,
)
from pricing.market_steps import Value, conflict_hours, overlay
from tests.support.examples import examples

KEY = SeriesKey("us-east-1a", "p3.2xlarge", "Linux/UNIX")
DAY = datetime(2026, 3, 1, tzinfo=UTC)
PRICES = st.one_of(st.none(), st.decimals("0.0001", "99", places=4))
FUNCTIONS = st.builds(
    lambda points, more: StepFunction(sorted(points.items()), (max(points, default=0)) + more),
    st.dictionaries(st.integers(-50, 50), PRICES, max_size=8),
    st.integers(1, 20),
)


def trace(states: str, *, first_tick: int = 0, start_ms: int | None = None, file: str = "a", gap: int = 600) -> Trace:
    return Trace("here", file, Fraction(gap), bytes(map(int, states)), first_tick, start_ms)


def test_a_value_holds_until_the_next_and_nothing_is_known_outside() -> None:
    steps = StepFunction([(10, Decimal("1.5")), (20, None), (30, Decimal(2)), (40, Decimal(2))], 50)
    assert [steps.at(ms) for ms in (9, 10, 19, 20, 29, 30, 49, 50)] == [
        None, Decimal("1.5"), Decimal("1.5"), None, None, Decimal(2), Decimal(2), None,
    ]  # fmt: skip
    assert len(steps) == 3, "equal neighbours are one step"
    assert steps.mean(10, 40) == (Fraction(35, 20), Fraction(2, 3))
    assert steps.mean(0, 10) == (None, 0)
    assert [(gap.starts_ms, gap.ends_ms) for gap in steps.gaps(0, 60)] == [(0, 10), (20, 30), (50, 60)]
    assert steps.extremes(0, 60) == (Decimal("1.5"), Decimal(2))
    assert StepFunction([], 5).mean(0, 5) == (None, 0) and EMPTY.steps.at(0) is None


def test_steps_out_of_order_and_empty_ranges_are_refused() -> None:
    with pytest.raises(ValueError, match="out of order"):
        StepFunction([(2, 1), (1, 0)], 9)
    with pytest.raises(ValueError, match="after its start"):
        StepFunction([(2, 1)], 9).mean(5, 5)


@given(FUNCTIONS, st.integers(-60, 80), st.integers(1, 60))
@settings(max_examples=examples(150), deadline=None)
def test_queries_equal_those_of_each_millisecond(steps: StepFunction, start: int, length: int) -> None:
    values: list[Value] = [steps.at(ms) for ms in range(start, start + length)]
    known = [Fraction(value) for value in values if value is not None]
    mean = steps.mean(start, start + length)
    assert mean.known_ratio == Fraction(len(known), length)
    assert mean.value == (sum(known) / len(known) if known else None)
    pieces = list(steps.pieces(start, start + length))
    assert [piece.value for piece in pieces for _ in range(piece.ends_ms - piece.starts_ms)] == values
    cut = steps.cut(start, start + length)
    assert [cut.at(ms) for ms in range(start, start + length)] == values and cut.at(start - 1) is None


@given(st.lists(FUNCTIONS, max_size=5))
@settings(max_examples=examples(100), deadline=None)
def test_laid_over_each_other_the_first_that_knows_stands_and_contradictions_are_told(parts: list[StepFunction]) -> None:
    whole, conflicts = overlay(parts)
    for ms in range(-60, 90):
        told = [value for part in parts if (value := part.at(ms)) is not None]
        assert whole.at(ms) == (told[0] if told else None)
        assert any(one.starts_ms <= ms < one.ends_ms for one in conflicts) == (len(set(told)) > 1)
    assert conflict_hours(conflicts) * 3_600_000 == sum(
        len({value for part in parts if (value := part.at(ms)) is not None}) > 1 for ms in range(-60, 90)
    )


def rows_of(prices: list[tuple[datetime, Decimal]], start: datetime, end: datetime) -> list[dict[str, str]]:
    """As AWS replies: newest first, with the last change before the start; a row a day even without a change."""
    inside = [(at, price) for at, price in prices if start <= at < end]
    before = [(at, price) for at, price in prices if at < start][-1:]
    return [
        {
            "AvailabilityZone": KEY.zone, "InstanceType": KEY.instance_type, "ProductDescription": KEY.product,
            "SpotPrice": f"{price:f}", "Timestamp": f"{at:%Y-%m-%dT%H:%M:%S.000Z}",
        }
        for at, price in reversed([*before, *inside])
    ]  # fmt: skip


@given(st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_overlapping_fetches_in_any_order_give_the_history_that_they_were_cut_from(seed: int) -> None:
    rng = Random(seed)
    at, prices = DAY, []
    while at < DAY + timedelta(days=20):
        prices.append((at, Decimal(rng.randrange(900, 3000)).scaleb(-3)))
        at += timedelta(minutes=rng.randrange(1, 2000))
    fetches = []
    for number in range(rng.randrange(1, 6)):
        start = DAY + timedelta(hours=rng.randrange(0, 400))
        end = start + timedelta(hours=rng.randrange(24, 200))
        fetches += read_rows({"SpotPriceHistory": rows_of(prices, start, end), "NextToken": ""}, f"{number}.json", until=end)[0]
    market = Market(fetches)
    rng.shuffle(fetches)
    again = Market([*fetches, *fetches[:1]])
    assert not market.traps
    assert list(market) == list(again) and all(market[key].steps == again[key].steps for key in market)
    for key, history in market.items():
        assert key == KEY and history.currency == "USD"
        for moment in (DAY + timedelta(hours=n) for n in range(0, 700, 7)):
            covered = any(one.prices.at(int(moment.timestamp() * 1000)) is not None for one in fetches)
            true = [price for since, price in prices if since <= moment][-1]
            assert history.price_at(moment) == (true if covered else None)


def test_a_gap_between_fetches_is_reported_and_a_contradiction_names_both_prices() -> None:
    hour = 3_600_000
    one = Fetch(KEY, "one.json", StepFunction([(0, Decimal(1))], 10 * hour), 1)
    two = Fetch(KEY, "two.json", StepFunction([(20 * hour, Decimal(2))], 30 * hour), 1)
    odd = Fetch(KEY, "odd.json", StepFunction([(5 * hour, Decimal(3))], 8 * hour), 1)
    market = Market([two, one, odd])
    ((key, gap),) = market.gaps()
    assert key == KEY and (gap.end - gap.start) == timedelta(hours=10) and gap.start.hour == 10
    assert market[KEY].steps.at(6 * hour) == Decimal(1), "the fetch that reaches further stands"
    (trap,) = market.traps
    assert "3.0 hours" in str(trap) and "1970-01-01T05:00:00Z (1 and 3)" in str(trap)
    assert market.find("p3.2xlarge") == [KEY] and market.find(zone="us-east-1b") == []


def test_a_history_tells_its_points_with_the_price_in_force_at_the_start() -> None:
    history = History(StepFunction([(0, Decimal(1)), (7_200_000, Decimal(2))], 10_800_000))
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    start, end = epoch + timedelta(hours=1), epoch + timedelta(hours=5)
    hours = [epoch + timedelta(hours=n) for n in (1, 2, 3)]
    assert history.points(start, end) == list(zip(hours, (Decimal(1), Decimal(2), None), strict=True))
    assert history.known_ratio(start, end) == Fraction(1, 2)


def test_runs_tile_a_trace_and_only_what_is_taken_away_is_an_interruption() -> None:
    one = trace("1101211001")
    assert [(run.tick, run.ticks, run.state, run.censored) for run in one.runs()] == [
        (0, 2, 1, True), (2, 1, 0, False), (3, 1, 1, True), (4, 1, 2, False),
        (5, 2, 1, True), (7, 2, 0, False), (9, 1, 1, True),
    ]  # fmt: skip
    found = one.hazard()
    assert (found.interruptions, found.available_hours, found.censored_runs) == (2, Fraction(1), 4)
    assert found.per_hour == 2 and one.availability == Fraction(6, 9)
    assert hazard([trace("00")]).per_hour is None and trace("2").availability is None
    assert hazard([one, one]).interruptions == 4


@given(st.text("012", min_size=1, max_size=40))
@settings(max_examples=examples(80), deadline=None)
def test_a_trace_and_its_steps_have_the_same_hazard(states: str) -> None:
    one = trace(states, start_ms=1000)
    assert sum(run.ticks for run in one.runs()) == len(states)
    assert one.hazard() == steps_hazard(one.availability_steps())


@given(
    st.text("01", min_size=5, max_size=60), st.lists(st.tuples(st.integers(0, 50), st.integers(1, 30)), min_size=1, max_size=6)
)
@settings(max_examples=examples(80), deadline=None)
def test_windows_of_one_trace_come_together_again(states: str, cuts: list[tuple[int, int]]) -> None:
    windows = [
        trace(states[begin : begin + length], first_tick=begin, file=str(number))
        for number, (begin, length) in enumerate(cuts)
        if states[begin : begin + length]
    ]
    if not windows:
        return
    (whole,), traps = stitched_ticks(windows)
    assert not traps
    covered = {tick for one in windows for tick in range(one.first_tick, one.first_tick + len(one.states))}
    for place, state in enumerate(whole.states, whole.first_tick):
        assert state == (int(states[place]) if place in covered else 2)


def test_windows_that_contradict_each_other_are_unknown_there() -> None:
    (whole,), (trap,) = stitched_ticks([trace("110"), trace("00", first_tick=1, file="b")])
    assert whole.states == bytes([1, 2, 0]) and "1 ticks" in str(trap)


def test_windows_with_a_wrong_start_are_not_put_together() -> None:
    windows = [trace("11"), trace("00", first_tick=10**15, file="b")]
    whole, (trap,) = stitched_ticks(windows)
    assert whole == windows and "a start is wrong" in str(trap)


def test_dated_windows_are_stitched_on_the_clock_and_the_later_one_stands() -> None:
    prices = (Decimal(1), Decimal(2), None)
    one = Trace("z", "a", Fraction(195), bytes([1, 1, 0]), 0, 0, prices)
    two = Trace("z", "b", Fraction(195), bytes([0, 1, 1]), 0, 195_000, (Decimal(2), Decimal(3), Decimal(3)))
    found, traps = availability_history([one, two])
    assert [found["z"].at(ms) for ms in (0, 195_000, 390_000, 779_999, 780_000)] == [1, 0, 1, 1, None]
    assert len(traps) == 1 and "0.1 hours" in str(traps[0])
    told, none = trace_prices([two, one])
    assert not none and told["z"].price_at(datetime.fromtimestamp(200, UTC)) == 2
    assert stitched_ticks([one]) == ([one], [])
