"""The meter's time: forward only, whatever is done to the wall clock."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.meter_clock import MeterClock, Tick, boot_ms, wall_ms
from tests.support.metering import T0_MS, HandClock


def test_it_follows_the_wall_clock_while_nobody_sets_it() -> None:
    hands = HandClock()
    clock = hands.clock()
    for wait in (0, 1, 999, 3_600_000):
        hands.pass_ms(wait)
        assert clock.read() == Tick(hands.wall_ms)


def test_a_step_of_up_to_two_seconds_is_left_alone() -> None:
    hands = HandClock()
    clock = hands.clock()
    clock.read()
    hands.step_wall(2000)
    assert clock.read() == Tick(T0_MS)


def test_small_steps_that_add_up_are_followed() -> None:
    hands = HandClock()
    clock = hands.clock()
    clock.read()
    hands.step_wall(1500)
    assert clock.read() == Tick(T0_MS)
    hands.step_wall(1500)
    assert clock.read() == Tick(T0_MS + 3000, T0_MS)


def test_a_clock_set_back_and_right_again_makes_no_row() -> None:
    hands = HandClock()
    clock = hands.clock()
    clock.read()
    hands.step_wall(-7_200_000)
    hands.pass_ms(1000)
    assert clock.read() == Tick(T0_MS + 1000)
    hands.step_wall(7_200_000)
    hands.pass_ms(1000)
    assert clock.read() == Tick(T0_MS + 2000)


def test_it_starts_no_earlier_than_the_record_ends(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    hands = HandClock()
    clock = hands.clock()
    assert clock.read(T0_MS + 60_000) == Tick(T0_MS + 60_000)
    hands.pass_ms(1000)
    assert clock.read(T0_MS + 60_000) == Tick(T0_MS + 61_000)
    assert len(caplog.records) == 1


def test_a_later_end_moves_it_forward_for_good() -> None:
    hands = HandClock()
    clock = hands.clock()
    clock.read()
    assert clock.read(T0_MS + 700) == Tick(T0_MS + 700)
    hands.pass_ms(100)
    assert clock.read() == Tick(T0_MS + 800)


def test_a_wall_clock_in_1970_is_no_time() -> None:
    hands = HandClock(1000)
    clock = hands.clock()
    assert clock.read() is None
    hands.step_wall(T0_MS)
    assert clock.read() == Tick(T0_MS + 1000)


def test_the_real_clocks_run() -> None:
    assert wall_ms() > T0_MS and 0 < boot_ms() <= boot_ms()
    tick = MeterClock().read()
    assert tick is not None and tick.stepped_from_ms is None


@given(st.lists(st.tuples(st.integers(0, 100_000), st.integers(-10_000_000, 10_000_000))))
def test_it_never_goes_backwards(acts: list[tuple[int, int]]) -> None:
    hands = HandClock()
    clock = hands.clock()
    last = 0
    for wait, step in acts:
        hands.pass_ms(wait)
        hands.step_wall(step)
        tick = clock.read(last)
        assert tick is not None and last <= (tick.at_ms if tick.stepped_from_ms is None else tick.stepped_from_ms) <= tick.at_ms
        last = tick.at_ms
