"""Every recipe, killed with -9 and run again: the curve goes on, and the weights are those of a run that nothing disturbed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the extra `train` is not installed")

from tests.agent.recipes import small_runs  # noqa: E402
from tests.agent.recipes.small import Watched  # noqa: E402
from tests.agent.recipes.small_runs import CASES  # noqa: E402
from tests.support.cli import ROOT  # noqa: E402
from tui import recipes  # noqa: E402


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the checkpoints of each, which ended in the middle of it."""
    folder = tmp_path_factory.mktemp("killed")
    torch.set_num_threads(1)
    small_runs.original(folder)
    command = [sys.executable, "-m", "tests.agent.recipes.small_runs", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == dict.fromkeys(CASES, int(signal.SIGKILL)), done.stderr
    return folder


def test_there_is_a_case_of_every_recipe_that_trains() -> None:
    assert set(CASES) == set(recipes.names()) - {"calibrate"}


@pytest.mark.parametrize("name", CASES)
def test_killed_with_9_and_run_again_the_curve_goes_on_and_the_weights_equal_an_unbroken_run(killed: Path, name: str) -> None:
    case, unbroken, again = CASES[name], Watched(), Watched()
    whole = case.run(killed / f"{name}-unbroken", unbroken)
    resumed = case.run(killed / name, again)
    first = min(again.losses)
    assert first in case.since, again.err.getvalue()
    assert again.losses == {step: loss for step, loss in unbroken.losses.items() if step >= first}
    assert again.event("start")["step"] == first - 1 and "goes on from " in again.err.getvalue()
    assert whole.keys() == resumed.keys() and all(torch.equal(value, resumed[key]) for key, value in whole.items())
