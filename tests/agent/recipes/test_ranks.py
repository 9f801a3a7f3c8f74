"""Two ranks (torchrun, gloo) against one process, and back to one; which rank gets which device."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the extra `train` is not installed")

from agent.recipes.checkpoints import STOPPED  # noqa: E402
from agent.recipes.faults import WrongSettings  # noqa: E402
from agent.recipes.ranks import Ranks, choose, ranks  # noqa: E402
from tests.agent.recipes.small import Watched, begun, gradients, train, weights  # noqa: E402
from tests.support.cli import ROOT  # noqa: E402

AT = 8


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a training on two ranks of which the second was told to stop after step 8."""
    folder = tmp_path_factory.mktemp("two")
    launch = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "tests.agent.recipes.small")
    command = [sys.executable, *launch, str(folder), "ranks", str(AT)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    return folder


def test_two_ranks_give_the_gradients_of_one_process_with_the_whole_batch(two: Path, tmp_path: Path) -> None:
    together, alone = torch.load(two / "gradients.pt", weights_only=True), gradients(begun(tmp_path))
    assert together.keys() == alone.keys()
    for name, value in alone.items():
        torch.testing.assert_close(together[name], value, rtol=1e-4, atol=1e-6)


def test_a_stop_told_to_one_rank_stops_all_after_the_same_step(two: Path) -> None:
    assert json.loads((two / "checkpoints" / STOPPED).read_text()) == {
        "step": AT + 1, "steps": 40, "signal": "a signal to another rank"
    }  # fmt: skip
    first, second = ((two / f"rank-{rank}").read_text().splitlines() for rank in (0, 1))
    assert json.loads(first[-1])["event"] == "stopped"
    assert json.loads(first[0])["ranks"] == 2 and len(second) == len(first), "the second rank's journal speaks in this test alone"


def test_from_two_ranks_to_one_it_goes_on_as_if_there_had_always_been_one(two: Path, tmp_path: Path) -> None:
    resumed, unbroken = Watched(), Watched()
    one = train(two / "checkpoints", resumed, steps=40)
    other = train(tmp_path, unbroken, steps=40)
    assert min(resumed.losses) == AT + 2
    for step, loss in resumed.losses.items():
        assert loss == pytest.approx(unbroken.losses[step], rel=0.05, abs=0.01)
    for name, value in weights(other).items():
        torch.testing.assert_close(weights(one)[name], value, rtol=0.02, atol=0.01)


@pytest.mark.parametrize(("device", "local", "world", "gpus", "found"), [
    ("auto", 0, 1, 0, "cpu"), ("auto", 1, 2, 2, "cuda:1"), ("cpu", 3, 4, 2, "cpu"), ("cuda", 0, 1, 8, "cuda:0"),
])  # fmt: skip
def test_each_rank_has_a_device_of_its_own(device: str, local: int, world: int, gpus: int, found: str) -> None:
    assert str(choose(device, local, world, gpus)) == found


def test_more_ranks_than_gpus_is_a_sentence() -> None:
    with pytest.raises(WrongSettings) as wrong:
        choose("auto", 0, 4, 2)
    assert str(wrong.value) == (
        "there are 4 ranks on this node and 2 GPUs: a rank needs a GPU of its own; start 2 with --nproc-per-node, or use --device cpu."
    )
    with pytest.raises(WrongSettings, match="torch sees no GPU here"):
        choose("cuda", 0, 1, 0)


def test_a_batch_that_the_ranks_cannot_share_is_a_sentence() -> None:
    assert Ranks(2, 4, torch.device("cpu")).part(16) == slice(8, 12)
    with pytest.raises(WrongSettings, match="--batch-size 16 cannot be shared by 3 ranks; make it a multiple of 3"):
        Ranks(0, 3, torch.device("cpu")).part(16)


def test_an_environment_that_is_not_torchruns_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "two")
    with pytest.raises(WrongSettings, match="the environment variable WORLD_SIZE is 'two'"), ranks("cpu"):
        pass
