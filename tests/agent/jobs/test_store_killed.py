"""A queue whose writer is killed with -9 again and again: what it said was on the disk is there, and the file is whole."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
from pathlib import Path

from agent.jobs.store import JobStore

ROOT = Path(__file__).parents[3]
ROUNDS = 6


def written_until_killed(path: Path, seed: int, count: int) -> list[list[str]]:
    """What one writer said before it was killed, in the midst of its work after so many steps."""
    command = [sys.executable, "-m", "tests.support.queue_writer", str(path), str(seed)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "open\n"
        said = "".join(writer.stdout.readline() for _ in range(count))
        writer.kill()
        said += writer.stdout.read()
        assert writer.wait() == -9, "it was killed and did not end by itself"
    return [line.split() for line in said.splitlines(keepends=True) if line.endswith("\n")]


def test_nothing_that_was_said_is_lost_and_nothing_begins_twice(tmp_path: Path) -> None:
    path, chance = tmp_path / "queue.db", random.Random(7)
    begun: set[tuple[str, str]] = set()
    over: set[tuple[str, str]] = set()
    added: dict[str, int] = {}
    for seed in range(ROUNDS):
        for word, id, number in written_until_killed(path, seed, chance.randrange(5, 60)):
            if word == "added":
                added[id] = int(number)
            elif word == "begun":
                assert (id, number) not in begun
                begun.add((id, number))
            elif word == "over":
                over.add((id, number))
        check(path, added, begun, over)
    assert len(begun) > ROUNDS
    assert over


def check(path: Path, added: dict[str, int], begun: set[tuple[str, str]], over: set[tuple[str, str]]) -> None:
    store = JobStore.open(path)
    try:
        for id, tasks in added.items():
            assert store.find(id) is not None
            assert sum(store.array_counts(id).values()) == tasks
        for job in {job for job, _ in begun}:
            attempts = store.attempts(job)
            assert [one.number for one in attempts] == list(range(1, len(attempts) + 1))
            assert {number for one, number in begun if one == job} <= {str(one.number) for one in attempts}
            assert all(one.ended_at is not None for one in attempts[:-1]), "an attempt began before the last one was over"
            ended = {str(one.number) for one in attempts if one.ended_at is not None}
            assert {number for one, number in over if one == job} <= ended
            now = store.get(job)
            assert (attempts[-1].ended_at is None) == now.holds
    finally:
        store.close()
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()
