"""Copies, shards of blocks and parts of matrices on two and four ranks (gloo) against one process with the whole model."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch", reason="the extra `train` is not installed")

from agent.recipes.checkpoints import ABOUT, FILES, STATE, STOPPED, Checkpoints  # noqa: E402
from agent.recipes.faults import CheckpointFault  # noqa: E402
from agent.recipes.language import KINDS  # noqa: E402
from agent.recipes.memory import untried  # noqa: E402
from agent.recipes.parallel import BOTH, DDP, FSDP, TENSOR, kind  # noqa: E402
from agent.recipes.ranks import Ranks  # noqa: E402
from tests.agent.recipes import small  # noqa: E402
from tests.agent.recipes.small import ALONE, Watched  # noqa: E402
from tests.agent.recipes.small_language import COPIES_STOP_AT, SETTINGS, STOP_AT, begun, stops, trained  # noqa: E402
from tests.support.cli import ROOT  # noqa: E402

CLOSE = {"rel": 1e-4}
"""Sums in another order; the losses differ by more from step to step, and without the optimizer's averages."""


def on_ranks(count: int, folder: Path, *experiments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.agent.recipes.small_ranks", str(count), str(folder), *experiments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, env=environment)


class Two(NamedTuple):
    """What came of everything that was tried on two ranks."""

    folder: Path
    kinds: Mapping[str, Any]
    resumes: Mapping[str, Any]
    sentences: Mapping[str, str]
    speeds: Mapping[str, Any]
    overflow: Mapping[str, Any]
    full: Mapping[str, Any]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One process, never stopped."""
    return trained(tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Two:
    folder = tmp_path_factory.mktemp("two")
    trained(folder / "stopped-alone", stops(ALONE, 0))
    names = Two._fields[1:]
    done = on_ranks(2, folder, *names, "copies")
    assert done.returncode == 0, done.stderr
    return Two(folder, *(json.loads((folder / f"{name}.json").read_text()) for name in names))


def curve(found: Mapping[str, Any]) -> dict[int, float]:
    return {int(step): loss for step, loss in found["losses"].items()}


def test_every_kind_gives_the_losses_of_one_process_with_the_whole_batch(two: Two, plain: dict[str, Any]) -> None:
    assert plain["losses"][1] - plain["losses"][12] > 0.1, "it learns, so the optimizer counts"
    for name, found in two.kinds.items():
        assert curve(found) == pytest.approx(plain["losses"], **CLOSE), name
        assert found["accuracy"] == pytest.approx(plain["accuracy"]), "13 samples on 2 ranks: none is judged twice"
    assert {one["start"]["parallel"] for one in two.kinds.values()} == {"fsdp", "tensor", "both"}


@pytest.mark.parametrize("name", ["fsdp-fsdp", "tensor-fsdp", "ddp-fsdp", "fsdp-ddp", "alone-fsdp"])
def test_stopped_as_one_kind_it_goes_on_as_another(two: Two, plain: dict[str, Any], name: str) -> None:
    found = curve(two.resumes[name])
    assert list(found) == list(range(STOP_AT + 2, 13))
    assert found == pytest.approx({step: plain["losses"][step] for step in found}, **CLOSE)
    assert f"goes on from {two.folder / name / 'step-000000007'}, after step 7" in two.resumes[name]["said"]


def test_the_same_kind_on_as_many_ranks_goes_on_exactly_as_if_it_had_not_been_stopped(two: Two) -> None:
    unbroken = curve(two.kinds["fsdp in pieces"])
    assert {**curve(two.resumes["fsdp"]), **curve(two.resumes["fsdp-fsdp"])} == unbroken


@pytest.mark.parametrize("name", ["fsdp", "tensor"])
def test_from_two_ranks_to_one(two: Two, plain: dict[str, Any], tmp_path: Path, name: str) -> None:
    shutil.copytree(two.folder / f"stopped-{name}", tmp_path / "kept")
    found = trained(tmp_path / "kept", parallel=name)["losses"]
    assert list(found) == list(range(STOP_AT + 2, 13))
    assert found == pytest.approx({step: plain["losses"][step] for step in found}, **CLOSE)
    assert (tmp_path / "kept" / "step-000000012" / STATE).is_file(), "one process keeps no shards"


@pytest.mark.parametrize("name", ["fsdp", "tensor", "ddp"])
def test_a_stop_told_to_one_rank_stops_all_after_the_same_step(two: Two, name: str) -> None:
    assert json.loads((two.folder / f"stopped-{name}" / STOPPED).read_text()) == {
        "step": STOP_AT + 1, "steps": 12, "signal": "a signal to another rank"
    }  # fmt: skip
    assert max(curve(two.resumes[name])) == STOP_AT + 1


# Copies (vision)


def test_two_ranks_give_the_gradients_of_one_process_with_the_whole_batch(two: Two, tmp_path: Path) -> None:
    together, alone = torch.load(two.folder / "copies" / "gradients.pt", weights_only=True), small.gradients(small.begun(tmp_path))
    assert together.keys() == alone.keys()
    for name, value in alone.items():
        torch.testing.assert_close(together[name], value, rtol=1e-4, atol=1e-6)


def test_a_stop_told_to_one_of_two_copies_stops_both_after_the_same_step(two: Two) -> None:
    assert json.loads((two.folder / "copies" / "checkpoints" / STOPPED).read_text()) == {
        "step": COPIES_STOP_AT + 1, "steps": 40, "signal": "a signal to another rank"
    }  # fmt: skip
    first, second = ((two.folder / "copies" / f"rank-{rank}").read_text().splitlines() for rank in (0, 1))
    assert json.loads(first[-1])["event"] == "stopped"
    assert json.loads(first[0])["ranks"] == 2 and len(second) == len(first), "the second rank's journal speaks in this test alone"


def test_from_two_ranks_to_one_it_goes_on_as_if_there_had_always_been_one(two: Two, tmp_path: Path) -> None:
    resumed, unbroken = Watched(), Watched()
    one = small.train(two.folder / "copies" / "checkpoints", resumed, steps=40)
    other = small.train(tmp_path, unbroken, steps=40)
    assert min(resumed.losses) == COPIES_STOP_AT + 2
    for step, loss in resumed.losses.items():
        assert loss == pytest.approx(unbroken.losses[step], rel=0.05, abs=0.01)
    for name, value in small.weights(other).items():
        torch.testing.assert_close(small.weights(one)[name], value, rtol=0.02, atol=0.01)


# Settings


def test_what_cannot_be_meant_is_one_sentence(two: Two) -> None:
    found = dict(two.sentences)
    kept, folder, own = two.folder / "kept" / "step-000000002", found.pop("not shared"), two.folder / "of-rank-0"
    assert found == {
        "heads": "--heads 1 cannot be shared by 2 tensor ranks; make it a multiple of 2.",
        "not asked": "--parallel both: how many of the 2 ranks share a matrix? Say it with --tensor-ranks.",
        "odd": "--tensor-ranks 3 does not divide the 2 ranks.",
        "too few": "--parallel tensor takes all 2 ranks; with --tensor-ranks 1 use --parallel both.",
        "for nothing": "--tensor-ranks 2 goes with --parallel tensor or both, and this is fsdp.",
        "another model": f"{kept} is of another model (layers 2 there, 1 here); use its settings, or another --checkpoint-dir.",
        "first alone": (
            f"rackrate: checkpoints are in {own} on the first rank's node alone, and are lost with it; with --checkpoint-dir"
            " name a folder that all nodes share.\n"
        ),
        "fp16": "--precision fp16 does not go with --parallel both: use bf16 or fp32, or --parallel fsdp.",
    }
    assert folder.startswith(f"shards need a folder that all nodes share, and {two.folder}/of-rank-1 on ")
    assert folder.endswith(" is not the one of the first rank; name one with --checkpoint-dir, or use --parallel ddp.")


def test_what_does_not_fit_into_shards_says_what_to_try() -> None:
    cpu = torch.device("cpu")
    assert untried(3, 8, 2, cpu) == (
        "out of memory in step 3: 8 samples at once on the CPU do not fit. What would fit was not tried, for with shards no rank can"
        " try it alone: --accumulate 4 is 4 at once (computed; same result, slower), --accumulate 16 is one; or share the model over"
        " more ranks."
    )
    assert untried(3, 1, 8, cpu).endswith("1 sample at once on the CPU do not fit: share the model over more ranks, or use"
                                          " --checkpoint-activations.")  # fmt: skip


def test_alone_nothing_is_shared_whatever_is_asked(tmp_path: Path) -> None:
    assert KINDS == (DDP, FSDP, TENSOR, BOTH)
    assert kind(SETTINGS, Ranks(0, 2, torch.device("cpu"))) == DDP
    assert begun(tmp_path, parallel="both", tensor_ranks=2).kind == DDP


def test_calibrate_measures_ranks_that_share_the_model_and_says_so(two: Two) -> None:
    assert two.speeds.keys() == {"fsdp", "tensor"}
    for name, found in two.speeds.items():
        assert found["speed"] > 0 and found["ranks"] == 2 and found["settings"]["parallel"] == name
    assert two.speeds["fsdp"]["parameters"] == two.speeds["tensor"]["parameters"], "of the whole model"


def test_an_infinite_gradient_on_one_rank_keeps_all_from_stepping_and_halves_the_scale_of_all(two: Two) -> None:
    assert two.overflow["found"] == [[True, 512.0, True]] * 2


# Killed


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four ranks, of which two share each matrix, after one of them was killed with -9."""
    folder = tmp_path_factory.mktemp("four")
    done = on_ranks(4, folder, "dies")
    assert done.returncode == 128 + signal.SIGKILL, done.stderr
    return folder


def test_four_ranks_that_share_both_give_the_losses_of_one_and_killed_with_9_one_goes_on(
    killed: Path, plain: dict[str, Any]
) -> None:
    before = {int(step): loss for step, loss in json.loads((killed / "losses.json").read_text()).items()}
    assert before == pytest.approx({step: plain["losses"][step] for step in before}, **CLOSE) and max(before) >= STOP_AT - 1
    found = trained(killed / "killed")["losses"]
    assert list(found) == list(range(5, 13)), "from the checkpoint of step 4"
    assert found == pytest.approx({step: plain["losses"][step] for step in found}, **CLOSE)


def test_the_launcher_ends_in_one_sentence_with_the_code_of_the_rank_that_failed_first(tmp_path: Path) -> None:
    rank = "import os, signal, sys; sys.exit(7) if sys.argv[1] == 'exits' else os.kill(os.getpid(), signal.SIGKILL)"
    (tmp_path / "rank.py").write_text(rank)
    script = (
        "import sys; from agent.recipes.torchrun import main\n"
        "for how in ('exits', 'dies'): print(main(['--standalone', '--nproc-per-node', '2', sys.argv[1], how]))"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path / "rank.py")], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["7", "137"], done.stderr
    told = [line for line in done.stderr.splitlines() if line.startswith("rackrate: ")]
    assert "Traceback" not in done.stderr and len(told) == 2
    assert re.fullmatch(r"rackrate: rank [01] ended with exit code 7; the others were ended with it\.", told[0])
    assert re.fullmatch(r"rackrate: rank [01] was killed by SIGKILL; the others were ended with it\.", told[1])


