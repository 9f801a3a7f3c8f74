"""The curves of a job, from what it wrote: whole, cut, resumed, hostile and long."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import msgspec

from agent.jobs import curves
from agent.jobs.curve_lines import parse_line
from agent.jobs.curves import Asked, Curves, JobReading
from tests.agent.jobs.test_tfevents import record, scalar


class Folder:
    """A job's folder with logs of its attempts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "checkpoint").mkdir(parents=True)

    def write(self, attempt: int, *lines: Any, end: str = "\n") -> None:
        folder = self.path / str(attempt)
        folder.mkdir(exist_ok=True)
        with (folder / "log").open("a") as log:
            log.write("".join((line if isinstance(line, str) else json.dumps(line)) + end for line in lines))

    def asked(self, attempt: int = 1, *, ended: bool = False) -> Asked:
        return Asked("0abc00000001", attempt, ended, self.path, self.path / "checkpoint")


def points(answer: Any, name: str) -> list[tuple[int, float | None]]:
    (curve,) = (one for one in answer.curves if one.name == name)
    return list(zip(curve.steps, curve.values, strict=True))


def whole(reading: JobReading, asked: Asked, most: int = 200) -> Any:
    for _ in range(1000):
        reading.read(asked)
        answer = reading.answer(most, ())
        if not answer.behind_bytes:
            return answer
    raise AssertionError("never read to its end")


def test_lines_become_curves_between_words_of_another_kind(tmp_path: Path) -> None:
    job = Folder(tmp_path)
    job.write(
        1, "Loading data ...", {"event": "start", "step": 0, "steps": 50, "batch_size": 8, "samples_an_epoch": 100, "tokens_a_sample": 16},
        {"step": 1, "loss": 2.5, "samples_per_second": 10.0, "note": "x", "nested": {"a": 1}, "ok": True},
        '{"step": 2, "loss": NaN, "samples_per_second": 40}', {"step": 3, "loss": None, "samples_per_second": 40.0},
        {"step": 4, "loss": 10**400}, "{not json", '{"loss": 3}', {"step": -1, "loss": 1}, {"step": True, "loss": 1},
        {"step": 5, "loss": 1.5, "samples_per_second": 40.0}, {"event": "end", "step": 5, "loss": 1.5, "accuracy": 0.75},
    )  # fmt: skip
    answer = whole(JobReading(job.asked()), job.asked())
    assert points(answer, "loss") == [(1, 2.5), (2, None), (3, None), (4, None), (5, 1.5)]
    assert [curve.name for curve in answer.curves] == ["loss", "samples_per_second"] == list(answer.names)
    assert answer.curves[0].mean == 2.0 and answer.curves[0].count == 5 and answer.curves[0].seconds == ()
    assert (answer.step, answer.steps_total, answer.batch_size, answer.samples_per_epoch, answer.tokens_per_sample) == (5, 50, 8, 100, 16)
    assert answer.epochs_per_step == 0.08 and answer.samples_per_second == 40.0 and answer.steps_per_second == 5.0
    assert answer.start["steps"] == "50" and answer.end["accuracy"] == "0.75" and not answer.ended
    assert answer.sources == ("the log: 7 lines of attempt 1",)


def test_a_resume_takes_back_what_came_after_its_step_and_later_attempts_win(tmp_path: Path) -> None:
    job = Folder(tmp_path)
    job.write(1, {"event": "start", "step": 0, "steps": 9}, *({"step": step, "loss": 10.0 - step} for step in range(1, 8)))
    job.write(1, '{"step": 8, "lo', end="")
    reading = JobReading(job.asked())
    assert points(whole(reading, job.asked()), "loss")[-1] == (7, 3.0)
    job.write(2, {"event": "start", "step": 4, "steps": 9}, {"step": 5, "loss": 0.5})
    answer = whole(reading, job.asked(2))
    assert points(answer, "loss") == [(1, 9.0), (2, 8.0), (3, 7.0), (4, 6.0), (5, 0.5)]
    assert (answer.step, answer.sources) == (5, ("the log: 10 lines of attempts 1 to 2",))
    job.write(3, {"step": 3, "loss": 0.25})  # without a start line: the step itself says where it went back to
    assert points(whole(reading, job.asked(3)), "loss") == [(1, 9.0), (2, 8.0), (3, 0.25)]
    assert points(whole(JobReading(job.asked(3)), job.asked(3)), "loss") == [(1, 9.0), (2, 8.0), (3, 0.25)]


