"""A program that works on a queue as fast as it can and says on stdout, after each step, what is now on the disk.

`python queue_writer.py PATH SEED`; it is meant to be killed.
"""

from __future__ import annotations

import random
import sys
from datetime import UTC, datetime

from agent.jobs import arrays
from agent.jobs.cause import Verdict
from agent.jobs.ids import IdSource
from agent.jobs.rows import JobRow
from agent.jobs.store import JobStore
from tests.support.queueing import spec

OK = Verdict(cause="exit:0", evidence="", exit_code=0)


def main(path: str, seed: int) -> None:
    chance, ids = random.Random(seed), IdSource()
    store = JobStore.open(path)
    print("open", flush=True)
    while True:
        now = datetime.now(UTC)
        waiting, holding = store.waiting(), store.holding()
        step = chance.random()
        if step < 0.3 or not (waiting or holding):
            id = ids.new()
            array = tuple(range(chance.choice([0, 0, 50])))
            store.add(arrays.rows(JobRow(id=id, spec=spec(array=array), submitted_at=now)))
            print("added", id, len(array), flush=True)
        elif step < 0.6 and waiting:
            attempt = store.begin_attempt(chance.choice(waiting).id, (), (), now)
            print("begun", attempt.job, attempt.number, flush=True)
        elif step < 0.7 and holding:
            stopped = store.want_stop(chance.choice(holding).id, "preempted", now)
            print("stop", stopped.id, stopped.attempt, flush=True)
        elif holding:
            job = chance.choice(holding)
            store.end_attempt(job.id, job.attempt, OK, now, requeue_at=now if chance.random() < 0.3 else None)
            print("over", job.id, job.attempt, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
