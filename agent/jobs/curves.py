"""The curves of jobs: from the lines of their logs and their TensorBoard files, read on from where the last question left off.

Invariant: a question reads a bounded part in a thread, whatever a job wrote, and of a job a bounded number of points is held;
of the same step the newest word counts, and what a resume went back behind is gone.
"""

from __future__ import annotations

import asyncio
import math
import threading
from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from agent import wire
from agent.jobs.curve_files import EventFiles
from agent.jobs.curve_lines import LONGEST_LINE, Told, clean_text, parse_line
from agent.jobs.logs import read_bytes
from agent.jobs.series import Point, Series, thinned

MOST_JOBS = 8
"""Whose points are held; of others the log is read anew."""
MOST_NAMES = 24
MOST_HELD = 60_000
"""Points of all jobs together, of some 200 bytes; the job that was asked about last is held in any case."""
MOST_ATTEMPTS = 200
"""The newest ones."""
LOG_BYTES = 32 * 1024 * 1024
LOG_LINES = 20_000
EVENT_BYTES = 2 * 1024 * 1024
"""Read at a question: about half a second."""
PIECE_BYTES = 256 * 1024
RATE_LINES = 50
AT_ONCE = 2
_LARGEST = 2**53 - 1


class Asked(NamedTuple):
    """What the manager knows of the job."""

    job: str
    attempt: int
    ended: bool
    folder: Path
    checkpoint: Path