def test_steps_that_go_back_within_an_attempt_do_so_for_each_figure_alone(tmp_path: Path) -> None:
    job = Folder(tmp_path)
    job.write(1, {"step": 10, "loss": 1.0}, {"step": 20, "loss": 0.9}, {"step": 10, "val": 5.0}, {"step": 20, "loss": 0.8})
    answer = whole(JobReading(job.asked()), job.asked())
    assert points(answer, "loss") == [(10, 1.0), (20, 0.8)] and points(answer, "val") == [(10, 5.0)]


def test_only_what_is_new_is_read_again_and_a_line_waits_until_it_is_whole(tmp_path: Path, monkeypatch: Any) -> None:
    job = Folder(tmp_path)
    job.write(1, {"step": 1, "loss": 1.0})
    taken: list[tuple[int, int]] = []
    real = curves.read_bytes

    def counted(folder: Path, offset: int, limit: int) -> tuple[int, int, bytes]:
        found = real(folder, offset, limit)
        taken.append((offset, len(found[2])))
        return found

    monkeypatch.setattr(curves, "read_bytes", counted)
    reading = JobReading(job.asked())
    whole(reading, job.asked())
    size = (tmp_path / "1" / "log").stat().st_size
    taken.clear()
    job.write(1, '{"step": 2, "loss": 0', end="")
    assert points(whole(reading, job.asked()), "loss") == [(1, 1.0)]
    job.write(1, ".5}", end="")
    assert points(whole(reading, job.asked()), "loss") == [(1, 1.0)]
    assert points(whole(reading, job.asked(ended=True)), "loss") == [(1, 1.0), (2, 0.5)]
    assert min(offset for offset, _ in taken) == size and sum(count for _, count in taken) == 24


def test_a_line_cut_by_the_logs_rotation_is_skipped_and_the_loss_of_bytes_is_said(tmp_path: Path) -> None:
    lines = "".join(json.dumps({"step": step, "loss": float(step)}) + "\n" for step in range(100, 160)).encode()
    folder = tmp_path / "1"
    folder.mkdir()
    (folder / "log.2").write_bytes(lines[512:1024])  # log.1 went: the second begins within a line
    (folder / "log").write_bytes(lines[1024:])
    (tmp_path / "checkpoint").mkdir()
    asked = Asked("0abc00000001", 1, False, tmp_path, tmp_path / "checkpoint")
    answer = whole(JobReading(asked), asked)
    first = lines[:512].count(b"\n") + 101
    assert points(answer, "loss") == [(step, float(step)) for step in range(first, 160)] and answer.dropped_bytes == 512


def test_a_long_training_is_read_in_parts_held_small_and_keeps_its_extremes(tmp_path: Path, monkeypatch: Any) -> None:
    job = Folder(tmp_path)
    monkeypatch.setattr(curves, "LOG_LINES", 4000)
    monkeypatch.setattr(curves, "PIECE_BYTES", 65_536)
    with_spike = ({"step": step, "loss": 99.0 if step == 7777 else 1 / step} for step in range(1, 20_001))
    job.write(1, *with_spike)
    reading = JobReading(job.asked())
    reading.read(job.asked())
    assert reading.answer(100, ()).behind_bytes > 0
    answer = whole(reading, job.asked(), 100)
    (curve,) = answer.curves
    assert len(curve.steps) <= 100 and curve.count == 20_000 and (7777, 99.0) in points(answer, "loss")
    assert (curve.steps[0], curve.steps[-1]) == (1, 20_000) and min(v for v in curve.values if v) == 1 / 20_000
    assert curve.mean is not None and math.isclose(curve.mean, (sum(1 / step for step in range(1, 20_001)) - 1 / 7777 + 99) / 20_000)
    assert len(reading._log["loss"].points) <= 1024


