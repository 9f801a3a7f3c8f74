"""How long the embedded catalog takes to load and how much memory it keeps: `python tests/bench/bench_catalog.py`.

Invariant: every figure comes from a fresh interpreter, because the catalog is read once per process.
The target is 60 ms CPU for all four tables; a node needs only its own cloud's.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys

PROBE = """
import json, sys, time, tracemalloc
start = time.process_time()
from pricing.catalog import CLOUDS, Catalog
imported = time.process_time()
catalog = Catalog.embedded()
wanted = sys.argv[1]
if wanted == "memory":
    tracemalloc.start()
if wanted == "aws":
    catalog.quote("aws", "us-east-1", None, "p4d.24xlarge", "on_demand")
else:
    for cloud in CLOUDS:
        catalog.quote(cloud, "us-east-1", None, next(iter(catalog.instances(cloud))).instance_type, "on_demand")
loaded = time.process_time()
kept = tracemalloc.get_traced_memory()[0] if wanted == "memory" else None
again = time.process_time()
for _ in range(1000):
    catalog.quote("aws", "us-east-1", "use1-az1", "p4d.24xlarge", "spot")
quoted = time.process_time()
print(json.dumps({"import": imported - start, "load": loaded - imported,
    "kept": kept, "quote": (quoted - again) / 1e3}))
"""


def probe(wanted: str) -> dict[str, float]:
    done = subprocess.run([sys.executable, "-c", PROBE, wanted], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def main() -> None:
    for wanted in ("aws", "all"):
        runs = [probe(wanted) for _ in range(7)]
        load, start, quote = (statistics.median(run[key] for run in runs) for key in ("load", "import", "quote"))
        print(f"{wanted:>3}: load {load * 1e3:5.1f} ms CPU ({load / 0.060:.2f} of 60 ms), import {start * 1e3:.1f} ms, "
              f"quote {quote * 1e6:.0f} us")  # fmt: skip
    print(f"all: {probe('memory')['kept'] / 1e6:.1f} MB kept")


if __name__ == "__main__":
    main()
