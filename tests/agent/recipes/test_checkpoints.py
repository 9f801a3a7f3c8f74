"""`agent.recipes.checkpoints`: whole or skipped, newest first, another model refused."""

from __future__ import annotations

import hashlib
import json
import resource
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the extra `train` is not installed")

from agent.recipes.checkpoints import Checkpoints  # noqa: E402
from agent.recipes.faults import CheckpointFault  # noqa: E402

MODEL = {"recipe": "vision", "width": 8}


def kept(folder: Path, *steps: int, keep: int = 5, **model: object) -> Checkpoints:
    made = Checkpoints(folder, {**MODEL, **model}, keep)
    for step in steps:
        made.save(step, {"model": {"weight": torch.full((3,), float(step))}}, dataset="made")
    made.wait()
    return made


def test_the_newest_is_read_back_with_what_was_said_of_it(tmp_path: Path) -> None:
    kept(tmp_path, 5, 10)
    found, skipped = Checkpoints(tmp_path, MODEL).newest()
    assert found is not None and (found.step, found.about["dataset"], skipped) == (10, "made", [])
    assert found.state["model"]["weight"].tolist() == [10.0] * 3


def test_only_the_newest_ones_are_kept(tmp_path: Path) -> None:
    kept(tmp_path, 1, 2, 3, 4, keep=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000000003", "step-000000004"]


def test_what_changes_after_a_save_is_not_in_it(tmp_path: Path) -> None:
    weight = torch.zeros(1000, 1000)
    made = Checkpoints(tmp_path, MODEL)
    made.save(1, {"model": weight})
    weight += 1
    made.wait()
    found, _ = made.newest()
    assert found is not None and float(found.state["model"].sum()) == 0


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda path: (path / "state.pt").write_bytes((path / "state.pt").read_bytes()[:-9]), "state.pt is half-written or damaged"),
        (lambda path: (path / "state.pt").write_bytes(b""), "state.pt is half-written or damaged"),
        (lambda path: (path / "state.pt").unlink(), "state.pt: no such file or directory"),
        (lambda path: (path / "about.json").unlink(), "about.json: no such file or directory"),
        (lambda path: (path / "about.json").write_text("{"), "about.json is no JSON"),
        (lambda path: (path / "about.json").write_text("[]"), "about.json does not say what it holds"),
    ],
)
def test_one_that_is_not_whole_is_named_and_the_one_before_it_taken(tmp_path: Path, damage: object, why: str) -> None:
    kept(tmp_path, 5, 10)
    damage(tmp_path / "step-000000010")  # type: ignore[operator]
    found, skipped = Checkpoints(tmp_path, MODEL).newest()
    assert found is not None and found.step == 5
    assert len(skipped) == 1 and skipped[0].startswith(f"{tmp_path}/step-000000010 is skipped: {why}")


def test_one_that_was_being_written_is_named_and_removed(tmp_path: Path) -> None:
    kept(tmp_path, 5)
    (tmp_path / ".writing-10").mkdir()
    (tmp_path / ".writing-10" / "state.pt").write_bytes(b"half")
    found, skipped = Checkpoints(tmp_path, MODEL).newest()
    assert found is not None and found.step == 5
    assert skipped == [".writing-10 was being written when the training ended, and is removed"]
    assert not (tmp_path / ".writing-10").exists()


def test_a_damaged_one_is_replaced_when_its_step_is_saved_again(tmp_path: Path) -> None:
    kept(tmp_path, 5, 10)
    (tmp_path / "step-000000010" / "state.pt").write_bytes(b"")
    again = Checkpoints(tmp_path, MODEL)
    again.newest()
    again.save(10, {"model": torch.ones(1)})
    again.wait()
    found, skipped = Checkpoints(tmp_path, MODEL).newest()
    assert found is not None and (found.step, skipped) == (10, [])


def test_another_models_checkpoint_is_refused_with_what_is_different(tmp_path: Path) -> None:
    kept(tmp_path, 5, width=16)
    with pytest.raises(CheckpointFault, match=r"step-000000005 is of another model \(width 16 there, 8 here\); use its settings,"):
        Checkpoints(tmp_path, MODEL).newest()


@pytest.mark.parametrize(("theirs", "written"), [({}, "without a number of its layout"), ({"layout": 1}, "of layout 1")])
def test_weights_of_another_layout_are_refused_although_their_shapes_are_the_same(tmp_path: Path, theirs: dict[str, object], written: str) -> None:
    kept(tmp_path, 5, **theirs)
    with pytest.raises(CheckpointFault) as wrong:
        Checkpoints(tmp_path, {**MODEL, "layout": 2}).newest()
    assert str(wrong.value) == (
        f"{tmp_path}/step-000000005 was written {written}, and this recipe vision reads 2: its weights would be misread."
        " Train anew in another --checkpoint-dir, or go on with the Rackrate that wrote it."
    )
    with pytest.raises(CheckpointFault, match="step-000000005 is of the recipe vision, and this is language: name another --checkpoint-dir."):
        Checkpoints(tmp_path, {"recipe": "language", "layout": 2}).newest()


def test_a_folder_of_another_format_is_refused(tmp_path: Path) -> None:
    kept(tmp_path, 5)
    path = tmp_path / "step-000000005" / "about.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 3}))
    with pytest.raises(CheckpointFault, match="step-000000005 is of format 3, and this program reads 1 and 2: go on with the Rackrate that wrote it"):
        Checkpoints(tmp_path, MODEL).newest()


def test_nothing_but_plain_values_is_unpickled(tmp_path: Path) -> None:
    kept(tmp_path, 5)
    path = tmp_path / "step-000000005"
    torch.save({"model": Checkpoints(tmp_path / "evil", MODEL)}, path / "state.pt")
    about = json.loads((path / "about.json").read_text())
    about["sha256"] = hashlib.sha256((path / "state.pt").read_bytes()).hexdigest()
    (path / "about.json").write_text(json.dumps(about))
    found, skipped = Checkpoints(tmp_path, MODEL).newest()
    assert found is None and "holds more than tensors and plain values" in skipped[0]


def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointFault, match=r"file/here: checkpoints cannot be kept there \(Not a directory\)\."):
        Checkpoints(tmp_path / "file" / "here", MODEL)


def test_a_checkpoint_that_cannot_be_written_is_told_at_the_next_save(tmp_path: Path) -> None:
    made = kept(tmp_path / "kept", 1)
    (tmp_path / "kept" / "step-000000001").rename(tmp_path / "moved")
    (tmp_path / "kept").rmdir()
    made.save(2, {})
    with pytest.raises(CheckpointFault, match=r"no checkpoint could be written \(.*No such file"):
        made.save(3, {})


def test_a_full_disk_is_told_as_such_and_leaves_nothing_half_written(tmp_path: Path) -> None:
    made, (soft, hard) = kept(tmp_path, 1), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        made.save(2, {"model": torch.ones(100_000)})
        with pytest.raises(CheckpointFault, match=r"no checkpoint could be written \(.*File too large"):
            made.wait()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000001"]