def test_tensorboard_fills_what_the_log_does_not_say_and_times_what_it_does(tmp_path: Path) -> None:
    job = Folder(tmp_path)
    folder = tmp_path / "checkpoint" / "tensorboard"
    folder.mkdir()
    at = 1_700_000_000.0
    parts = [record(scalar("loss", 7.0, step, at + 2 * step)) + record(scalar("rate", 0.5, step, at)) for step in (1, 3, 5)]
    (folder / "events.out.tfevents.1").write_bytes(b"".join(parts))
    job.write(1, {"event": "start", "step": 0}, {"step": 1, "loss": 3.0}, {"step": 2, "loss": 2.0}, {"step": 5, "loss": 1.0})
    answer = whole(JobReading(job.asked()), job.asked())
    loss, rate = answer.curves
    assert loss.values == (3.0, 2.0, 1.0) and loss.source == "log" and rate.source == "tensorboard"
    assert loss.seconds == (at + 2, at + 4, at + 10)
    assert answer.sources[1] == "TensorBoard: 6 values in 1 file"
    job.write(1, {"step": 6, "loss": 1.0, "time": at + 99})
    assert whole(JobReading(job.asked()), job.asked()).curves[0].seconds == (None, None, None, at + 99)


def test_hostile_lines_are_no_lines_and_any_answer_can_be_sent(tmp_path: Path) -> None:
    job = Folder(tmp_path)
    deep = '{"step": 1, "a": ' + "[" * 20_000 + "]" * 20_000 + "}"
    job.write(
        1, deep, '{"step": 1, "x": "' + "y" * 70_000 + '"}', '{"step": 2, "\\ud800": 1, "\\u001b[2J": 2, "big": 1e999}',
        '{"step": 9007199254740993, "loss": 1}', '{"step": 3, "loss": ' + "9" * 5000 + "}", '{"step": 1.5, "loss": 1}',
        *({"step": 4, f"name{number}": 1.0} for number in range(100)), {"event": "start", "step": 4, "steps": "9" * 30, "k": "\ud800"},
        {"step": 5, "hi": 1e308}, {"step": 6, "hi": 1e308}, {"step": 5e0, "name1": 2},
    )  # fmt: skip
    answer = whole(JobReading(job.asked()), job.asked())
    sent = msgspec.json.decode(msgspec.json.encode(answer), type=type(answer))
    assert len(sent.names) == curves.MOST_NAMES and "\x1b[2J" in sent.names and sent.steps_total is None
    assert sent.problems == (f"only the first {curves.MOST_NAMES} figures are kept",)
    assert parse_line(b'{"step": 1e400, "loss": 1}') is None and parse_line(b"x" * 10) is None


async def test_what_is_held_of_all_jobs_together_is_bounded(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(curves, "MOST_HELD", 250)
    asking = Curves()
    for number in range(4):
        job = Folder(tmp_path / str(number))
        job.write(1, *({"step": step, "loss": 1.0} for step in range(100)))
        await asking.ask(job.asked()._replace(job=f"job{number}"), 100, ())
    assert list(asking._held) == ["job2", "job3"]


async def test_a_job_without_lines_has_no_curves_and_few_jobs_are_held(tmp_path: Path) -> None:
    asking = Curves()
    for number in range(12):
        job = Folder(tmp_path / str(number))
        job.write(1, "nothing of the kind")
        answer = await asking.ask(job.asked()._replace(job=f"job{number}", ended=True), 100, ())
        assert answer.curves == () and answer.ended and answer.sources == ()
    assert len(asking._held) == curves.MOST_JOBS
    never = Folder(tmp_path / "never")
    assert (await asking.ask(never.asked(0), 100, ())).attempt == 0
