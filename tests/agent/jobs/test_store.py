"""The queue's file: at most one start an attempt, intents that stay, and what is said of a file that cannot be used."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent import wire
from agent.errors import JobConflict, JobFault, JobRefused, JobUnknown, StateDirectoryError, StateFull, StateLocked, StateTooNew
from agent.jobs import arrays, schema
from agent.jobs.cause import Verdict
from agent.jobs.rows import JobRow
from agent.jobs.store import JobStore
from tests.support.queueing import T0, after, job_id, row, spec

OK = Verdict(cause="exit:0", evidence="it ended with exit code 0", exit_code=0)
KILLED = Verdict(cause="signal:9", evidence="killed", signal=9)
ONE, TWO = job_id(1), job_id(2)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queue.db"


@pytest.fixture
def store(path: Path) -> Iterator[JobStore]:
    opened = JobStore.open(path, durable=False)
    yield opened
    opened.close()


def again(store: JobStore, path: Path) -> JobStore:
    """The file as another agent finds it; what was in memory must have been the same."""
    fresh = JobStore.open(path, durable=False)
    try:
        assert fresh.unended() == store.unended()
        assert fresh.counts() == store.counts()
        assert {one.id: one for one in fresh.holding()} == {one.id: one for one in store.holding()}
        assert fresh.outcomes() == {one: how for one, how in store.outcomes().items() if one in fresh.outcomes()}
    finally:
        fresh.close()
    return store


def run(path: Path, sql: str) -> None:
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(sql)
    connection.close()


FULL = JobRow(
    id=ONE,
    spec=spec(gpu_share=Decimal("0.5"), budget_usd=Decimal("1.10"), env={"A": "b"}, deadline=T0, after=()),
    user="ann",
    actor="laptop",
    submitted_at=T0,
    not_before=after(seconds=1),
    cause="exit:1",
    evidence="e",
    exit_code=1,
    gpus=("g0",),
    cpu_ids=(1, 2),
    numa_nodes=(0,),
    enforcement="v1",
    limits={"memory": "1 GiB"},
    not_enforced=("cpuset",),
    warnings=("w",),
    placement="GPU 0",
    usage=wire.JobUsage(cpu_seconds=1.5, memory_peak_bytes=7),
    usd_per_hour=Decimal("3.10"),
    cost=Decimal("0.000001"),
    left_behind=("process 9",),
    log_bytes=5,
    log_dropped_lines=0,
    notes={"gang": "x"},
)


def test_every_field_comes_back_as_it_was(store: JobStore, path: Path) -> None:
    store.add([FULL, row(2)])
    again(store, path)
    assert store.get(ONE) == FULL
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_no_secret_is_ever_in_the_file(store: JobStore, path: Path) -> None:
    store.add(arrays.rows(row(1, secrets={"WANDB_KEY": "hunter2-value"}, array=(1, 2))))
    assert store.get(f"{ONE}_1").spec.secrets == {"WANDB_KEY": ""}
    store.begin_attempt(f"{ONE}_1", (), (), T0)
    for file in path.parent.iterdir():
        assert b"hunter2" not in file.read_bytes()


def test_a_job_goes_its_way(store: JobStore, path: Path) -> None:
    store.add(row(1, gpus=2, user="ann"))
    attempt = store.begin_attempt(
        ONE, ("g0", "g1"), (4, 5), after(seconds=1), numa_nodes=(0,), boot_id="b", placement="GPUs 0-1"
    )
    assert (attempt.number, attempt.gpus, attempt.boot_id) == (1, ("g0", "g1"), "b")
    assert (store.get(ONE).state, store.get(ONE).placement) == ("starting", "GPUs 0-1")
    assert store.mark_running(ONE, 1, after(seconds=2), enforcement="v1").state == "running"
    store.note({ONE: {"cost": Decimal("1.5"), "usage": wire.JobUsage(gpu_seconds=3.0)}})
    assert [one.id for one in again(store, path).holding()] == [ONE]
    ended = store.end_attempt(ONE, 1, OK, after(seconds=9), attempt_cost=Decimal("1.5"), left_behind=("x",))
    assert (ended.state, ended.cause, ended.exit_code, ended.gpus, ended.left_behind) == (
        "ended",
        "exit:0",
        0,
        ("g0", "g1"),
        ("x",),
    )
    assert (ended.cost, ended.started_at, ended.ended_at) == (Decimal("1.5"), after(seconds=2), after(seconds=9))
    (kept,) = again(store, path).attempts(ONE)
    assert (kept.cause, kept.cost, kept.started_at, kept.cpu_ids) == ("exit:0", Decimal("1.5"), after(seconds=2), (4, 5))
    assert kept.to_wire().number == 1
    assert (store.unended(), store.holding(), store.ended(9)) == ([], [], [ended])


def test_a_job_starts_at_most_once_an_attempt(store: JobStore) -> None:
    store.add(row(1))
    store.begin_attempt(ONE, (), (), T0)
    for state in ("starting", "running", "stopping", "ended"):
        with pytest.raises(JobConflict, match="cannot be started again|has ended already"):
            store.begin_attempt(ONE, (), (), T0)
        if state == "starting":
            store.mark_running(ONE, 1, T0)
        elif state == "running":
            store.want_stop(ONE, "cancelled", T0)
        elif state == "stopping":
            store.end_attempt(ONE, 1, OK, T0)
    assert len(store.attempts(ONE)) == 1


def test_the_compare_and_set_is_in_the_file_and_not_only_in_memory(store: JobStore, path: Path) -> None:
    store.add(row(1))
    run(path, "UPDATE job SET state = 'starting', attempt = 1")
    with pytest.raises(JobConflict, match="was changed by another program"):
        store.begin_attempt(ONE, (), (), T0)
    assert store.attempts(ONE) == []
    run(
        path,
        f"UPDATE job SET state = 'queued', attempt = 0; INSERT INTO attempt (job, number, begun_at) VALUES ('{ONE}', 1, 0)".split(
            ";"
        )[0],
    )
    run(path, f"INSERT INTO attempt (job, number, begun_at) VALUES ('{ONE}', 1, 0)")
    with pytest.raises(JobConflict, match="attempt 1 of job .* was begun before"):
        store.begin_attempt(ONE, (), (), T0)
    assert store.get(ONE).state == "queued"


def test_a_retry_is_the_next_attempt(store: JobStore, path: Path) -> None:
    store.add(row(1, retries=2))
    store.begin_attempt(ONE, ("g0",), (), T0)
    back = store.end_attempt(ONE, 1, KILLED, after(seconds=5), requeue_at=after(seconds=15), uses_retry=True)
    assert (back.state, back.not_before, back.retries, back.cause, back.ended_at) == (
        "queued",
        after(seconds=15),
        1,
        "signal:9",
        None,
    )
    assert [one.id for one in again(store, path).waiting()] == [ONE]
    assert store.begin_attempt(ONE, ("g1",), (), after(seconds=16)).number == 2
    now = store.get(ONE)
    assert (now.not_before, now.cause, now.signal, now.gpus, now.started_at) == (None, None, None, ("g1",), None)
    with pytest.raises(JobConflict, match="attempt 1 of job .* is not the one that runs"):
        store.end_attempt(ONE, 1, OK, after(seconds=17))
    assert [one.number for one in store.attempts(ONE)] == [1, 2]


def test_a_stop_is_an_intent_that_stays(store: JobStore, path: Path) -> None:
    store.add([row(1), row(2)])
    assert store.want_stop(ONE, "cancelled", T0, evidence="ann asked").state == "queued"
    with pytest.raises(JobConflict, match=r"is to be stopped \(cancelled\)"):
        store.begin_attempt(ONE, (), (), T0)
    assert store.end(ONE, "cancelled", "before it began", after(seconds=1)).state == "ended"
    store.begin_attempt(TWO, (), (), T0)
    assert store.want_stop(TWO, "preempted", T0, evidence="for job 3").state == "stopping"
    again(store, path)
    assert store.mark_running(TWO, 1, after(seconds=1)).state == "stopping"
    with pytest.raises(JobConflict, match="has to be stopped first"):
        store.end(TWO, "cancelled", "x", T0)
    with pytest.raises(JobConflict, match="has ended already"):
        store.want_stop(ONE, "cancelled", T0)


def test_the_first_cause_stands_but_a_cancel_replaces_it_and_a_shorter_grace_shortens(store: JobStore) -> None:
    store.add(row(1, grace_seconds=30))
    store.begin_attempt(ONE, (), (), T0)
    store.want_stop(ONE, "preempted", T0, evidence="for job 3")
    assert store.want_stop(ONE, "time_limit", after(seconds=1)).stop_cause == "preempted"
    assert store.want_stop(ONE, "spot_reclaim", after(seconds=2), grace_seconds=60.0).stop_grace_seconds is None
    shorter = store.want_stop(ONE, "spot_reclaim", after(seconds=3), grace_seconds=10.0)
    assert (shorter.stop_cause, shorter.stop_grace_seconds, shorter.stop_at) == ("preempted", 10.0, after(seconds=3))
    assert store.want_stop(ONE, "budget", after(seconds=9), grace_seconds=5.0).stop_at == after(seconds=3), "it would end later"
    cancelled = store.want_stop(ONE, "cancelled", after(seconds=4), evidence="ann asked")
    assert (cancelled.stop_cause, cancelled.stop_evidence, cancelled.stop_at) == ("cancelled", "ann asked", after(seconds=3))


@pytest.mark.parametrize(
    ("cause", "state"), [("cancelled", "ended"), ("budget", "ended"), ("preempted", "queued"), (None, "queued")]
)
def test_a_cancelled_job_is_not_queued_again_whoever_asks(store: JobStore, cause: str | None, state: str) -> None:
    store.add(row(1))
    store.begin_attempt(ONE, (), (), T0)
    if cause is not None:
        store.want_stop(ONE, cause, T0)
    over = store.end_attempt(ONE, 1, KILLED, T0, requeue_at=T0)
    assert over.state == state
    assert over.stop_cause == (cause if state == "ended" else None)


def test_a_gpu_is_never_given_twice(store: JobStore) -> None:
    share = {"gpu_share": Decimal("0.4")}
    store.add([row(1, gpus=2), row(2, gpus=1), *(row(number, **share) for number in (3, 4, 5))])
    store.begin_attempt(ONE, ("g0", "g1"), (), T0)
    for other in (TWO, job_id(3)):
        with pytest.raises(JobConflict, match=f"GPU g1 is held by job {ONE}"):
            store.begin_attempt(other, ("g1",), (), T0)
    store.begin_attempt(job_id(3), ("g2",), (), T0)
    store.begin_attempt(job_id(4), ("g2",), (), T0)
    for other in (TWO, job_id(5)):
        with pytest.raises(JobConflict, match="GPU g2 is held by job"):
            store.reserve(other, ("g2",), (), T0)
    store.end_attempt(ONE, 1, OK, T0)
    store.begin_attempt(TWO, ("g1",), (), T0)


def test_a_reservation_holds_its_place_until_it_is_used_let_go_or_over(store: JobStore, path: Path) -> None:
    store.add([row(1, gpus=1), row(2, gpus=1)])
    held = store.reserve(ONE, ("g0",), (1,), after(seconds=60))
    assert held.holds
    assert [one.id for one in again(store, path).waiting()] == [TWO]
    with pytest.raises(JobConflict, match="GPU g0 is held"):
        store.begin_attempt(TWO, ("g0",), (), T0)
    with pytest.raises(JobConflict, match="reservation of job .* ended at 12:01:00 UTC"):
        store.begin_attempt(ONE, ("g0",), (1,), after(seconds=60))
    assert not store.release(ONE).holds
    store.begin_attempt(TWO, ("g0",), (), T0)
    store.reserve(ONE, ("g1",), (), after(seconds=60))
    store.begin_attempt(ONE, ("g1",), (), after(seconds=59))
    assert store.get(ONE).held_until is None


def test_the_own_row_of_an_array_ends_with_its_last_task(store: JobStore, path: Path) -> None:
    store.add(arrays.rows(row(1, array=(0, 1, 2))))
    assert (store.counts().queued, len(store.unended()), len(store.waiting())) == (3, 4, 3)
    with pytest.raises(JobConflict, match="is an array"):
        store.begin_attempt(ONE, (), (), T0)
    for index, verdict in enumerate((OK, KILLED)):
        store.begin_attempt(f"{ONE}_{index}", (), (), T0)
        store.end_attempt(f"{ONE}_{index}", 1, verdict, after(seconds=index))
    assert store.array_counts(ONE) == {"ended": 2, "queued": 1}
    assert store.get(ONE).state == "queued"
    store.end(f"{ONE}_2", "cancelled", "x", after(seconds=7))
    own = again(store, path).get(ONE)
    assert (own.state, own.ended_at, own.cause) == ("ended", after(seconds=7), "cancelled")
    assert own.evidence == "2 of 3 tasks did not end well: 1 cancelled, 1 signal:9"
    assert [one.id for one in store.tasks(ONE)] == [f"{ONE}_{index}" for index in range(3)]
    assert (store.counts().ended, store.unended()) == (3, [])


def test_an_array_of_ten_thousand_is_added_stopped_and_ended_in_three_transactions(store: JobStore, path: Path) -> None:
    store.add(arrays.rows(row(1, array=tuple(range(10_000)))))
    store.begin_attempt(f"{ONE}_0", (), (), T0)
    store.want_stop(ONE, "cancelled", T0)
    assert {one.stop_cause for one in store.unended()} == {"cancelled"}
    assert store.end(ONE, "cancelled", "ann asked", T0).state == "queued"
    assert [one.id for one in again(store, path).unended()] == [ONE, f"{ONE}_0"]
    store.end_attempt(f"{ONE}_0", 1, OK, T0)
    assert store.counts().ended == 10_000
    gone = 0
    while taken := store.prune(after(days=1)):
        gone += len(taken)
    assert (gone, store.counts().ended) == (10_001, 0)
    connection = sqlite3.connect(path)
    assert [connection.execute(f"SELECT count(*) FROM {table}").fetchone() for table in ("job", "attempt", "spec")] == [
        (0,)
    ] * 3
    connection.close()


def test_jobs_can_only_wait_for_jobs_that_are_there(store: JobStore) -> None:
    with pytest.raises(JobRefused, match="there is no job"):
        store.add([row(1, after=(TWO,)), row(2, after=(ONE,))])
    assert store.unended() == []
    with pytest.raises(JobRefused, match="cannot wait for itself"):
        store.add(row(1, after=(ONE,)))
    store.add(row(1))
    store.add(arrays.rows(row(2, after=(ONE, f"any:{ONE}"), array=(1, 2))))
    with pytest.raises(JobConflict, match="is there already"):
        store.add([row(3), row(2)])
    assert store.find(job_id(3)) is None


def test_how_the_jobs_ended_that_others_wait_for_is_always_known(store: JobStore, path: Path) -> None:
    store.add([row(1), row(2)])
    store.end(TWO, "cancelled", "x", T0)
    store.add([row(3, after=(ONE, f"notok:{TWO}")), row(4, after=(f"any:{ONE}",))])
    assert store.outcomes() == {TWO: "badly"}
    store.begin_attempt(ONE, (), (), T0)
    store.end_attempt(ONE, 1, OK, T0)
    assert again(store, path).outcomes() == {ONE: "well", TWO: "badly"}
    assert store.prune(after(days=1)) == []
    store.end(job_id(3), "cancelled", "x", after(days=2))
    assert store.prune(after(days=1)) == [TWO]
    run(path, "DELETE FROM job WHERE id = '000000000001'")
    fresh = JobStore.open(path)
    assert fresh.outcomes() == {ONE: "gone"}
    fresh.close()


def test_ended_jobs_come_newest_first(store: JobStore) -> None:
    store.add([row(number) for number in range(5)])
    for number in (3, 1, 4, 0):
        store.end(job_id(number), "cancelled", "x", after(seconds=number))
    assert [one.id for one in store.ended(3)] == [job_id(4), job_id(3), job_id(1)]


def test_what_a_change_may_not_do(store: JobStore) -> None:
    store.add(row(1))
    with pytest.raises(JobConflict, match="is queued and cannot become running"):
        store.change(ONE, state="running")
    with pytest.raises(JobConflict, match="cannot become starting"):
        store.change(ONE, state="starting")
    for wrong in ({"state": "ended"}, {"spec": spec()}, {"attempt": 7}, {"colour": 1}):
        with pytest.raises((ValueError, TypeError)):
            store.change(ONE, **wrong)
    with pytest.raises(ValueError, match="state cannot be given here"):
        store.note({ONE: {"state": "ended"}})
    assert store.change(ONE, warnings=("w",), cost=None).warnings == ("w",)
    assert store.get(ONE).state == "queued"


@pytest.mark.parametrize("id", [TWO, "../../etc", "", f"{ONE}_5"])
def test_a_job_that_is_not_there_is_said_to_be_so(store: JobStore, id: str) -> None:
    store.add(row(1))
    for call in (store.get, lambda one: store.change(one, cost=None), lambda one: store.want_stop(one, "cancelled", T0)):
        with pytest.raises(JobUnknown):
            call(id)  # type: ignore[operator]


def test_a_write_that_fails_changes_nothing_in_memory_either(store: JobStore, path: Path) -> None:
    store.add(row(1))
    blocker = sqlite3.connect(path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    store._file._db.execute("PRAGMA busy_timeout = 10")
    with pytest.raises(StateLocked, match="locked by another program"):
        store.begin_attempt(ONE, (), (), T0)
    blocker.execute("ROLLBACK")
    blocker.close()
    assert store.get(ONE).state == "queued"
    assert store.begin_attempt(ONE, (), (), T0).number == 1


def test_a_full_disk_is_said_and_changes_nothing(store: JobStore, path: Path) -> None:
    store.add(row(1))
    pages = store._file._db.execute("PRAGMA page_count").fetchone()[0]
    store._file._db.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StateFull, match=r"no space is left to write .*queue\.db; free some"):
        store.add([row(number, env={"A": "x" * 5000}) for number in range(2, 20)])
    assert [one.id for one in again(store, path).unended()] == [ONE]


def test_a_queue_of_a_newer_version_is_refused(store: JobStore, path: Path) -> None:
    run(path, f"PRAGMA user_version = {len(schema.MIGRATIONS) + 1}")
    with pytest.raises(StateTooNew, match=r"queue\.db was written by a newer version .*install that version"):
        JobStore.open(path)


@pytest.mark.parametrize(
    "content", [b"this is no database, and long enough to be sure" * 50, b"SQLite format 3\0" + bytes(5000)]
)
def test_a_damaged_queue_is_named_and_left_where_it_is(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(StateDirectoryError, match=r"queue\.db is damaged .*move it away"):
        JobStore.open(path)
    assert path.read_bytes() == content


def test_a_page_that_went_bad_is_found_when_the_agent_starts(store: JobStore, path: Path) -> None:
    store.add([row(number, env={"A": "x" * 900}) for number in range(200)])
    store.close()
    data = bytearray(path.read_bytes())
    size = 4096
    for page in range(2, len(data) // size):
        data[page * size : page * size + 64] = b"\xff" * 64
    path.write_bytes(data)
    with pytest.raises(StateDirectoryError, match="is damaged") as told:
        JobStore.open(path)
    assert "\n" not in str(told.value)


def test_a_table_that_is_missing_is_damage(store: JobStore, path: Path) -> None:
    run(path, "DROP TABLE attempt")
    with pytest.raises(StateDirectoryError, match="is damaged .*no such table"):
        JobStore.open(path)


def test_a_folder_or_a_link_is_no_queue(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for bad in (tmp_path, tmp_path / "link", tmp_path / "no" / "where"):
        with pytest.raises(StateDirectoryError, match="cannot be opened"):
            JobStore.open(bad)
    assert not (tmp_path / "elsewhere").exists()


def test_a_spec_with_a_field_that_is_no_more_is_read_without_it(store: JobStore, path: Path) -> None:
    store.add(row(1, priority=7))
    run(path, """UPDATE spec SET text = replace(text, '{"', '{"long_gone":1,"')""")
    fresh = JobStore.open(path)
    assert fresh.get(ONE).spec == spec(priority=7)
    fresh.close()


STEPS = st.lists(st.tuples(st.sampled_from("abrsecqxn"), st.integers(0, 4), st.booleans()), max_size=60)


@settings(deadline=None, max_examples=40)
@given(STEPS)
def test_whatever_is_called_no_attempt_begins_twice_and_file_and_memory_agree(steps: list[tuple[str, int, bool]]) -> None:
    store = JobStore.open(":memory:")
    begun: set[tuple[str, int]] = set()
    at = T0
    try:
        for step, number, flag in steps:
            at += timedelta(seconds=1)
            before = store.find(job_id(number))
            try:
                one_step(store, step, number, flag, at, begun)
            except JobFault:
                assert store.find(job_id(number)) == before
            assert store._file.unended() == store.unended()
            used = [gpu for one in store.holding() for gpu in one.gpus]
            assert len(used) == len(set(used))
        assert begun == {(one.job, one.number) for number in range(5) for one in store.attempts(job_id(number))}
        for number in range(5):
            newest = [one.number for one in store.attempts(job_id(number))]
            assert newest == list(range(1, len(newest) + 1))
    finally:
        store.close()


def one_step(store: JobStore, step: str, number: int, flag: bool, at: Any, begun: set[tuple[str, int]]) -> None:
    id, gpu = job_id(number), (f"g{number % 2}",)
    row_now = store.find(id)
    attempt = row_now.attempt if row_now else 0
    if step == "a":
        store.add(row(number, gpus=1, submitted_at=at, after=(job_id(0),) if flag and number else ()))
    elif step == "b":
        made = store.begin_attempt(id, gpu, (), at)
        assert (id, made.number) not in begun
        begun.add((id, made.number))
    elif step == "r":
        store.mark_running(id, attempt, at)
    elif step == "s":
        store.want_stop(id, "cancelled" if flag else "preempted", at)
    elif step == "e":
        store.end_attempt(id, attempt, KILLED if flag else OK, at)
    elif step == "c":
        store.end(id, "cancelled", "x", at)
    elif step == "q":
        stop = store.get(id).stop_cause
        again = store.end_attempt(id, attempt, KILLED, at, requeue_at=at, uses_retry=flag)
        assert (again.state == "ended") == (stop == "cancelled")
    elif step == "x":
        store.reserve(id, gpu, (), at + timedelta(seconds=5)) if flag else store.release(id)
    else:
        store.note({id: {"cost": Decimal(number)}})


def test_rows_are_immutable_and_two_reads_give_the_same(store: JobStore) -> None:
    store.add(row(1))
    assert store.get(ONE) is store.unended()[0]
    with pytest.raises(AttributeError):
        store.get(ONE).state = "ended"  # type: ignore[misc]
    assert msgspec.json.encode(store.get(ONE))
