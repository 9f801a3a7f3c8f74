"""Reads all sensors, each in a thread of its own, and puts their newest readings together.

Invariant: `sample` never waits for a sensor. A sensor that hangs or fails is reported and does not touch the others;
its old reading is dropped once it is older than the deadline, and no second thread is ever sent after a hanging one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import msgspec

from agent import wire
from agent.sensors import Reading, Sensor
from agent.sensors.lane import Lane

log = logging.getLogger(__name__)

_CLOSE_SECONDS = 3.0


class _Result(msgspec.Struct, frozen=True, kw_only=True):
    """How the newest `read` of a sensor went; `error` is None for a good one."""

    reading: Reading | None = None
    taken_at: datetime | None = None
    taken_clock: float = 0.0
    duration_seconds: float | None = None
    error: str | None = None


class Sampler:
    """Samples of one node. `clock` is monotonic seconds, `now` the UTC time that is written into samples.

    `deadline_seconds`: a `read` that takes longer is reported as unresponsive, and readings older than that are dropped.
    """

    def __init__(
        self,
        node: str,
        sensors: Sequence[Sensor],
        *,
        deadline_seconds: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._node = node
        self._now = now
        self._readers = [_Reader(sensor, deadline_seconds, clock, now) for sensor in sensors]

    def start(self) -> None:
        """Starts one daemon thread a sensor; returns at once."""
        for reader in self._readers:
            reader.start()

    def wait(self, timeout_seconds: float) -> bool:
        """True as soon as every sensor has read (or failed) once; False when the time is over first."""
        end = time.monotonic() + timeout_seconds
        return all([reader.tried.wait(max(end - time.monotonic(), 0.0)) for reader in self._readers])

    def close(self) -> None:
        """Stops the threads and closes the sensors; one that hangs is left behind with its sensor open."""
        for reader in self._readers:
            reader.stop()
        end = time.monotonic() + _CLOSE_SECONDS
        for reader in self._readers:
            reader.close(max(end - time.monotonic(), 0.0))

    def sample(self, sequence: int) -> wire.Sample:
        """The newest reading of each sensor, with a report for each."""
        views = [reader.view() for reader in self._readers]
        readings = [reading for reading, _ in views]
        return wire.Sample(
            node=self._node,
            sequence=sequence,
            taken_at=self._now(),
            host=next((reading.host for reading in readings if reading.host is not None), None),
            gpus=tuple(gpu for reading in readings for gpu in reading.gpus or ()),
            gpu_reason=next((reading.gpu_reason for reading in readings if reading.gpu_reason), None),
            sensors=tuple(report for _, report in views),
            ancestors=tuple(one for reading in readings for one in reading.ancestors),
        )


class _Reader:
    """One sensor and its thread."""

    def __init__(self, sensor: Sensor, deadline_seconds: float, clock: Callable[[], float], now: Callable[[], datetime]) -> None:
        self._sensor = sensor
        self._subject = getattr(sensor, "subject", sensor.name)
        self._remedy = getattr(sensor, "remedy", "")
        self._measures_gpus = getattr(sensor, "measures_gpus", False)
        self._deadline = deadline_seconds
        self._clock = clock
        self._now = now
        self._result = _Result()
        self._started_at: float | None = None
        self._lane = Lane(f"sensor-{sensor.name}", self._subject)
        self.tried = threading.Event()

    def start(self) -> None:
        self._started_at = self._clock()
        self._lane.start(self._run)

    def stop(self) -> None:
        self._lane.ask_to_stop()

    def close(self, timeout_seconds: float) -> None:
        if not self._lane.stop(timeout_seconds):
            return
        try:
            self._sensor.close()
        except Exception:
            log.exception("%s did not close", self._subject)

    def _run(self, stop: threading.Event) -> None:
        due = time.monotonic()
        while not stop.is_set():
            self._read_once()
            due = max(due + self._sensor.interval_seconds, time.monotonic())
            stop.wait(due - time.monotonic())

    def _read_once(self) -> None:
        self._started_at = begin = self._clock()
        try:
            reading = self._sensor.read()
        except Exception as fault:
            log.debug("%s failed", self._subject, exc_info=True)
            self._result = msgspec.structs.replace(self._result, error=f"{self._subject} failed: {fault or type(fault).__name__}")
        else:
            end = self._clock()
            self._result = _Result(reading=reading, taken_at=self._now(), taken_clock=end, duration_seconds=end - begin)
        self._started_at = None
        self.tried.set()

    def view(self) -> tuple[Reading, wire.SensorReport]:
        """What may be shown of this sensor now, and how it does."""
        result, started = self._result, self._started_at
        now = self._clock()
        error = result.error
        if started is not None and now - started > self._deadline:
            error = f"{self._subject} unresponsive for {now - started:.0f} s{self._remedy}"
        elif result.reading is None and error is None:
            error = f"{self._subject} has not answered yet"
        report = wire.SensorReport(
            name=self._sensor.name, ok=error is None, duration_seconds=result.duration_seconds, taken_at=result.taken_at, error=error
        )
        fresh = result.reading is not None and now - result.taken_clock <= self._deadline + self._sensor.interval_seconds
        return (result.reading if fresh and result.reading else self._without_values(error)), report

    def _without_values(self, error: str | None) -> Reading:
        """GPUs keep their identity when nothing new is known of them; old values are not passed off as new ones."""
        old, reason = self._result.reading, error or f"{self._subject}: the last reading is too old"
        known = old.gpus or () if old is not None else ()
        if not known and not self._measures_gpus:
            return Reading()
        gpus = tuple(wire.Gpu(index=gpu.index, uuid=gpu.uuid, model=gpu.model, state="error", reason=reason) for gpu in known)
        return Reading(gpus=gpus, gpu_reason=reason)
