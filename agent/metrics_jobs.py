"""The node's jobs as Prometheus metrics.

Invariant: a job has series only while it is not over, so that their number is bounded by what runs and waits here;
its id is the label `rackrate_job`, because `job` belongs to the scraper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric

from agent import wire
from agent.runtime import NodeAgent

MOST_JOBS = 1000
"""Series of running jobs; the counts are of all."""
_ACTIVE = ("starting", "running", "stopping")
_LABELS = ("node", "rackrate_job")


def job_families(agent: NodeAgent, node: str, label: Callable[[str], str]) -> Iterator[Metric]:
    """`label` makes outside text safe. Nothing where no jobs are run."""
    if agent.jobs is None:
        return
    listed = agent.jobs.jobs().jobs
    yield _counts(agent.jobs.counts(), node)
    left = sum(bool(job.left_behind) for job in listed)
    text = "Jobs of which something could not be cleaned away."
    yield _filled(GaugeMetricFamily("rackrate_jobs_left_behind", text, labels=("node",)), [((node,), left)])
    active = [job for job in listed if job.state in _ACTIVE][:MOST_JOBS]
    yield _info(active, node, label)
    for name, text, read in _GAUGES:
        family = GaugeMetricFamily(f"rackrate_job_{name}", text, labels=_LABELS)
        yield _filled(family, [((node, label(job.id)), value) for job in active if (value := read(job)) is not None])


def _counts(counts: wire.JobCounts, node: str) -> Metric:
    family = GaugeMetricFamily("rackrate_jobs", "Jobs that the node keeps, by state.", labels=("node", "state"))
    return _filled(family, [((node, state), number) for state, number in msgspec.structs.asdict(counts).items()])


def _info(jobs: list[wire.Job], node: str, label: Callable[[str], str]) -> Metric:
    family = InfoMetricFamily("rackrate_job", "Who runs a job, and what it is called.", labels=_LABELS)
    for job in jobs:
        facts = {"state": job.state, "user": job.user, "project": job.project, "name": job.name}
        known = {name: label(value) for name, value in facts.items() if value is not None}
        family.add_metric((node, label(job.id)), known)
    return family


def _gpus(job: wire.Job) -> float:
    return float(job.gpu_share) if job.gpu_share is not None else float(len(job.gpus))


def _use(name: str) -> Callable[[wire.Job], float | None]:
    return lambda job: None if job.usage is None else getattr(job.usage, name)


_GAUGES: tuple[tuple[str, str, Callable[[wire.Job], float | None]], ...] = (
    ("gpus", "GPUs that the job holds; a share counts as its part.", _gpus),
    ("memory_peak_bytes", "Most memory that the job had at once.", _use("memory_peak_bytes")),
    ("memory_limit_bytes", "Memory that the job may have.", _use("memory_limit_bytes")),
    ("attempt", "Number of the run, from 1.", lambda job: job.attempt or None),
    ("cost_usd", "US dollars that the job has cost so far.", lambda job: None if job.cost is None else float(job.cost)),
)  # fmt: skip


def _filled(family: GaugeMetricFamily, series: list[tuple[tuple[str, ...], float]]) -> Metric:
    for labels, value in series:
        family.add_metric(labels, value)
    return family
