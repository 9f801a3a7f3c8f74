"""What the queue of one agent costs: submit to a job's first instruction over HTTP, and a thousand short jobs in a row.

Run: python -m tests.bench.bench_jobs [ROUNDS [JOBS]]. Needs root (cgroups). The budget is design.md's.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.support.job_agent import JobAgent, wait_for  # noqa: E402
from tests.support.many_jobs import left_by, run_many, settled  # noqa: E402

START_BUDGET_MS = 150.0


def starts_ms(agent: JobAgent, rounds: int) -> list[float]:
    """From before the request is sent to the program's own clock."""
    found = []
    for _ in range(rounds):
        begin = time.time()
        id = agent.submit("/bin/date", "+%s.%N")
        agent.ended(id)
        found.append((float(agent.text(id)) - begin) * 1e3)
    return sorted(found)


def cpu_seconds(agent: JobAgent) -> float:
    assert agent.process is not None
    fields = Path(f"/proc/{agent.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def main(rounds: int = 100, jobs: int = 1000) -> None:
    with tempfile.TemporaryDirectory() as folder:
        agent = JobAgent(Path(folder)).start()
        try:
            starts_ms(agent, 3)
            times = starts_ms(agent, rounds)
            p99 = times[min(len(times) - 1, round(0.99 * len(times)))]
            verdict = "within" if statistics.median(times) <= START_BUDGET_MS else "OVER"
            print(f"submit to first instruction: median {statistics.median(times):.0f} ms, p99 {p99:.0f} ms "
                  f"({rounds} jobs; {verdict} the budget of {START_BUDGET_MS:.0f} ms)")  # fmt: skip
            before, cpu = left_by(agent), cpu_seconds(agent)
            seconds = run_many(agent, jobs)
            after = settled(agent, before)
            wait_for(lambda: left_by(agent).descriptors <= before.descriptors, 30, lambda: f"{before} became {after}")
            print(f"{jobs} short jobs: {seconds:.1f} s, {jobs / seconds:.0f} jobs/s, "
                  f"{1e3 * (cpu_seconds(agent) - cpu) / jobs:.1f} ms CPU of the agent each; left behind: nothing")  # fmt: skip
        finally:
            agent.close()


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
