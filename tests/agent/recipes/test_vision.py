"""The vision recipe on one core: it learns, stops softly, and says what is wrong in one sentence."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the extra `train` is not installed")

from agent.recipes import train as loop  # noqa: E402
from agent.recipes import vision_task  # noqa: E402
from agent.recipes.checkpoints import FINISHED, STOPPED  # noqa: E402
from agent.recipes.faults import CheckpointFault, OutOfMemory, RecipeFault, WrongSettings  # noqa: E402
from agent.recipes.train import Trainer, precision, rate  # noqa: E402
from agent.recipes.vision_model import SmallResNet  # noqa: E402
from tests.agent.recipes.small import ALONE, SETTINGS, Watched, begun, gradients, train, weights  # noqa: E402


class Unbroken:
    """One training that nothing disturbed."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.journal = folder, Watched()
        self.trainer: Trainer = train(folder, self.journal)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Unbroken:
    torch.set_num_threads(1)
    return Unbroken(tmp_path_factory.mktemp("unbroken"))


def equal(one: Trainer, other: Trainer) -> bool:
    """Bit for bit."""
    theirs = weights(other)
    return all(torch.equal(value, theirs[name]) for name, value in weights(one).items())


def test_in_a_second_on_one_core_the_loss_falls_to_a_tenth_and_new_images_are_told_apart(tmp_path: Path) -> None:
    journal = Watched()
    train(tmp_path, journal, steps=120, deterministic=False)
    losses = journal.losses
    assert list(losses) == list(range(1, 121))
    first, last = (sum(losses[step] for step in steps) / 5 for steps in (range(1, 6), range(116, 121)))
    assert first > 1.2 and last < first / 10, (first, last)
    assert journal.event("end")["accuracy"] > 0.9, "of images that it has not seen; by chance it is 0.25"


def test_each_line_has_the_figures_of_its_step(unbroken: Unbroken) -> None:
    start, lines = unbroken.journal.event("start"), [one for one in unbroken.journal.lines if "event" not in one]
    assert (start["step"], start["ranks"], start["dataset"]) == (0, 1, "made:images samples=256 classes=4 side=16 seed=0")
    for line in lines:
        assert line["samples_per_second"] > 0 and line["memory_used_bytes"] > 10**7
        assert 0 <= line["utilization_ratio"] <= 1 and line["data_wait_seconds"] >= 0
        assert line["epoch"] == pytest.approx(line["step"] * 16 / 256)
    assert json.loads((unbroken.folder / FINISHED).read_text())["step"] == 40


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_soft_stop_saves_leaves_a_marker_and_the_next_run_goes_on(
    unbroken: Unbroken, tmp_path: Path, number: signal.Signals
) -> None:
    before = signal.getsignal(number)
    stopped = Watched(lambda step: os.kill(os.getpid(), number) if step == 6 else None)
    train(tmp_path, stopped)
    assert signal.getsignal(number) is before
    assert max(stopped.losses) == 7 and stopped.event("stopped")["step"] == 7, "told after step 6, while the next one begins"
    assert json.loads((tmp_path / STOPPED).read_text()) == {"step": 7, "steps": 40, "signal": number.name}
    assert (tmp_path / "step-000000007").is_dir()
    again = Watched()
    trainer = train(tmp_path, again)
    assert min(again.losses) == 8 and not (tmp_path / STOPPED).exists() and (tmp_path / FINISHED).exists()
    assert equal(trainer, unbroken.trainer)


def test_run_again_after_its_end_it_only_tells_the_end(unbroken: Unbroken) -> None:
    again = Watched()
    train(unbroken.folder, again)
    assert [one["event"] for one in again.lines] == ["start", "end"]
    assert again.event("end")["accuracy"] == unbroken.journal.event("end")["accuracy"]


def test_pieces_of_a_batch_give_the_gradients_of_the_whole(tmp_path: Path) -> None:
    whole = gradients(begun(tmp_path / "1"))
    for pieces in (2, 16):
        for name, value in gradients(begun(tmp_path / str(pieces), accumulate=pieces)).items():
            torch.testing.assert_close(value, whole[name], rtol=1e-4, atol=1e-6)


def test_bf16_and_workers_that_load_ahead_train_as_well(tmp_path: Path) -> None:
    journal = Watched()
    train(tmp_path, journal, steps=12, precision="bf16", workers=1, deterministic=False, held_out=0)
    assert journal.event("start")["precision"] == "bf16" and journal.event("end")["accuracy"] is None
    assert journal.losses[12] < journal.losses[1]


def test_other_settings_than_the_checkpoints_are_told(tmp_path: Path) -> None:
    train(tmp_path, steps=2, held_out=0)
    again = Watched()
    train(tmp_path, again, steps=3, held_out=0, batch_size=8, seed=1)
    assert again.err.getvalue().splitlines()[:4] == [
        "rackrate: batch_size was 16 in the checkpoint and is 8: the curve goes on differently.",
        "rackrate: seed was 0 in the checkpoint and is 1: the curve goes on differently.",
        "rackrate: steps was 2 in the checkpoint and is 3: the curve goes on differently.",
        "rackrate: the data were made:images samples=256 classes=4 side=16 seed=0 in the checkpoint and are"
        " made:images samples=256 classes=4 side=16 seed=1.",
    ]
    assert list(again.losses) == [3]


