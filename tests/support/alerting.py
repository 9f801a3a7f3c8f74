"""An alert engine whose clock is moved by hand.

Invariant: every sample it makes is one that an agent could have taken.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from agent import wire
from agent.alerts import AlertEngine, Thresholds

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


class Watch:
    """An engine and a clock in seconds since START."""

    def __init__(self, price: str | None = None, **thresholds: object) -> None:
        self.engine = AlertEngine("n1", Thresholds(**thresholds), price)  # type: ignore[arg-type]
        self.second = 0.0

    def see(self, wait: float, *gpus: wire.Gpu, host: wire.Host | None = None, reports: tuple[wire.SensorReport, ...] = (),
            reason: str | None = None) -> list[wire.Alert]:  # fmt: skip
        self.second += wait
        at = START + timedelta(seconds=self.second)
        one = wire.Sample(node="n1", sequence=1, taken_at=at, gpus=gpus, host=host, sensors=reports, gpu_reason=reason)
        return self.engine.evaluate(one)

    def keep(self, seconds: int, *gpus: wire.Gpu, step: int = 10) -> list[wire.Alert]:
        return [alert for _ in range(seconds // step) for alert in self.see(step, *gpus)]

    @property
    def active(self) -> list[str]:
        return [alert.rule for alert in self.engine.active()]


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)