class JobReading:
    """What was read of one job so far."""

    def __init__(self, asked: Asked) -> None:
        self.lock = threading.Lock()
        self._asked = asked
        self._attempt = max(1, asked.attempt - MOST_ATTEMPTS + 1)
        self._first = self._attempt
        self._offset, self._cut, self._partial = 0, False, b""
        self._fresh = True
        """No step of this attempt has been told yet."""
        self._log: dict[str, Series] = {}
        self._files = EventFiles(asked.checkpoint, MOST_NAMES)
        self._begun: int | None = None
        self._recent: deque[tuple[int, float]] = deque(maxlen=RATE_LINES)
        self._start: dict[str, str] = {}
        self._end: dict[str, str] = {}
        self._step: int | None = None
        self._lines = self._dropped = self._left_out = 0
        self._behind, self._whole = 0, True

    @property
    def held(self) -> int:
        """Points in memory."""
        return sum(len(one.points) for one in (*list(self._log.values()), *list(self._files.series.values())))

    # Reading

    def read(self, asked: Asked) -> None:
        """Reads on, at most so much as a question may. Raises AgentFault."""
        self._asked = asked
        self._read_log(asked)
        self._whole = self._files.read(EVENT_BYTES)

    def _read_log(self, asked: Asked) -> None:
        left, lines = LOG_BYTES, self._lines + LOG_LINES
        while asked.attempt and left > 0 and self._lines < lines:
            first, end, piece = read_bytes(asked.folder / str(self._attempt), self._offset, min(left, PIECE_BYTES))
            if first > self._offset:
                self._dropped += first - self._offset
                self._offset, self._partial, self._cut = first, b"", True
            self._offset += len(piece)
            left -= len(piece)
            self._take_bytes(piece)
            self._behind = max(0, end - self._offset)
            if piece:
                continue
            over = self._attempt < asked.attempt or asked.ended
            if over and self._partial:
                self._take_bytes(b"\n")
            if self._attempt >= asked.attempt:
                break
            self._attempt += 1
            self._offset, self._cut, self._partial, self._fresh = 0, False, b"", True
            self._end = {}

    def _take_bytes(self, piece: bytes) -> None:
        """The last line waits until it is whole; of one that is too long, or of which the beginning is gone, nothing is taken."""
        lines = (self._partial + piece).split(b"\n")
        self._partial = lines.pop()
        if self._cut and lines:
            del lines[0]
            self._cut = False
        for line in lines:
            if (told := parse_line(line)) is not None:
                self._take(told)
        if len(self._partial) > LONGEST_LINE:
            self._partial, self._cut = b"", True

    def _take(self, told: Told) -> None:
        self._lines += 1
        if told.event is not None:
            self._take_event(told)
            return
        if self._fresh:
            self._back_to(told.step)
        elif self._step is not None and told.step < self._step:
            self._recent.clear()
            self._begun = None
        for name, value in told.values.items():
            series = self._log.get(name)
            if series is None and len(self._log) < MOST_NAMES:
                series = self._log[name] = Series()
            if series is None:
                self._left_out += 1
                continue
            series.add(told.step, value, told.seconds)
        self._note_rate(told)
        self._step = told.step

    def _take_event(self, told: Told) -> None:
        if told.event == "start":
            self._start, self._end = dict(told.facts), {}
            self._back_to(told.step + 1)
            self._begun = told.step
        elif told.event == "end":
            self._end = dict(told.facts)

    def _back_to(self, step: int) -> None:
        """What was told of this step and after it is done again."""
        for series in self._log.values():
            series.cut(step)
        self._recent.clear()
        self._begun, self._fresh = None, False
        self._step = step - 1 if self._step is not None and self._step >= step else self._step

    def _note_rate(self, told: Told) -> None:
        rate = told.values.get("samples_per_second", math.nan)
        if self._begun is not None and told.step > self._begun and 0 < rate < math.inf:
            self._recent.append((told.step - self._begun, rate))
        self._begun = told.step

    # Answering

    def answer(self, points: int, names: Sequence[str]) -> wire.JobCurves:
        """Of all figures, or of those named."""
        asked = self._asked
        found = {**self._files.series, **self._log}
        order = [*self._log, *(name for name in self._files.series if name not in self._log)]
        curves = tuple(
            self._curve(name, found[name], points) for name in order if found[name].points and (not names or name in names)
        )
        step = self._step if self._step is not None else max((one.points[-1].step for one in found.values() if one.points), default=None)
        batch, epoch = self._fact("batch_size"), self._fact("samples_an_epoch", "samples_per_epoch")
        rate = self._samples_per_second()
        return wire.JobCurves(
            job=asked.job, attempt=asked.attempt, curves=curves,
            names=tuple(name for name in order if found[name].points),
            start=self._start, end=self._end, step=step if step is None or 0 <= step <= _LARGEST else None,
            steps_total=self._fact("steps", "steps_total", "total_steps", "max_steps"),
            samples_per_epoch=epoch, batch_size=batch, tokens_per_sample=self._fact("tokens_a_sample", "tokens_per_sample"),
            epochs_per_step=batch / epoch if batch and epoch else self._slope(),
            samples_per_second=rate,
            steps_per_second=rate / batch if rate and batch else self._steps_per_second(found),
            ended=asked.ended, behind_bytes=self._behind + (not self._whole or self._attempt < asked.attempt), dropped_bytes=self._dropped,
            sources=tuple(self._sources()), problems=tuple(self._problems()),
        )  # fmt: skip

    def _curve(self, name: str, series: Series, points: int) -> wire.Curve:
        shown = thinned(series.points, max(1, points // 4))
        seconds = [point.seconds for point in shown]
        if name in self._log and not any(one is not None for one in seconds):
            seconds = self._times([point.step for point in shown], name)
        known = any(one is not None for one in seconds)
        return wire.Curve(
            name=name, steps=tuple(point.step for point in shown),
            values=tuple(None if math.isnan(point.value) else point.value for point in shown),
            seconds=tuple(_finite(one) for one in seconds) if known else (),
            count=series.count, mean=series.mean, source="log" if name in self._log else "tensorboard",
        )  # fmt: skip

    def _times(self, steps: list[int], name: str) -> list[float | None]:
        """Of these steps by TensorBoard's clock: the same figure's where it is there, else the one with most values."""
        series = self._files.series.get(name) or max(self._files.series.values(), key=lambda one: len(one.points), default=None)
        if series is None or not series.points:
            return [None] * len(steps)
        return [_between(series.points, step) for step in steps]

    def _fact(self, *names: str) -> int | None:
        for name in names:
            text = self._start.get(name, "")
            if text.isascii() and text.isdigit() and len(text) < 17 and 0 < int(text) <= _LARGEST:
                return int(text)
        return None

    def _slope(self) -> float | None:
        """Epochs a step by what was told last."""
        series = self._log.get("epoch") or self._files.series.get("epoch")
        last = series.points[-1] if series is not None and series.points else None
        return last.value / last.step if last is not None and last.step > 0 and last.value > 0 else None

    def _samples_per_second(self) -> float | None:
        """Over the newer half of the newest lines: the first steps of a training are slower than all that come."""
        newest = list(self._recent)[len(self._recent) // 2 :]
        seconds = sum(steps / rate for steps, rate in newest)
        return sum(steps for steps, _ in newest) / seconds if seconds > 0 and math.isfinite(seconds) else None

    def _steps_per_second(self, found: dict[str, Series]) -> float | None:
        timed = max(found.values(), key=lambda one: len(one.points) if one.points and one.points[-1].seconds else 0, default=None)
        points = [] if timed is None else [(one.step, one.seconds) for one in timed.points if one.seconds is not None]
        newest = points[len(points) // 2 :][-RATE_LINES:]
        if len(newest) < 2 or newest[-1][1] <= newest[0][1]:
            return None
        rate = (newest[-1][0] - newest[0][0]) / (newest[-1][1] - newest[0][1])
        return rate if math.isfinite(rate) and rate > 0 else None

    def _sources(self) -> list[str]:
        said = []
        if self._lines:
            which = f"attempt {self._attempt}" if self._attempt == self._first else f"attempts {self._first} to {self._attempt}"
            said.append(f"the log: {self._lines:,} lines of {which}")
        if self._files.values:
            files = f"{self._files.count} file{'s' * (self._files.count != 1)}"
            said.append(f"TensorBoard: {self._files.values:,} values in {files}")
        return said

    def _problems(self) -> list[str]:
        said = [clean_text(text, 300) for text in list(self._files.problems.values())[:MOST_NAMES]]
        if self._left_out or self._files.names_left_out:
            said.append(f"only the first {MOST_NAMES} figures are kept")
        return said


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _between(points: Sequence[Point], step: int) -> float | None:
    """The time of a step between two that are known."""
    place = bisect_left(points, step, key=lambda point: point.step)
    if place == len(points):
        return None
    after = points[place]
    if after.step == step:
        return after.seconds
    before = points[place - 1] if place else None
    if before is None or before.seconds is None or after.seconds is None:
        return None
    return before.seconds + (after.seconds - before.seconds) * (step - before.step) / (after.step - before.step)


class Curves:
    """Of all jobs of a node. Belongs to the event loop."""

    def __init__(self) -> None:
        self._held: OrderedDict[str, JobReading] = OrderedDict()
        self._gate = asyncio.Semaphore(AT_ONCE)

    async def ask(self, asked: Asked, points: int, names: Sequence[str]) -> wire.JobCurves:
        """Reads on and answers. Raises AgentFault where the log cannot be read."""
        reading = self._held.get(asked.job)
        if reading is None:
            reading = self._held[asked.job] = JobReading(asked)
        self._held.move_to_end(asked.job)
        while len(self._held) > MOST_JOBS:
            self._held.popitem(last=False)
        async with self._gate:
            answer = await asyncio.to_thread(_answer, reading, asked, points, tuple(names))
        while len(self._held) > 1 and sum(one.held for one in self._held.values()) > MOST_HELD:
            self._held.popitem(last=False)
        return answer


def _answer(reading: JobReading, asked: Asked, points: int, names: Sequence[str]) -> wire.JobCurves:
    with reading.lock:
        reading.read(asked)
        return reading.answer(points, names)