def test_another_models_checkpoint_is_a_sentence(tmp_path: Path) -> None:
    train(tmp_path, steps=1, held_out=0)
    with pytest.raises(CheckpointFault, match=r"is of another model \(width 8 there, 16 here\)"):
        begun(tmp_path, width=16)


def test_where_no_checkpoint_is_whole_it_says_that_it_begins_anew(tmp_path: Path) -> None:
    train(tmp_path, steps=1, held_out=0)
    (tmp_path / "step-000000001" / "state.pt").write_bytes(b"")
    journal = Watched()
    train(tmp_path, journal, steps=1, held_out=0)
    assert journal.err.getvalue().splitlines()[1] == f"rackrate: no checkpoint in {tmp_path} is whole: it begins anew." and list(journal.losses) == [1]


def test_a_loss_that_is_none_ends_it_and_is_in_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(RecipeFault, match=r"the loss of step \d is nan: try a lower --learning-rate"):
        train(tmp_path, learning_rate=1e30, warmup_steps=0, checkpoint_every=1, deterministic=False)
    found, _ = begun(tmp_path).saved.newest()  # type: ignore[union-attr]
    assert found is None or all(bool(value.isfinite().all()) for value in found.state["model"].values())


def test_out_of_memory_says_which_batch_would_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = vision_task.VisionTask.loss

    def small(self: object, model: object, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        if len(batch["images"]) > 5:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return real(self, model, batch)  # type: ignore[arg-type]

    monkeypatch.setattr(vision_task.VisionTask, "loss", small)
    with pytest.raises(OutOfMemory) as wrong:
        train(tmp_path)
    assert str(wrong.value) == (
        "out of memory in step 1: 16 samples at once on the CPU do not fit, 4 would: use --accumulate 4 (same result, slower),"
        " or --batch-size 4."
    )
    train(tmp_path, steps=1, accumulate=4, held_out=0)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"accumulate": 3}, "--accumulate 3 does not divide the 16 samples of each rank (--batch-size 16 over 1)."),
        ({"precision": "fp16"}, "--precision fp16 needs a GPU; on the CPU use bf16 or fp32."),
    ],
)
def test_settings_that_do_not_go_together_are_a_sentence(tmp_path: Path, changes: dict[str, object], sentence: str) -> None:
    with pytest.raises(WrongSettings) as wrong:
        begun(tmp_path, **changes)
    assert str(wrong.value) == sentence


def test_a_model_of_torchvision_needs_torchvision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vision_task, "TORCHVISION", "no_such_package")
    with pytest.raises(WrongSettings, match="--model resnet50 needs torchvision, which is not installed here; use --model small"):
        begun(tmp_path, model="resnet50")


def test_the_augmentation_moves_and_mirrors_each_image_by_its_own_draws() -> None:
    images = torch.arange(2 * 3 * 8 * 8.0).reshape(2, 3, 8, 8)
    still = torch.tensor([[0.5, 0.5, 0.9], [0.5, 0.5, 0.1]])
    found = vision_task.augmented(images, still, 0.25, flip=True)
    assert torch.equal(found[0], images[0]) and torch.equal(found[1], images[1].flip(-1))
    moved = vision_task.augmented(images, torch.tensor([[0.99, 0.0, 0.9]] * 2), 0.25, flip=False)
    assert torch.equal(moved[:, :, :6, 2:], images[:, :, 2:, :6]), "up by two and right by two"
    assert torch.equal(vision_task.augmented(images, still, 0.0, flip=False), images)


def test_no_layer_looks_at_other_samples() -> None:
    model, images = SmallResNet(4, 8, 2), torch.rand(3, 3, 16, 16)
    torch.testing.assert_close(model(images)[1:2], model(images[1:2]))


def test_the_learning_rate_rises_as_a_line_and_falls_as_a_cosine() -> None:
    assert [rate(step, 4, 104) for step in (0, 3, 4, 54)] == pytest.approx([0.25, 1.0, 1.0, 0.5])
    assert rate(104, 4, 104) == pytest.approx(0) and rate(0, 0, 1) == 1


def test_precision_is_by_the_device() -> None:
    assert [precision(asked, torch.device("cpu")) for asked in ("auto", "bf16")] == ["fp32", "bf16"]


def test_channels_last_is_how_images_and_weights_lie(tmp_path: Path) -> None:
    trainer = begun(tmp_path)
    assert trainer.plain.body[0].weight.is_contiguous(memory_format=torch.channels_last)  # type: ignore[union-attr, index]
    batch = trainer.task.source.batch([0, 1])
    images = trainer.task.prepare(batch, None, ALONE.device)["images"]
    assert images.is_contiguous(memory_format=torch.channels_last) and -1 <= float(images.min()) <= float(images.max()) <= 1


def test_the_loop_knows_no_recipe() -> None:
    assert "vision" not in Path(str(loop.__file__)).read_text() and SETTINGS.deterministic
