"""`rackrate calibrate` on a real agent: a job that measures, its figures kept, and a plan and a quote that rest on them."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import ROOT, rackrate_inside, write_config
from tests.support.job_agent import JobAgent, wait_for

if importlib.util.find_spec("torch") is None:
    pytest.skip("the extra `train` is not installed", allow_module_level=True)

SMALL = (
    "--recipes", "recommender", "--set", "repeats=3", "--set", "seconds=0.01", "--set", "size=64", "--set", "memory_mb=2", "--set", "disk_mb=4",
    "--set", "steps=4", "--set", "batch_size=32", "--set", "device=cpu", "--set", "threads=1",
)  # fmt: skip


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JobAgent]:
    with JobAgent(tmp_path_factory.mktemp("node")) as agent:
        yield agent


@pytest.fixture(scope="module")
def home(node: JobAgent, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    write_config(folder, node.listed())
    return folder


def python3(folder: Path, runs: str) -> str:
    """As --env wants it: what `python3` is in the job."""
    (folder / "python3").write_text(f"#!/bin/sh\nexec {runs}\n")
    (folder / "python3").chmod(0o755)
    return f"PATH={folder}:{os.environ['PATH']}"


def test_a_calibration_is_a_job_whose_figures_are_kept_and_price_a_plan_and_a_quote(home: Path, node: JobAgent, tmp_path: Path) -> None:
    own = python3(tmp_path, f'{sys.executable} "$@"')
    done = rackrate_inside(home, "calibrate", "box", *SMALL, "--env", own, "--json")
    assert done.code == 0, done.err
    [found] = done.json()["calibrations"]
    figures = {one["name"]: one for one in found["figures"]}
    assert list(figures) == ["matmul_fp32", "matmul_bf16", "memory_copy", "disk_read", "recipe_recommender"]
    assert (found["node"], found["gpu_count"], found["usd_per_hour"]) == ("box", 0, "36.00")
    assert found["cpu"] and found["torch"] and found["host"] and node.jobs()[0]["name"] == "calibrate"
    [kept] = rackrate_inside(home, "calibrate", "list", "--json").json()
    assert kept == found
    speed = figures["recipe_recommender"]["value"]
    plan = rackrate_inside(home, "plan", "--recipe", "recommender", "--steps", "1000", "--set", "batch_size=32", "--json").json()
    [row] = plan["rows"]
    assert (row["how"], row["node"]) == ("measured", "box") and row["seconds"] == pytest.approx(32_000 / speed, rel=1e-4)
    assert float(row["usd"]) == pytest.approx(32_000 / speed * 36 / 3600, abs=2e-6)
    sets = ("--set", "batch_size=32", "--set", "steps=1000")
    quote = rackrate_inside(home, "run", "--recipe", "recommender", *sets, "--dry-run", "--json").json()["quote"]
    assert quote["expected_from"] == "calibration" and quote["calibration"]["how"] == "measured"
    assert quote["expected_seconds"] == pytest.approx(32_000 / speed, rel=1e-3)


def test_a_node_without_torch_says_so_and_nothing_is_kept(home: Path, tmp_path: Path) -> None:
    bare = python3(tmp_path, f'{sys.executable} -S "$@"')
    before = rackrate_inside(home, "calibrate", "list", "--json").out
    done = rackrate_inside(home, "calibrate", "--env", bare)
    assert done.code == 1 and "has no torch" in done.err and "install it there (`pip install torch`)" in done.err, done.err
    assert rackrate_inside(home, "calibrate", "list", "--json").out == before


def test_compress_is_sent_with_the_price_of_the_node_that_it_runs_on(home: Path, node: JobAgent, tmp_path: Path) -> None:
    done = rackrate_inside(home, "run", "--recipe", "compress", "--set", "checkpoint=/nowhere", "--env", python3(tmp_path, "true"), "--cpus", "1")
    job = node.ended(done.out.strip())
    assert job["command"][-1].startswith("--usd-per-hour=") and float(job["command"][-1].partition("=")[2]) > 0, job["command"]


def test_ctrl_c_cancels_the_job(home: Path, node: JobAgent, tmp_path: Path) -> None:
    endless = [*SMALL, "--env", python3(tmp_path, "sleep 1000")]
    process = subprocess.Popen(
        [sys.executable, "-m", "tui.cli", "calibrate", *endless], cwd=ROOT, env={**os.environ, "RACKRATE_HOME": str(home)}, stderr=subprocess.PIPE, text=True
    )
    job: dict[str, Any] = wait_for(lambda: next((one for one in node.jobs() if one["state"] == "running"), None))
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "1 job cancelled, nothing was measured" in err, err
    assert node.ended(job["id"])["cause"] == "cancelled"
