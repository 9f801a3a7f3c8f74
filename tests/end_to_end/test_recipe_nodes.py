"""`rackrate run --recipe NAME --nodes 2` on two real agents (loopback, gloo): the curve of one process, and one node goes on."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.cli import Done, rackrate_here, write_config
from tests.support.job_agent import JobAgent

torch = pytest.importorskip("torch", reason="the extra `train` is not installed")

from tests.agent.recipes.small_language import SETTINGS, trained  # noqa: E402

STEPS = 8
GIVEN = {name: getattr(SETTINGS, name) for name in (
    "batch_size", "warmup_steps", "learning_rate", "context", "layers", "width", "heads", "vocabulary", "samples", "held_out",
    "checkpoint_every", "device", "tensorboard", "deterministic",
)} | {"steps": STEPS, "threads": 1}  # fmt: skip


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[JobAgent]]:
    folder = tmp_path_factory.mktemp("nodes")
    made = [JobAgent(folder / name, name=name) for name in ("one", "two")]
    try:
        yield [one.start() for one in made]
    finally:
        for one in made:
            one.close()


@pytest.fixture
def command(
    nodes: list[JobAgent], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Callable[..., Done]:
    """A recipe on the nodes, to its end. Their `python3` has torch, and Rackrate only as it is sent."""
    tables = [f'[[nodes]]\nname = "{number}"\nurl = "{one.url}"\ntoken_file = "{one.state}/token"\n' for number, one in enumerate(nodes)]
    write_config(tmp_path / "home", "\n".join(tables))
    monkeypatch.setenv("RACKRATE_HOME", str(tmp_path / "home"))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    (tmp_path / "bin" / "python3").chmod(0o755)
    packages = Path(torch.__file__).parents[1]
    environment = (f"PATH={tmp_path / 'bin'}:{os.environ['PATH']}", f"PYTHONPATH={packages}", "OMP_NUM_THREADS=1")
    options = [word for one in environment for word in ("--env", one)]
    sets = [word for key, value in {**GIVEN, "checkpoint_dir": tmp_path / "kept"}.items() for word in ("--set", f"{key}={value}".replace("True", "true"))]
    return lambda *arguments: rackrate_here(capfdbinary, "run", "--recipe", "language", *sets, *options, *arguments, "-f")


def losses(lines: list[str]) -> dict[int, float]:
    found = [json.loads(line[line.index("{") :]) for line in lines if '"step"' in line and "{" in line]
    return {one["step"]: one["loss"] for one in found if "event" not in one}


def test_two_nodes_give_the_curve_of_one_process_and_one_node_goes_on_from_their_checkpoint(
    command: Callable[..., Done], nodes: list[JobAgent], tmp_path: Path
) -> None:
    alone = trained(tmp_path / "alone", **GIVEN, clip=1.0)
    done = command("--nodes", "2")
    jobs = [one.jobs()[0] for one in nodes]
    assert done.code == 0 and [job["cause"] for job in jobs] == ["exit:0"] * 2, (done, *(one.text(one.jobs()[0]["id"]) for one in nodes))
    assert jobs[0]["gang"] == jobs[1]["gang"]
    lines = [line for one, job in zip(nodes, jobs, strict=True) for line in one.text(job["id"]).splitlines()]
    assert sum('"ranks": 2' in line for line in lines) == 1, "one rank speaks"
    assert losses(lines) == pytest.approx(alone["losses"], rel=1e-4)
    shutil.rmtree(tmp_path / "kept" / f"step-{STEPS:09d}")
    done = command("--node", "1")
    assert done.code == 0, done
    found = losses(done.out.splitlines())
    assert found == pytest.approx({step: alone["losses"][step] for step in range(5, STEPS + 1)}, rel=1e-4)
    assert f"goes on from {tmp_path / 'kept' / 'step-000000004'}, after step 4" in nodes[1].text(nodes[1].jobs()[0]["id"])
