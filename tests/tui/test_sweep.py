"""Sweep files: what a good one becomes, and the sentence for each bad one (tests/tui/bad_sweeps, named after its fault)."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pytest

from tests.support.cli import rackrate_inside
from tui.recipes import FOLDER
from tui.sweep import read

BAD = sorted((Path(__file__).parent / "bad_sweeps").glob("*.toml"))
EXAMPLE = FOLDER / "sweeps" / "vision.toml"


@pytest.mark.parametrize("path", BAD, ids=[path.stem for path in BAD])
def test_a_bad_sweep_is_one_sentence_with_its_file_and_key(path: Path, tmp_path: Path) -> None:
    said = path.read_text().splitlines()[0].removeprefix("# says: ")
    done = rackrate_inside(tmp_path, "sweep", str(path))
    assert done.code == 2 and said in done.err and str(path) in done.err, done.err
    assert done.err.count("\n") == 1 and done.out == ""


def test_the_example_is_printed_and_becomes_a_plan_with_the_command_of_a_trial(tmp_path: Path) -> None:
    done = rackrate_inside(tmp_path, "sweep", "--example")
    assert done.code == 0 and done.out == EXAMPLE.read_text()
    sweep = read(EXAMPLE)
    plan = json.loads(sweep.plan(2))
    assert (plan["gpus"], plan["at_once"], plan["nodes"], plan["budget"], plan["max_steps"]) == (0.5, 4, 2, "40", 2000)
    assert plan["command"][:4] == ["{python}", "-m", "agent.recipes.vision", "--steps=2000"]
    assert "--learning-rate={learning_rate}" in plan["command"]
    assert plan["train"][:4] == ["rackrate", "run", "--recipe", "vision"] and "width={width}" in plan["train"]
    assert sweep.job == {"gpus": 2, "project": "vision"}


@pytest.mark.parametrize(
    ("per_trial", "at_once", "nodes", "gpus"),
    [("0.5", 4, 1, 2), ("0.6", 4, 1, 4), ("0.4", 4, 2, 1), ("2", 4, 2, 4), ("1", 3, 2, 2), ("0", 4, 1, 0)],
)
def test_a_node_is_asked_for_the_gpus_of_its_trials(
    per_trial: str, at_once: int, nodes: int, gpus: int, tmp_path: Path
) -> None:
    text = EXAMPLE.read_text().replace("gpus_per_trial = 0.5 ", f"gpus_per_trial = {per_trial} ")
    (tmp_path / "s.toml").write_text(text.replace("trials_at_a_time = 4", f"trials_at_a_time = {at_once}"))
    sweep = read(tmp_path / "s.toml")
    assert sweep.gpus == Decimal(per_trial)
    assert (sweep.gpus_a_node(nodes) if sweep.gpus else 0) == gpus


def test_a_grid_counts_its_own_trials_and_a_wrong_call_is_told(tmp_path: Path) -> None:
    path = tmp_path / "grid.toml"
    path.write_text(
        '[sweep]\ncommand = ["python", "a.py", "{a}", "{b}"]\nmetric = "x"\nmode = "max"\nsearch = "grid"\n'
        "[space]\na = { grid = [1, 2, 3] }\nb = { grid = [true, false] }\n"
    )
    sweep = read(path)
    assert (sweep.trials, sweep.scheduler, sweep.name, sweep.train) == (6, "none", "grid", ())
    for arguments, said in (
        ((), "which sweep?"), (("show",), "which sweep?"), ((str(path), "--trials", "0"), "--trials 0"),
        ((str(path), "--budget", "much"), "--budget: 'much'"), (("nothing.toml",), "no such file"),
        ((str(path), "--gpus", "2"), "`gpus_per_trial`: the job asks for 2 GPUs"),
    ):  # fmt: skip
        done = rackrate_inside(tmp_path, "sweep", *arguments)
        assert done.code == 2 and said in done.err, (arguments, done.err)
    done = rackrate_inside(tmp_path, "--read-only", "sweep", str(path))
    assert done.code == 2 and "--read-only was given" in done.err