# Checkpoints in shards


@pytest.fixture
def shards(two: Two, tmp_path: Path) -> Path:
    """A folder with those of steps 8 and 12, of two ranks."""
    shutil.copytree(two.folder / "pieces", tmp_path / "shards")
    return tmp_path / "shards"


IDENTITY = {"recipe": "language", "layout": 2, "vocabulary": 16, "context": 16, "layers": 2, "width": 16, "heads": 4}


def test_shards_are_read_whole_by_one_process(shards: Path) -> None:
    found, skipped = Checkpoints(shards, IDENTITY).newest()
    assert found is not None and (found.step, skipped) == (12, [])
    assert sorted(found.about[FILES]) == [".metadata", "__0_0.distcp", "__1_0.distcp"]
    model = begun(shards.parent / "other").plain.state_dict()
    assert {name: value.shape for name, value in found.state["model"].items()} == {name: one.shape for name, one in model.items()}
    assert found.state["averages"]["tokens.weight"].keys() == {"step", "exp_avg", "exp_avg_sq"}


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda path: (path / "__1_0.distcp").write_bytes((path / "__1_0.distcp").read_bytes()[:-9]),
         "__1_0.distcp is half-written or damaged (its hash is not that of about.json)"),
        (lambda path: (path / "__0_0.distcp").unlink(), "__0_0.distcp: no such file or directory"),
        (lambda path: (path / ".metadata").unlink(), ".metadata: no such file or directory"),
        (lambda path: (path / ABOUT).write_text('{"step": 12, "model": {}}'), "about.json does not say what it holds"),
        (lambda path: (path / ABOUT).write_text('{"format": 2, "step": 12, "model": %s, "files": {}}' % json.dumps(IDENTITY)),
         ".metadata is not among its files"),
    ],
)  # fmt: skip
def test_one_that_is_not_whole_is_named_and_the_one_before_it_taken(shards: Path, damage: Any, why: str) -> None:
    damage(shards / "step-000000012")
    found, skipped = Checkpoints(shards, IDENTITY).newest(gather=False)
    assert found is not None and found.step == 8
    assert skipped == [f"{shards}/step-000000012 is skipped: {why}"]


