"""Reports of a synthetic month in every format: seconds of a processor, peak memory, size of the file, and how they grow with the fleet.

Invariant: prints figures and ratios, asserts none; each format is written by a process of its own, whose peak memory is
told beside that of an empty report (Python, the modules and pyarrow).
`python tests/bench/bench_reports.py [NODES ...]` (default 100 1000; 1,000 nodes take some minutes, most of them to fill
the ledger, and 1 GB of the temporary directory).
"""

from __future__ import annotations

import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from pricing.attribution import attribute
from pricing.catalog import Catalog
from pricing.ledger import Ledger
from pricing.report import Report
from pricing.reports import replaced
from pricing.reports.focus import FocusSource, facts_of, write_csv, write_parquet
from pricing.reports.html import HtmlReport, write_page
from pricing.reports.pages import attributed
from tests.bench.bench_ledger import GPUS, START, fill
from tests.support.report_files import write_file

END = START + timedelta(days=30)
DETAILED, FEW = ("day", "node", "user"), ("project", "user")
CASES = {
    "text project,user": ("text", FEW), "markdown project,user": ("markdown", FEW), "html with its charts": ("page", FEW),
    "json day,node,user": ("json", DETAILED), "csv day,node,user": ("csv", DETAILED),
    "parquet day,node,user": ("parquet", DETAILED), "focus csv": ("focus-csv", ()), "focus parquet": ("focus-parquet", ()),
}  # fmt: skip


def report_for(ledger: Ledger) -> Callable[[datetime, datetime, Sequence[str]], Report]:
    catalog = Catalog.embedded()
    return lambda start, end, by: attribute(ledger, catalog, start, end, by)


def write_one(path: Path, form: str, by: tuple[str, ...], out: Path) -> None:
    """What the child does."""
    with Ledger.open(path) as ledger:
        asked = report_for(ledger)
        if form.startswith("focus"):
            nodes, tags = facts_of(ledger)
            source = FocusSource(asked, START, END, nodes=nodes, tags=tags)
            with replaced(out, binary=form == "focus-parquet") as stream:
                (write_parquet if form == "focus-parquet" else write_csv)(source, stream)  # type: ignore[operator]
        elif form == "page":
            daily = attributed(asked, START, END, ("day", "project"), "UTC")
            page = HtmlReport(asked(START, END, by), daily, asked(START, END, ("job",)))
            with replaced(out) as stream:
                write_page(page, stream)  # type: ignore[arg-type]
        else:
            write_file(attributed(asked, START, END, by, "UTC"), out, form)


def child(path: Path, case: str, out: Path) -> tuple[float, float]:
    """(seconds, peak MB) of a process that writes one report."""
    words = [sys.executable, __file__, "--one", str(path), case, str(out)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    seconds, peak = done.stdout.split()
    return float(seconds), float(peak)


def one(path: str, case: str, out: str) -> None:
    form, by = CASES[case]
    begin = time.process_time()
    write_one(Path(path), form, by, Path(out))
    print(time.process_time() - begin, _peak_megabytes())


def _peak_megabytes() -> float:
    """Of this program alone: `ru_maxrss` would count what the parent had when it forked."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(re.findall(r"VmHWM:\s+(\d+)", status.read_text())[0]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def bench(folder: Path, nodes: int) -> dict[str, tuple[float, float]]:
    path, empty, out = folder / f"{nodes}.db", folder / "empty.db", folder / "out"
    begin = time.perf_counter()
    with Ledger.open(path) as ledger:
        rows = fill(ledger, nodes, 720)
    Ledger.open(empty).close()
    print(f"{nodes} nodes x {GPUS} GPUs, 30 days: {rows:,} rows in the ledger, filled in {time.perf_counter() - begin:.0f} s")
    found = {}
    for case in CASES:
        found[case] = seconds, peak = child(path, case, out)
        size = out.stat().st_size / 1e6
        _, idle = child(empty, case, out)
        print(f"  {case:<24} {seconds:8.2f} s  peak {peak:7.0f} MB (empty: {idle:4.0f} MB)  file {size:8.2f} MB", flush=True)
    path.unlink()
    return found


def main(arguments: list[str]) -> None:
    sizes = [int(argument) for argument in arguments] or [100, 1000]
    with tempfile.TemporaryDirectory() as name:
        found = [bench(Path(name), nodes) for nodes in sizes]
    for before, after, least, most in zip(found, found[1:], sizes, sizes[1:], strict=False):
        print(f"growth, {most / least:.0f} x the nodes:")
        for case in CASES:
            seconds, peak = (after[case][place] / before[case][place] for place in (0, 1))
            print(f"  {case:<24} {seconds:6.1f} x the time ({seconds * least / most:.2f} x linear), {peak:5.1f} x the memory")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        one(*sys.argv[2:])
    else:
        main(sys.argv[1:])
