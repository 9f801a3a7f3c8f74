"""The cause of an end: by precedence, from what happened, with figures in its evidence."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from agent.jobs.attempt_dir import Counters, ExitRecord, Stopped
from agent.jobs.cause import INTENTS, judge
from tests.support.queueing import after


def ended(
    *, signalled: float | None = None, killed: float | None = None, cause: str | None = None, **fields: Any
) -> ExitRecord:
    """An exit record; `signalled` and `killed` in seconds after T0, the end at 100."""
    counters = Counters(**{name: fields.pop(name) for name in list(fields) if name in Counters.__struct_fields__})
    stop = None
    if cause is not None:
        at = None if signalled is None else after(seconds=signalled)
        stop = Stopped(cause=cause, signalled_at=at, killed_at=None if killed is None else after(seconds=killed))
    return ExitRecord(job="0" * 12, attempt=1, ended_at=after(seconds=100), counters=counters, stop=stop, **fields)


def told(record: ExitRecord | None, standing: str = "exited", intent: str | None = None, **more: Any) -> tuple[str, str]:
    verdict = judge(record, standing, intent, **more)
    return verdict.cause, verdict.evidence


def test_an_exit_code_is_its_cause_and_a_clean_one_too() -> None:
    assert told(ended(exit_code=0)) == ("exit:0", "it ended with exit code 0")
    assert told(ended(exit_code=7)) == ("exit:7", "it ended with exit code 7")
    verdict = judge(ended(exit_code=7), "exited", None)
    assert (verdict.exit_code, verdict.signal, verdict.started) == (7, None, True)


def test_an_oom_kill_counts_also_when_the_job_exits_0() -> None:
    cause, evidence = told(ended(exit_code=0, oom_kills=1, memory_peak_bytes=2**30, memory_limit_bytes=2**30))
    assert cause == "oom"
    assert "killed 1 of its processes" in evidence
    assert "1.0 GiB with a limit of 1.0 GiB" in evidence
    assert "exit code 0" in evidence


def test_an_oom_kill_without_a_limit_of_ours_is_the_machines() -> None:
    cause, evidence = told(ended(signal=9, oom_kills=2, memory_peak_bytes=2**29))
    assert cause == "oom"
    assert "512 MiB without a limit of its own" in evidence


@pytest.mark.parametrize("kills", [0, None])
def test_a_peak_at_the_limit_is_no_oom_kill(kills: int | None) -> None:
    record = ended(exit_code=1, oom_kills=kills, oom_events=5, memory_peak_bytes=2**30, memory_limit_bytes=2**30)
    assert told(record)[0] == "exit:1"


def test_sigkill_from_outside_is_signal_9_and_a_shells_137_stays_an_exit_code() -> None:
    assert told(ended(signal=9, oom_kills=0))[0] == "signal:9"
    assert "SIGKILL (9)" in told(ended(signal=9, oom_kills=0))[1]
    cause, evidence = told(ended(exit_code=137, oom_kills=0))
    assert cause == "exit:137"
    assert "SIGKILL (9)" in evidence
    assert "signal 77" in told(ended(signal=77))[1]


@pytest.mark.parametrize("intent", INTENTS)
def test_a_stop_that_was_signalled_is_the_cause(intent: str) -> None:
    record = ended(exit_code=0, cause=intent, signalled=60, killed=90)
    cause, evidence = told(record, intent=intent, intent_evidence="why so")
    assert cause == intent
    assert evidence == "why so, signalled at 12:01:00 UTC, killed 30 s later; it ended with exit code 0"


@pytest.mark.parametrize("intent", INTENTS)
@pytest.mark.parametrize("signalled", [None, 101])
def test_one_that_came_too_late_is_not(intent: str, signalled: float | None) -> None:
    assert told(ended(exit_code=0), intent=intent)[0] == "exit:0"
    cause, evidence = told(ended(exit_code=0, cause=intent, signalled=signalled), intent=intent)
    assert cause == "exit:0"
    assert f"was to be stopped ({intent}) but had ended by itself" in evidence


def test_the_shims_own_time_limit_needs_no_intent_and_a_cancel_during_it_wins() -> None:
    record = ended(signal=15, cause="time_limit", signalled=90)
    assert told(record)[0] == "time_limit"
    assert told(record, intent="cancelled")[0] == "cancelled"
    assert told(record, intent="preempted")[0] == "time_limit"


def test_an_oom_before_the_stop_is_told_with_it() -> None:
    cause, evidence = told(ended(signal=15, cause="preempted", signalled=90, oom_kills=1), intent="preempted")
    assert cause == "preempted"
    assert "before that the kernel killed 1" in evidence


def test_a_start_error_comes_before_everything_and_nothing_ran() -> None:
    verdict = judge(ended(start_error="no such file:\x1b[31m train", cause="cancelled", signalled=1), "exited", "cancelled")
    assert (verdict.cause, verdict.started) == ("start_error", False)
    assert verdict.evidence == "nothing was run: no such file: [31m train"


@pytest.mark.parametrize("intent", [None, "cancelled"])
def test_what_outlives_the_kill_is_unkillable_and_named(intent: str | None) -> None:
    record = ended(cause="cancelled", signalled=10, killed=40, empty=False, left=(4711,))
    cause, evidence = told(record, intent=intent)
    assert cause == "unkillable"
    assert "1 of its processes could not be killed (pid 4711)" in evidence
    assert "it was being stopped as cancelled" in evidence
    driver = ("process 99 still holds GPU 3",)
    assert told(ended(exit_code=0), left=driver)[0] == "unkillable"
    assert "process 99 still holds GPU 3" in told(ended(exit_code=0), left=driver)[1]


@pytest.mark.parametrize(("standing", "cause"), [("rebooted", "node_reboot"), ("lost", "lost"), ("not_started", "lost")])
def test_without_an_exit_record_the_standing_decides(standing: str, cause: str) -> None:
    verdict = judge(None, standing, None)
    assert (verdict.cause, verdict.started) == (cause, standing != "not_started")
    assert verdict.evidence
    stopped = judge(None, standing, "spot_reclaim", intent_evidence="AWS takes the node at 12:02")
    assert stopped.cause == "spot_reclaim"
    assert "AWS takes the node at 12:02" in stopped.evidence


def test_torch_elastics_error_file_is_quoted_and_cannot_break_the_sentence() -> None:
    said = json.dumps({"message": {"message": "ValueError: bad\n\x1b[2Jthing", "extraInfo": {}}, "errorCode": 1})
    assert told(ended(exit_code=1), error_file=said)[1] == "it ended with exit code 1: ValueError: bad [2Jthing"
    assert "RuntimeError" in told(ended(exit_code=1), error_file=b'{"message": "RuntimeError: x"}')[1]
    for junk in (b"\xff\xfe", "", "[]", '{"message": 5}', "{", json.dumps({"message": {"message": "x" * 9999}})):
        assert len(told(ended(exit_code=1), error_file=junk)[1]) < 500


def test_what_was_left_running_and_killed_is_counted() -> None:
    assert "; 3 processes that it left running were killed" in told(ended(exit_code=0, leftover_killed=3))[1]


def test_no_status_at_all_is_lost() -> None:
    assert told(ended())[0] == "lost"


def test_the_record_may_be_the_dict_that_it_was_read_from() -> None:
    record = ended(signal=15, cause="budget", signalled=60, oom_kills=0)
    as_dict = json.loads(msgspec.json.encode(record))
    assert judge(as_dict, "exited", "budget") == judge(record, "exited", "budget")
