"""Calibration on one core: what is measured, in which unit, and that it agrees with itself."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the extra `train` is not installed")

from agent.recipes import calibrate_run  # noqa: E402
from agent.recipes.calibrate import Calibrate  # noqa: E402
from agent.recipes.calibrate_run import figure, run  # noqa: E402
from agent.recipes.faults import DataFault, WrongSettings  # noqa: E402
from agent.recipes.settings import to_toml  # noqa: E402
from tests.agent.recipes.small import ALONE, Watched  # noqa: E402

FILE = Path(__file__).parents[3] / "agent" / "recipes" / "calibrate.toml"
SMALL = Calibrate(
    recipes="recommender", repeats=3, seconds=0.01, size=128, memory_mb=8, disk_mb=8, steps=3, batch_size=32, device="cpu", threads=1
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
    start, *told, end = journal.lines
    assert start["device"] == "cpu" and start["cpu"] and start["torch"] == torch.__version__ and start["measured_at"].endswith("+00:00")
    assert [one["name"] for one in told] == list(figures) and end == {"event": "end", "figures": 5}
    assert not os.listdir(tmp_path), "the file that was read is gone"


def test_a_figure_is_the_median_and_its_spread_half_of_what_lies_between_the_ends() -> None:
    assert figure("a", "flops", [9.0, 10.0, 12.0]) == {"name": "a", "value": 10.0, "unit": "flops", "spread_ratio": 0.15, "repeats": 3}


def test_a_rate_is_bytes_or_operations_over_the_time_that_they_took(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate_run, "timed", lambda *_: [0.5, 0.5, 0.5])
    products = list(calibrate_run.matrix_products(SMALL, ALONE))
    assert [one["value"] for one in products] == [2 * 128**3 / 0.5] * 2
    assert calibrate_run.memory_copy(SMALL, ALONE)["value"] == 2 * 8 * 2**20 / 0.5


def test_the_disk_is_read_from_its_start_to_its_end(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(os.urandom(3 * calibrate_run.PIECE_BYTES))
    read: list[int] = []
    plain = os.readv
    calibrate_run.os.readv = lambda handle, rooms: read.append(plain(handle, rooms)) or read[-1]
    try:
        seconds, _ = calibrate_run._read_once(str(file))
    finally:
        calibrate_run.os.readv = plain
    assert sum(read) == 3 * calibrate_run.PIECE_BYTES and seconds > 0


@pytest.mark.parametrize(
    ("changes", "fault", "sentence"),
    [
        ({"recipes": "vision,poems"}, WrongSettings, "--recipes poems: there is no such recipe to measure; vision, language, recommender, or none."),
        ({"folder": "/proc/nowhere"}, DataFault, "--folder /proc/nowhere: no file can be written there (No such file or directory); --disk-mb 0"),
    ],
)
def test_what_cannot_be_measured_is_a_sentence(changes: dict[str, Any], fault: type[Exception], sentence: str) -> None:
    with pytest.raises(fault) as wrong:
        run(replace(SMALL, **changes), Kept(), ALONE)
    assert str(wrong.value).startswith(sentence)
