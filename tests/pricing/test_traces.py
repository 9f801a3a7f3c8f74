"""Published traces as usage: what the ledger sums to is the trace's GPU time, job by job, to the millisecond."""

from __future__ import annotations

import csv
import gzip
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from itertools import islice
from pathlib import Path

import pytest

from pricing.attribution import attribute
from pricing.errors import TraceError
from pricing.ledger import Ledger
from pricing.ledger_retention import retain
from pricing.report import SHARE_MS_PER_HOUR
from pricing.traces import OPENB_START, Job, Machine, NodeUsage, on_clusters, on_machines, openb_nodes, openb_pods, philly_jobs
from pricing.usage import WHOLE_SHARE
from tests.support.examples import EXPLORE
from tests.support.usage import PriceList

DATA = Path(__file__).parents[3] / "shared" / "data" / "usage"
EACH = 9 if EXPLORE else 27
"""Which of the Philly jobs are taken."""
FAR = datetime(2010, 1, 1, tzinfo=UTC), datetime(2030, 1, 1, tzinfo=UTC)
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the traces are not here: ../shared/data/usage")

PODS = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
a,1,1,1,460,,LS,Running,0,12537,0
b,1,1,1,460,,BE,Running,7,9000,10
c,1,1,1,80,,LS,Failed,7,3601,3600
d,1,1,2,1000,,LS,Succeeded,11,90000,4000
e,1,1,1,1000,,LS,Pending,11,90000,
f,1,1,0,0,,LS,Running,11,90000,20
g,1,1,1,1000,,LS,Failed,11,20,20
h,1,1,1,810,,LS,Running,90000,999000,90000
"""
NODES = "sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,1,T4\nn1,64000,262144,2,P100\n"
PHILLY = """timestamp,duration,num_gpus,gpu_time,cluster
2017-10-09 07:01:55,66.0,1,66.0,11cb48
2017-10-09 07:02:00,86400.5,8,691204.0,11cb48
2017-10-09 07:02:00,5000.0,2,10000.0,6214e9
2017-10-09 08:00:00,0.0,1,0.0,6214e9
"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], Path]:
    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        return path

    return write


def take(ledger: Ledger, nodes: Iterable[NodeUsage]) -> int:
    taken = 0
    for one in nodes:
        for begin in range(0, len(one.rows), 20_000):
            page = one.rows[begin : begin + 20_000]
            taken += ledger.take(one.node, one.node, page, [one.placed], 1, last_sequence=len(one.rows)).new
    return taken


def gpu_hours(jobs: Iterable[Job]) -> dict[str, Fraction]:
    hours: defaultdict[str, Fraction] = defaultdict(Fraction)
    for job in jobs:
        hours[job.name] += Fraction(job.share_ms, SHARE_MS_PER_HOUR)
    return dict(hours)


def told(ledger: Ledger) -> dict[str, Fraction]:
    report = attribute(ledger, PriceList(), *FAR, "job")
    return {row.keys[0]: row.gpu_hours for row in report.rows if row.held_share_ms}


def test_a_small_openb_goes_through_to_the_millisecond(write: Callable[[str, str], Path]) -> None:
    jobs = list(openb_pods(write("pods.csv.gz", PODS)))
    assert [job.name for job in jobs] == ["a", "b", "c", "d", "h"]
    assert jobs[0] == Job("a", *(1000 * round(OPENB_START.timestamp()) + ms for ms in (0, 12_537_000)), 1, 460_000, None, "LS")
    nodes = list(on_machines(jobs, openb_nodes(write("nodes.csv", NODES))))
    assert [(one.node, one.placed.gpu_model, one.placed.gpu_count) for one in nodes] == [("n0", "T4", 1), ("n1", "P100", 2)]
    with Ledger.open(":memory:") as ledger:
        assert take(ledger, nodes) == sum(len(one.rows) for one in nodes)
        assert ledger.check() == []
        expected = gpu_hours(jobs)
        assert expected["b"] == Fraction(46, 100) * 8990 / 3600 and told(ledger) == expected
        retain(ledger, FAR[1], FAR[1])
        assert ledger.check() == [] and told(ledger) == expected


def test_pods_that_share_a_gpu_cost_exactly_one(write: Callable[[str, str], Path]) -> None:
    (first, *_) = on_machines(openb_pods(write("pods.csv", PODS)), openb_nodes(write("nodes.csv", NODES)))
    hour = OPENB_START + timedelta(hours=1), OPENB_START + timedelta(hours=2)
    with Ledger.open(":memory:") as ledger:
        placed = first.placed._replace(usd_per_hour="8")
        ledger.take(first.node, first.node, first.rows, [placed], 1)
        report = attribute(ledger, PriceList(), *hour, "job")
    costs = {row.keys[0]: row.total_cost for row in report.rows}
    assert costs["a"] == 8 * Fraction(46, 100) and costs["c"] == 8 * Fraction(8, 100) / 3600
    assert sum(costs.values(), Fraction(0)) == 8  # type: ignore[arg-type]


