"""What a sample says about the GPU driver itself: whether it has answered yet, and how old its answer is.

Invariant: silence is not an answer. A sample without GPUs means "no GPUs" only when a sensor said so.
"""

from __future__ import annotations

from agent.wire import Sample, SensorReport

GPU_SENSORS = ("nvml", "simulated")
"""Names of the sensors that read GPUs."""


def gpu_reports(sample: Sample) -> list[SensorReport]:
    return [report for report in sample.sensors if report.name in GPU_SENSORS]


def inventory_known(sample: Sample) -> bool:
    """Whether it is settled which GPUs there are: some are listed, or a sensor has said why there are none."""
    return bool(sample.gpus) or sample.gpu_reason is not None or any(report.ok for report in gpu_reports(sample))


def reading_age_ms(sample: Sample) -> int:
    """Milliseconds between the GPU readings in the sample and the sample; 0 where no sensor tells."""
    ages = [
        (sample.taken_at - report.taken_at).total_seconds() * 1000
        for report in sample.sensors
        if report.taken_at is not None and report.name in GPU_SENSORS
    ]
    return max(0, int(min(ages))) if ages else 0
