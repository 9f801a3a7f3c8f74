"""The search for cyclic garbage rests while many rows are made, and goes on afterwards whatever happened."""

from __future__ import annotations

import gc
import threading

import pytest

from pricing.garbage import paused


def test_it_is_on_again_after_an_error_and_stays_off_where_it_was_off() -> None:
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError), paused(), paused():
        assert not gc.isenabled()
        1 / 0
    assert gc.isenabled()
    gc.disable()
    try:
        with paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_threads_that_overlap_leave_it_on() -> None:
    first_in, second_in, first_out = threading.Event(), threading.Event(), threading.Event()

    def first() -> None:
        with paused():
            first_in.set()
            second_in.wait(60)
        first_out.set()

    def second() -> None:
        first_in.wait(60)
        with paused():
            second_in.set()
            first_out.wait(60)

    threads = [threading.Thread(target=body) for body in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert gc.isenabled()


def test_it_is_paused_until_the_last_that_wants_it_is_done_and_on_however_often_threads_meet() -> None:
    entered, left = threading.Event(), threading.Event()

    def longer() -> None:
        with paused():
            entered.set()
            left.wait(60)

    thread = threading.Thread(target=longer)
    with paused():
        thread.start()
        assert entered.wait(60)
    assert not gc.isenabled(), "another one still makes rows"
    left.set()
    thread.join(60)
    assert gc.isenabled()

    def often() -> None:
        for _ in range(2000):
            with paused():
                pass

    threads = [threading.Thread(target=often) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert gc.isenabled()
