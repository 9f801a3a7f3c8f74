"""Calibrations as they are kept: added, listed, compared, carried to another machine; damaged files and wrong ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pricing.calibration import Calibration
from tests.support.cli import Done, rackrate_inside
from tui import calibrations
from tui.errors import ConfigurationError

START = {
    "event": "start", "recipe": "calibrate", "format": 1, "measured_at": "2026-11-30T10:00:00+00:00", "ranks": 8, "device": "cuda",
    "gpu": "NVIDIA A100-SXM4-40GB", "gpu_memory_bytes": 42_000_000_000, "gpus": 8, "cpu": "a CPU", "threads": 4, "torch": "2.9.1",
    "cuda": "12.8", "driver": "570.86.15", "host": "ip-10-0-0-5",
}  # fmt: skip
LANGUAGE = {
    "accumulate": 1, "context": 256, "layers": 6, "width": 384, "heads": 6, "dropout": 0.0, "vocabulary": 64, "clip": 1.0,
    "checkpoint_activations": False, "parallel": "ddp", "tensor_ranks": 0,
}  # fmt: skip
Run = Callable[..., Done]


def figure(name: str, value: float, unit: str, spread: float = 0.02, **about: Any) -> dict[str, Any]:
    return {"event": "figure", "name": name, "value": value, "unit": unit, "spread_ratio": spread, "repeats": 7, **about}


def output(*, at: str = "10:00", matmul: float = 250e12, speed: float = 8000.0, width: int = 384, **start: Any) -> str:
    """What the recipe prints, between other lines of a log."""
    lines = [
        {**START, "measured_at": f"2026-11-30T{at}:00+00:00", **start}, {"event": "round", "round": 1, "rounds": 1},
        figure("matmul_bf16", matmul, "flops", side=8192), figure("memory_copy", 1.3e12, "bytes_per_second", bytes=1 << 30),
        figure("recipe_language", speed, "samples_per_second", tokens_a_sample=256, batch_size=64, ranks=8, precision="bf16",
               settings={**LANGUAGE, "width": width}, parameters=10_770_432), {"event": "end", "figures": 3},
    ]  # fmt: skip
    return "srun: job 4711\n" + "".join(json.dumps(line) + "\n" for line in lines) + "done\n"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return lambda *arguments: rackrate_inside(tmp_path / "home", "calibrate", *map(str, arguments))


@pytest.fixture
def added(run: Run, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    def add(*options: str, **changes: Any) -> dict[str, Any]:
        file = tmp_path / "slurm-4711.out"
        file.write_text(output(**changes))
        done = run("add", file, *options, "--json")
        assert done.code == 0, done.err
        [found] = done.json()
        return dict(found)

    return add


def test_a_log_of_the_recipe_is_kept_with_its_hardware_once(run: Run, added: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    found = added("--node", "gpu-07", "--type", "p4d.24XLARGE", "--region", "us-east-1")
    assert (found["node"], found["cloud"], found["instance_type"], found["region"]) == ("gpu-07", "aws", "p4d.24xlarge", "us-east-1")
    assert (found["gpu"], found["gpu_count"], found["ranks"]) == ("NVIDIA A100-SXM4-40GB", 8, 8)
    assert (found["torch"], found["cuda"], found["driver"], found["host"]) == ("2.9.1", "12.8", "570.86.15", "ip-10-0-0-5")
    again = run("add", tmp_path / "slurm-4711.out")
    assert again.code == 0 and "0 kept, 1 were here already" in again.err
    shown = run("show", "gpu-07").out
    assert shown.startswith("gpu-07, aws p4d.24xlarge in us-east-1: 8 x NVIDIA A100-SXM4-40GB\n2026-11-30 10:00 UTC, id ")
    for words in ("torch 2.9.1, CUDA 12.8, driver 570.86.15", "250 TFLOPS  ±2.0 %  side 8192", "1.3 TB/s", "8,000 samples/s  ±2.0 %  batch 64, bf16 on 8 ranks"):
        assert words in shown, shown
    added("--node", "wide", at="12:00", width=768)
    assert "batch 64, bf16 on 8 ranks, width=768\n" in run("show", "wide").out, "a setting that is not as the recipe ships"
    listed = run("list", "p4d.24xlarge").out.splitlines()
    assert len(listed) == 2 and listed[1].split()[0] == found["id"] and listed[1].endswith("3: language")


def test_two_calibrations_agree_within_both_spreads_and_no_further(run: Run, added: Callable[..., dict[str, Any]]) -> None:
    """2 % each: 10,000 and 10,400 differ by 400 <= 200 + 208; 10,409 by 409 > 408.2."""
    added("--node", "a", speed=10_000.0)
    added("--node", "b", at="11:00", speed=10_400.0)
    agree = run("compare")
    assert agree.code == 0 and "they agree within their spread in all 3 figures" in agree.out and max(map(len, agree.out.splitlines())) <= 80
    assert "+4.0 %" in agree.out and "±2.0 ±2.0 %  agree" in agree.out
    added("--node", "c", at="12:00", speed=10_409.0)
    differ = run("compare", "a", "c")
    assert differ.code == 1 and "they differ by more than their spread in 1 of 3 figures: recipe_language by 4.1 %." in " ".join(differ.out.split())
    assert "DIFFER" in differ.out
    added("--node", "d", at="13:00", width=768)
    other = run("compare", "c", "d", "--json").json()
    assert other["agree"] is True and [one["agree"] for one in other["figures"]] == [True, True, None], "other settings are not held against it"


def test_what_was_measured_travels_as_json_lines(run: Run, added: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    first, second = added(), added(at="11:00")
    run("export", "--out", tmp_path / "all.jsonl")
    done = rackrate_inside(tmp_path / "other", "calibrate", "import", str(tmp_path / "all.jsonl"), "--json")
    assert [one["id"] for one in done.json()] == [first["id"], second["id"]]
    assert rackrate_inside(tmp_path / "other", "calibrate", "export").out == (tmp_path / "all.jsonl").read_text()
    again = rackrate_inside(tmp_path / "other", "calibrate", "import", str(tmp_path / "all.jsonl"))
    assert again.code == 0 and "0 kept, 2 were here already" in again.err


def test_a_damaged_file_is_told_with_its_line_and_never_written_to(run: Run, added: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    added()
    kept = tmp_path / "home" / "data" / calibrations.FILE
    kept = next((tmp_path / "home").rglob(calibrations.FILE)) if not kept.exists() else kept
    whole = kept.read_bytes()
    for damage, words in ((whole + whole[:50], "line 2: it is damaged"), (whole + b'{"format":"rackrate-calibration","version":2}\n', "line 2: it is of version 2")):
        kept.write_bytes(damage)
        for arguments in (("list",), ("add", tmp_path / "slurm-4711.out"), ("compare",)):
            done = run(*arguments)
            assert done.code == 2 and words in done.err and "Repair the line, or remove the file." in done.err, done.err
        assert kept.read_bytes() == damage


def test_a_line_without_its_end_is_ended_before_the_next_one(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(output())
    (tmp_path / "later").write_text(output(at="11:00"))
    calibrations.add(tmp_path, [calibrations.of_file(tmp_path / "log")])
    kept = tmp_path / calibrations.FILE
    kept.write_bytes(kept.read_bytes().rstrip(b"\n"))
    calibrations.add(tmp_path, [calibrations.of_file(tmp_path / "later")])
    assert len(calibrations.load(tmp_path)) == 2 and all(isinstance(one, Calibration) for one in calibrations.load(tmp_path))
    kept.write_bytes(b"\xff\n")
    with pytest.raises(ConfigurationError, match="line 1"):
        calibrations.load(tmp_path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("no JSON at all\n", "there is no calibration in it; it is what `python -m agent.recipes.calibrate` prints."),
        (output(format=2), "it is a calibration of format 2, and this program reads 1; measure again."),
        (output().partition('{"event": "figure"')[0], "the calibration has no figures; it was broken off before the first one."),
        (output(matmul=-1.0), "the figure matmul_bf16 is none (-1.0 flops, spread 0.02)."),
        (output(ranks="eight"), "the calibration is damaged"),
        (output(recipe="vision"), "there is no calibration in it"),
    ],
)
def test_a_file_that_is_none_is_one_sentence(run: Run, tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "log").write_text(text)
    done = run("add", tmp_path / "log")
    assert done.code == 2 and words in done.err and len(done.err.splitlines()) == 1, done.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("add", "nowhere.out"), "nowhere.out: no such file or directory."),
        (("add", "FILE", "--type", "p99.large"), "--type p99.large: no cloud of the catalog has such an instance type; leave --type out"),
        (("add", "FILE", "--type", "p4d.24xlarge", "--cloud", "gcp"), "--type p4d.24xlarge: gcp has no such instance type"),
        (("show", "gpu-99"), "gpu-99: no calibration is of that id, node or instance type; nothing was measured yet"),
        (("compare",), "there are no two calibrations of one kind of hardware to compare"),
        (("import", "FILE"), "line 1: it is damaged (no JSON)."),
        (("box", "--set", "stepps=3"), "the recipe calibrate has no such setting; did you mean steps?"),
        (("box", "--set", "seconds=long"), "--set seconds: 'long' has to be a number."),
    ],
)
def test_wrong_usage_is_one_sentence(run: Run, tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    (tmp_path / "log").write_text(output())
    done = run(*(str(tmp_path / "log") if word == "FILE" else word for word in arguments))
    assert done.code == 2 and words in done.err and len(done.err.splitlines()) == 1, done.err


def test_the_sentence_of_a_job_that_failed_is_found_in_its_log() -> None:
    reading = calibrations.Reading()
    log = "Traceback?\nrackrate: recipe calibrate: /usr/bin/python3 has no torch (No module named 'torch'); install it there.\n"
    assert not list(reading.feed(log[:30])) and not list(reading.feed(log[30:]))
    assert reading.sentence == "/usr/bin/python3 has no torch (No module named 'torch'); install it there."