def test_a_small_philly_goes_through_to_the_millisecond(write: Callable[[str, str], Path]) -> None:
    jobs = list(philly_jobs(write("philly.csv", PHILLY)))
    assert [(job.name, job.gpus, job.ends_ms - job.starts_ms, job.cluster) for job in jobs] == [
        ("job-000002", 1, 66_000, "11cb48"), ("job-000003", 8, 86_400_500, "11cb48"), ("job-000004", 2, 5_000_000, "6214e9"),
    ]  # fmt: skip
    nodes = list(on_clusters(jobs))
    assert [(one.node, one.placed.gpu_count) for one in nodes] == [("11cb48", 9), ("6214e9", 2)]
    with Ledger.open(":memory:") as ledger:
        take(ledger, nodes)
        assert ledger.check() == [] and told(ledger) == gpu_hours(jobs)
        assert sum(told(ledger).values()) * 3600 == Fraction("66.0") + Fraction("691204.0") + Fraction("10000.0")


FAULTS = [
    (openb_pods, PODS.replace("460,,BE", "1460,,BE"), "line 3, column gpu_milli: '1460' is not between 1 and 1000"),
    (openb_pods, PODS.replace("12537", "soon"), "line 2, column deletion_time: 'soon' is not a number of seconds"),
    (openb_pods, PODS.replace("12537", "NaN"), "line 2, column deletion_time"),
    (openb_pods, PODS.replace("c,1,1,1,80", "c,1,1,-1,80"), "line 4, column num_gpu: '-1' is not a whole number"),
    (openb_pods, PODS.replace("scheduled_time", "scheduled"), "there is no column 'scheduled_time'"),
    (philly_jobs, PHILLY.replace("2017-10-09 07:01:55", "09.10.2017"), "line 2, column timestamp: '09.10.2017' is not a time"),
    (philly_jobs, PHILLY.replace("66.0", "6e99", 1), "line 2, column duration"),
    (philly_jobs, "", "there is no column 'timestamp'"),
]


@pytest.mark.parametrize(("read", "text", "sentence"), FAULTS)
def test_a_wrong_row_is_named(
    write: Callable[[str, str], Path], read: Callable[[Path], Iterator[Job]], text: str, sentence: str
) -> None:
    with pytest.raises(TraceError, match=sentence):
        list(read(write("trace.csv", text)))


def test_a_cut_or_missing_file_is_a_sentence(write: Callable[[str, str], Path], tmp_path: Path) -> None:
    path = write("pods.csv.gz", PODS)
    path.write_bytes(path.read_bytes()[:-20])
    for wrong in (path, tmp_path / "none.csv", write("plain.csv.gz", "").with_suffix(".gz")):
        with pytest.raises(TraceError, match="the trace cannot be read|there is no column"):
            list(openb_pods(wrong))


def test_a_pod_that_fits_nowhere_is_named() -> None:
    with pytest.raises(TraceError, match="x needs 2 GPUs, and no node"):
        list(on_machines([Job("x", 0, 10, 2, WHOLE_SHARE)], [Machine("n", 1)]))


def column(name: str, key: str) -> list[Fraction]:
    with gzip.open(DATA / name, "rt", encoding="utf-8") as file:
        return [Fraction(row[key]) for row in csv.DictReader(file)]


@needs_data
def test_the_whole_openb_trace_sums_to_its_gpu_hours() -> None:
    jobs = list(openb_pods(DATA / "openb_2023_pods.csv.gz"))
    fractions = sum(1 for milli in column("openb_2023_pods.csv.gz", "gpu_milli") if 0 < milli < 1000)
    assert fractions == 3078 and len(jobs) == 6203
    with gzip.open(DATA / "openb_2023_pods.csv.gz", "rt", encoding="utf-8") as file:
        ran = [row for row in csv.DictReader(file) if row["scheduled_time"]]
    due = sum(
        int(row["num_gpu"]) * int(row["gpu_milli"]) * max(0, int(row["deletion_time"]) - int(row["scheduled_time"]))
        for row in ran
    )
    with Ledger.open(":memory:") as ledger:
        take(ledger, on_machines(jobs, openb_nodes(DATA / "openb_2023_nodes.csv.gz")))
        assert ledger.check() == []
        assert told(ledger) == gpu_hours(jobs)
        assert sum(told(ledger).values()) * 3600 * 1000 == due
        retain(ledger, FAR[1], FAR[1])
        assert ledger.check() == []
        assert sum(told(ledger).values()) * 3600 * 1000 == due


@needs_data
def test_philly_jobs_taken_evenly_sum_to_their_gpu_hours() -> None:
    jobs = list(islice(philly_jobs(DATA / "philly_2017_jobs.csv.gz"), 0, None, EACH))
    due = sum(column("philly_2017_jobs.csv.gz", "gpu_time")[::EACH])
    with Ledger.open(":memory:") as ledger:
        take(ledger, on_clusters(jobs, idle=False))
        assert [fault for fault in ledger.check() if "has a hole" not in fault] == []
        assert told(ledger) == gpu_hours(jobs)
        assert sum(told(ledger).values()) * 3600 == due
