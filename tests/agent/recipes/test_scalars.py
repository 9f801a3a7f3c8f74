"""TensorBoard's curves: the values of the JSON lines, once a step, over kills and resumes."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the extra `train` is not installed")
pytest.importorskip("tensorboard", reason="the extra `train` is not installed")

from tests.agent.recipes.small import Watched, train  # noqa: E402


def curves(folder: Path) -> dict[str, dict[int, float]]:
    """Name -> step -> value, as TensorBoard shows them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(folder))
    read.Reload()
    return {name: {one.step: one.value for one in read.Scalars(name)} for name in read.Tags()["scalars"]}


def test_they_are_the_json_lines_and_go_on_after_a_stop(tmp_path: Path) -> None:
    stopped = Watched(lambda step: os.kill(os.getpid(), signal.SIGTERM) if step == 5 else None)
    again = Watched()
    train(tmp_path, stopped, steps=12, tensorboard="auto")
    train(tmp_path, again, steps=12, tensorboard="auto")
    found = curves(tmp_path / "tensorboard")
    losses = {**stopped.losses, **again.losses}
    assert list(found["loss"]) == list(range(1, 13))
    assert all(found["loss"][step] == pytest.approx(loss, rel=1e-5) for step, loss in losses.items())
    assert {"samples_per_second", "memory_used_bytes", "learning_rate", "epoch", "accuracy"} <= found.keys()
    assert found["accuracy"] == {12: pytest.approx(again.event("end")["accuracy"])}


def test_off_writes_nothing_and_a_folder_of_its_own_is_used(tmp_path: Path) -> None:
    train(tmp_path / "off", steps=1, held_out=0, tensorboard="off")
    assert not (tmp_path / "off" / "tensorboard").exists()
    train(tmp_path / "own", steps=1, held_out=0, tensorboard=str(tmp_path / "curves"))
    assert curves(tmp_path / "curves")["loss"].keys() == {1}


def test_without_the_package_it_says_so_only_where_it_was_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    silent, asked = Watched(), Watched()
    train(tmp_path / "a", silent, steps=1, held_out=0, tensorboard="auto")
    train(tmp_path / "b", asked, steps=1, held_out=0, tensorboard=str(tmp_path / "curves"))
    assert silent.err.getvalue() == ""
    assert asked.err.getvalue() == "rackrate: --tensorboard: tensorboard is not installed here (`pip install tensorboard`): no curves are written.\n"


def test_a_folder_that_cannot_be_written_is_a_sentence_and_the_training_goes_on(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    journal = Watched()
    train(tmp_path / "kept", journal, steps=1, held_out=0, tensorboard=str(tmp_path / "file"))
    assert "curves cannot be written there" in journal.err.getvalue() and journal.event("end")["step"] == 1
