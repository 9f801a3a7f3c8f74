"""Calibration on one core: what is measured, in which unit, and that it agrees with itself."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the extra `train` is not installed")

from agent.recipes import calibrate_measure  # noqa: E402
from agent.recipes.calibrate import Calibrate  # noqa: E402
from agent.recipes.calibrate_measure import Measurement  # noqa: E402
from agent.recipes.calibrate_run import figure, rounds, run  # noqa: E402
from agent.recipes.faults import DataFault, RecipeFault, WrongSettings  # noqa: E402
from agent.recipes.settings import to_toml  # noqa: E402
from agent.recipes.train import Trainer  # noqa: E402
from tests.agent.recipes.small import ALONE, Watched  # noqa: E402
from tui import calibrations  # noqa: E402
from tui.calibrations_text import pairs, verdict  # noqa: E402

FILE = Path(__file__).parents[3] / "agent" / "recipes" / "calibrate.toml"
SMALL = Calibrate(
    recipes="recommender", repeats=3, seconds=0.01, changes="recommender.width=8", size=128, memory_mb=8, disk_mb=8, steps=3, batch_size=32, device="cpu", threads=1
)


class Kept(Watched):
    """All lines, whatever their shape."""

    def line(self, **values: object) -> None:
        super(Watched, self).line(**values)


def test_the_file_that_ships_has_every_setting_with_its_default() -> None:
    assert FILE.read_text() == to_toml(Calibrate, Calibrate.__doc__ or "")


def test_each_figure_has_its_unit_its_spread_and_the_hardware_that_it_is_of(tmp_path: Path) -> None:
    journal = Kept()
    figures = {one["name"]: one for one in run(replace(SMALL, folder=str(tmp_path)), journal, ALONE)}
    assert list(figures) == ["matmul_fp32", "matmul_bf16", "memory_copy", "disk_read", "recipe_recommender"]
    assert {one["unit"] for one in figures.values()} == {"flops", "bytes_per_second", "samples_per_second"}
    assert all(one["value"] > 0 and one["spread_ratio"] >= 0 and one["repeats"] == 3 for one in figures.values())
    assert 1e8 < figures["matmul_fp32"]["value"] < 1e14 and 1e7 < figures["memory_copy"]["value"] < 1e13
    assert figures["recipe_recommender"]["batch_size"] == 32 and figures["recipe_recommender"]["parameters"] > 1000
    start, *told, end = [one for one in journal.lines if one["event"] != "round"]
    assert figures["recipe_recommender"]["settings"]["width"] == 8 and figures["recipe_recommender"]["precision"] == "fp32"
    assert start["device"] == "cpu" and start["cpu"] and start["torch"] == torch.__version__ and start["measured_at"].endswith("+00:00")
    assert [one["name"] for one in told] == list(figures) and end == {"event": "end", "figures": 5}
    assert not os.listdir(tmp_path), "the file that was read is gone"


def test_a_figure_is_the_median_and_its_spread_half_of_what_lies_between_the_ends() -> None:
    assert figure("a", "flops", [9.0, 10.0, 12.0]) == {"name": "a", "value": 10.0, "unit": "flops", "spread_ratio": 0.15, "repeats": 3}


class Machine:
    """Measurements that take a second each, of a machine whose speed changes with time."""

    def __init__(self, speed: Callable[[float], float]) -> None:
        self.now, self._speed = 0.0, speed

    def measured(self, name: str) -> Measurement:
        return Measurement(name, "flops", self._once)

    def _once(self) -> float:
        self.now += 1.0
        return 100.0 * self._speed(self.now)


def agreements(machine: Machine, *, in_rounds: bool) -> list[bool]:
    """Of four figures, in two calibrations right after each other."""
    names = ["a", "b", "c", "d"]
    one, other = ([figure for part in ([names] if in_rounds else [[name] for name in names])
                   for figure in rounds([machine.measured(name) for name in part], 7)] for _ in range(2))  # fmt: skip
    return [abs(a["value"] - b["value"]) <= a["value"] * a["spread_ratio"] + b["value"] * b["spread_ratio"] for a, b in zip(one, other, strict=True)]


def warming_up(now: float) -> float:
    """To nine tenths of its speed when it is hot."""
    return 0.9 + 0.1 * math.exp(-now / 10)


def hot_and_cool(now: float) -> float:
    """A GPU that is throttled for 20 of every 47 seconds."""
    return 0.8 if now % 47 > 27 else 1.0


@pytest.mark.parametrize("speed", [warming_up, hot_and_cool])
def test_two_calibrations_of_a_machine_that_drifts_agree_within_their_spreads_because_of_the_rounds(speed: Callable[[float], float]) -> None:
    assert all(agreements(Machine(speed), in_rounds=True))
    assert not all(agreements(Machine(speed), in_rounds=False)), "one figure after another, each sees a moment of it alone"


def test_two_calibrations_of_this_machine_are_told_to_agree_by_the_rule_and_not_otherwise(tmp_path: Path) -> None:
    """Whatever this machine does meanwhile: the verdict is that of the figures and the spreads that both told."""
    told, values = [], []
    for number in range(2):
        journal, reading = Kept(), calibrations.Reading()
        values.append(run(replace(SMALL, recipes="none", changes="", disk_mb=0), journal, ALONE))
        list(reading.feed(journal.out.getvalue()))
        told.append(calibrations.calibration(reading, f"run {number}"))
    found = list(pairs(*told))
    for pair, one, other in zip(found, *values, strict=True):
        apart = abs(one["value"] - other["value"]) / (one["value"] * one["spread_ratio"] + other["value"] * other["spread_ratio"])
        assert pair.agrees == (apart <= 1) or apart == pytest.approx(1, rel=1e-4), "lines have six digits"
    differ = [pair.name for pair in found if not pair.agrees]
    assert all(name in verdict(found) for name in differ) and verdict(found).startswith("they differ" if differ else "they agree")


def test_a_machine_that_became_another_does_not_agree() -> None:
    half = 4 * 8.0
    assert not any(agreements(Machine(lambda now: 1.0 if now <= half else 0.9), in_rounds=True))


def test_the_least_spread_is_a_hundredth_and_the_first_round_does_not_count() -> None:
    values = iter([1.0, 100.0, 100.1, 100.2])
    [found] = rounds([Measurement("a", "flops", lambda: next(values), {"side": 8})], 3)
    assert found == {"name": "a", "value": 100.1, "unit": "flops", "spread_ratio": 0.01, "repeats": 3, "side": 8}


def test_a_rate_is_bytes_or_operations_over_the_time_that_they_took(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate_measure, "timed", lambda *_: lambda: 0.5)
    products = list(calibrate_measure.matrix_products(SMALL, ALONE))
    assert [one.once() for one in products] == [2 * 128**3 / 0.5] * 2
    assert calibrate_measure.memory_copy(SMALL, ALONE).once() == 2 * 8 * 2**20 / 0.5


def test_the_disk_is_read_from_its_start_to_its_end(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(os.urandom(3 * calibrate_measure.PIECE_BYTES))
    read: list[int] = []
    plain = os.readv
    calibrate_measure.os.readv = lambda handle, rooms: read.append(plain(handle, rooms)) or read[-1]
    try:
        seconds, _ = calibrate_measure._read_once(str(file))
    finally:
        calibrate_measure.os.readv = plain
    assert sum(read) == 3 * calibrate_measure.PIECE_BYTES and seconds > 0


def test_a_stop_in_the_middle_of_a_recipe_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Trainer.train
    monkeypatch.setattr(Trainer, "train", lambda self, batch: os.kill(os.getpid(), signal.SIGTERM) or plain(self, batch))
    with pytest.raises(RecipeFault, match="it was told to stop, and has measured nothing."):
        calibrate_measure.recipe_speed("recommender", SMALL, ALONE, []).once()


def test_a_figure_says_what_ran_and_not_what_was_asked() -> None:
    tiny = [f"--{word}" for word in ("parallel=both", "tensor-ranks=2", "width=16", "heads=2", "layers=1", "context=8")]
    measured = calibrate_measure.recipe_speed("language", replace(SMALL, batch_size=4), ALONE, tiny)
    assert measured.once() > 0
    told = measured.about["settings"]
    assert (told["parallel"], told["tensor_ranks"], told["width"]) == ("ddp", 0, 16), "alone nothing is shared"


@pytest.mark.parametrize(
    ("changes", "fault", "sentence"),
    [
        ({"recipes": "vision,poems"}, WrongSettings, "--recipes poems: there is no such recipe to measure; vision, language, recommender, or none."),
        ({"changes": "width=8"}, WrongSettings, "--changes width=8: it is written RECIPE.SETTING=VALUE, as in language.width=768."),
        ({"changes": "vision.width=8"}, WrongSettings, "--changes vision.width=8: vision is not among the recipes that are measured (recommender)."),
        ({"changes": "recommender.wide=8"}, WrongSettings, "--wide=8: there is no such flag (did you mean --width?); --help lists them."),
        ({"changes": "recommender.steps=2"}, WrongSettings, "--changes recommender.steps=2: steps is no setting of the model;"),
        ({"folder": "/proc/nowhere"}, DataFault, "--folder /proc/nowhere: no file can be written there (No such file or directory); --disk-mb 0"),
    ],
)
def test_what_cannot_be_measured_is_a_sentence(changes: dict[str, Any], fault: type[Exception], sentence: str) -> None:
    with pytest.raises(fault) as wrong:
        run(replace(SMALL, **changes), Kept(), ALONE)
    assert str(wrong.value).startswith(sentence)