def test_a_table_that_would_call_something_is_not_unpickled(shards: Path, tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "evil"),)

    path = shards / "step-000000012"
    (path / ".metadata").write_bytes(pickle.dumps(Evil()))
    about = json.loads((path / ABOUT).read_text())
    about[FILES][".metadata"] = hashlib.sha256((path / ".metadata").read_bytes()).hexdigest()
    (path / ABOUT).write_text(json.dumps(about))
    found, skipped = Checkpoints(shards, IDENTITY).newest(gather=False)
    assert found is not None and found.step == 8
    assert skipped[0].endswith(".metadata holds more than torch's table of tensors, or is of another torch")
    assert not (tmp_path / "evil").exists()


def test_a_full_disk_on_one_rank_is_told_by_all_and_leaves_nothing_half_written(two: Two) -> None:
    sentence = f"{two.folder / 'full'}: no checkpoint could be written (rank 1: [Errno 27] File too large)."
    assert two.full["told"] == [sentence] * 2 and two.full["left"] == []
    assert two.full["goes on"].keys() == {"1", "2"}


def test_shards_of_another_model_are_refused(shards: Path) -> None:
    with pytest.raises(CheckpointFault, match=r"is of another model \(width 16 there, 32 here\)"):
        begun(shards, Watched(), width=32)
