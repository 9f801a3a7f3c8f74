"""Retries: for which causes, how often, and after how long."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.jobs import retry
from agent.jobs.retry import next_try
from tests.support.queueing import T0, spec

RNG = random.Random(1)
CAUSES = [*retry.NEVER, *retry.INTERRUPTED, "oom", "exit:0", "exit:1", "signal:9", "lost", "node_reboot"]


@pytest.mark.parametrize("cause", ["exit:1", "signal:9", "lost", "node_reboot"])
def test_by_default_these_are_tried_again_as_often_as_asked(cause: str) -> None:
    job = spec(retries=2)
    assert next_try(job, cause, 1, T0, RNG) is not None
    assert next_try(job, cause, 2, T0, RNG) is None
    assert next_try(spec(), cause, 0, T0, RNG) is None


@pytest.mark.parametrize("cause", sorted(retry.NEVER) + ["exit:0"])
@pytest.mark.parametrize("interruptible", [False, True])
def test_these_never_are(cause: str, interruptible: bool) -> None:
    job = spec(retries=5, retry_on=("exit", "signal", "oom", "lost"), interruptible=interruptible)
    assert next_try(job, cause, 0, T0, RNG) is None


def test_retry_on_names_causes_wholly_or_by_family() -> None:
    job = spec(retries=1, retry_on=("oom", "exit:3"))
    assert [next_try(job, cause, 0, T0, RNG) is not None for cause in ("oom", "exit:3", "exit:4", "signal:9")] == [
        True, True, False, False,
    ]  # fmt: skip
    assert next_try(spec(retries=1, retry_on=()), "exit:1", 0, T0, RNG) is None


@pytest.mark.parametrize("cause", sorted(retry.INTERRUPTED))
def test_an_interruptible_job_comes_back_at_once_and_free_of_charge(cause: str) -> None:
    job = spec(interruptible=True)
    assert next_try(job, cause, 0, T0, RNG) == T0
    assert not retry.uses_retry(job, cause)
    assert next_try(spec(), cause, 0, T0, RNG) is None
    assert retry.uses_retry(spec(), cause)


def test_an_attempt_that_never_began_is_begun_again_unless_it_is_to_be_stopped() -> None:
    assert next_try(spec(), "lost", 0, T0, RNG, started=False) == T0
    assert not retry.uses_retry(spec(), "lost", started=False)
    assert next_try(spec(), "lost", 0, T0, RNG, started=False, stop_cause="cancelled") is None


@pytest.mark.parametrize("cause", sorted(CAUSES))
def test_a_job_that_was_to_be_cancelled_never_comes_back(cause: str) -> None:
    job = spec(retries=9, interruptible=True, retry_on=("exit", "oom", "signal", "lost", "node_reboot"))
    assert next_try(job, cause, 0, T0, RNG, stop_cause="cancelled") is None


@given(st.integers(0, 1000), st.integers())
def test_the_pause_grows_to_a_cap_and_has_chance_in_it(used: int, seed: int) -> None:
    pause = retry.pause_seconds(used, random.Random(seed))
    longest = min(10.0 * 2.0 ** min(used, 30), 600.0)
    assert longest / 2 <= pause <= longest
    at = next_try(spec(retries=1001), "exit:1", used, T0, random.Random(seed))
    assert at == T0 + timedelta(seconds=pause)


def test_jobs_that_failed_together_do_not_come_back_together() -> None:
    assert len({retry.pause_seconds(0, random.Random(seed)) for seed in range(20)}) == 20


@pytest.mark.parametrize(
    ("words", "retries", "sentence"),
    [
        (("cancelled",), 1, "never tried again"),
        (("crash",), 1, "not 'crash'"),
        (("exit:0",), 1, "not 'exit:0'"),
        (("signal:x",), 1, "not 'signal:x'"),
        (None, -1, "from 0 to 1000"),
    ],
)
def test_wrong_words_are_refused(words: tuple[str, ...] | None, retries: int, sentence: str) -> None:
    assert sentence in (retry.refusal(words, retries) or "")


def test_right_ones_are_not() -> None:
    assert retry.refusal(("exit", "exit:3", "signal:9", "oom", "lost", "node_reboot", "preempted"), 3) is None
