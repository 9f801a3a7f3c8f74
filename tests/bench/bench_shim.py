"""What a job's shim costs: its memory, the time from its start to the job's first instruction and to the durable record of
its end, how fast it keeps a log, and how fast a tree of 1,000 processes is dead.

Run: python -m tests.bench.bench_shim [ROUNDS]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.support.shims import HAS_CGROUPS, Shim, Shims, python, until  # noqa: E402

MEMORY_BUDGET_MB, START_BUDGET_MS, DEAD_BUDGET_SECONDS = 8.0, 150.0, 1.0
LOG_MB = 512
PROCESSES = 1000
TREE = (
    "import os, time\nfor _ in range(%d):\n if os.fork() == 0: time.sleep(600)\nprint('up', flush=True)\ntime.sleep(600)"
    % PROCESSES
)
WRITE = "import os\nblock = (b'x' * 99 + b'\\n') * 655\nfor _ in range(%d): os.write(1, block)" % (LOG_MB * 1_000_000 // 65500)


def memory_mb(shims: Shims, holder: str) -> tuple[float, float]:
    """(PSS, private memory) of a shim whose job runs and has written a log."""
    shim = shims(python("print('x' * 1000000, 'up', flush=True); import time; time.sleep(600)"), holder=holder).start().begun()
    shim.wrote("up")
    assert shim.process is not None
    rollup = Path(f"/proc/{shim.process.pid}/smaps_rollup").read_text().splitlines()
    size = {line.split()[0]: int(line.split()[1]) / 1024 for line in rollup[1:]}
    shim.stop(0)
    shim.end()
    return size["Pss:"], size["Private_Dirty:"] + size["Private_Clean:"]


def times_ms(shims: Shims, holder: str, rounds: int) -> tuple[list[float], list[float]]:
    """Start of the shim to the program's first instruction, and to its durable exit record."""
    begun, ended = [], []
    for _ in range(rounds):
        shim = shims(["/bin/sh", "-c", "date +%s.%N"], holder=holder)
        shim.dir.prepare(shim.launch)
        begin, begin_wall = time.perf_counter(), time.time()
        shim.start()
        until(lambda: (shim.path / "exit.json").exists())
        ended.append((time.perf_counter() - begin) * 1e3)
        begun.append((float(shim.log()) - begin_wall) * 1e3)
        shim.end()
    return begun, ended


def log_mb_per_second(shims: Shims) -> float:
    shim = shims(python(WRITE), log={"rotate_bytes": 16 << 20, "quota_bytes": 64 << 20, "free_floor_bytes": 0}).start()
    begin = time.perf_counter()
    record = shim.end()
    assert record.log_dropped_lines == 0
    return record.log_bytes / 1e6 / (time.perf_counter() - begin)


def dead_seconds(shims: Shims, holder: str) -> float:
    """From the order to kill to the durable record that nothing is left."""
    shim: Shim = shims(python(TREE), holder=holder).start().wrote("up")
    begin = time.perf_counter()
    shim.stop(0)
    until(lambda: (shim.path / "exit.json").exists(), 60)
    taken = time.perf_counter() - begin
    assert shim.end().empty
    return taken


def main(rounds: int) -> int:
    """Prints the figures; 1 when a budget is missed."""
    late = False
    with tempfile.TemporaryDirectory() as folder:
        shims = Shims(Path(folder))
        try:
            for holder in ("none", "cgroup") if HAS_CGROUPS else ("none",):
                pss, private = memory_mb(shims, holder)
                begun, ended = times_ms(shims, holder, rounds)
                dead = dead_seconds(shims, holder)
                print(f"-- {holder}")
                print(f"shim, PSS                        {pss:8.1f} MB  (private {private:.1f})  budget {MEMORY_BUDGET_MB:.0f}")
                print(f"start to first instruction       {_spread(begun)}  budget {START_BUDGET_MS:.0f} from submit")
                print(f"start to durable exit record     {_spread(ended)}")
                print(f"{PROCESSES + 1} processes dead, recorded    {dead:8.2f} s  budget {DEAD_BUDGET_SECONDS:.0f}")
                late |= pss > MEMORY_BUDGET_MB or statistics.median(begun) > START_BUDGET_MS or dead > DEAD_BUDGET_SECONDS
            print(f"log through the pipe, rotated    {log_mb_per_second(shims):8.0f} MB/s")
        finally:
            shims.clear()
    return int(late)


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):8.1f} ms median, {max(values):.1f} worst of {len(values)}"


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 30))
