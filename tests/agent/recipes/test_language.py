"""The language recipe on one core: it learns, its pieces and its recomputed blocks give the same gradients."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the extra `train` is not installed")

from agent.recipes import language_task  # noqa: E402
from agent.recipes.data import Broken  # noqa: E402
from agent.recipes.faults import CheckpointFault, DataFault, WrongSettings  # noqa: E402
from agent.recipes.language import Language  # noqa: E402
from agent.recipes.language_model import Decoder  # noqa: E402
from agent.recipes.settings import to_toml  # noqa: E402
from agent.recipes.texts import NOISE, MadeTexts, TextFolder  # noqa: E402
from agent.recipes.train import Trainer  # noqa: E402
from tests.agent.recipes.small import ALONE, Watched, gradients  # noqa: E402

SETTINGS = Language(
    batch_size=16, steps=120, warmup_steps=10, learning_rate=0.01, context=32, layers=2, width=32, heads=2, vocabulary=16,
    samples=1024, held_out=64, checkpoint_every=0, device="cpu", tensorboard="off",
)  # fmt: skip
FILE = Path(__file__).parents[3] / "agent" / "recipes" / "language.toml"


def begun(folder: Path, journal: Watched | None = None, **changes: Any) -> Trainer:
    settings = replace(SETTINGS, **changes)
    return Trainer(settings, language_task.make(settings), ALONE, folder, journal or Watched())


def test_the_file_that_ships_has_every_setting_with_its_default() -> None:
    assert FILE.read_text() == to_toml(Language, Language.__doc__ or "")


def test_in_seconds_on_one_core_the_loss_falls_to_a_quarter_and_near_what_noise_allows(tmp_path: Path) -> None:
    journal = Watched()
    begun(tmp_path, journal).run()
    losses = journal.losses
    first, last = (sum(losses[step] for step in steps) / 5 for steps in (range(1, 6), range(116, 121)))
    least = NOISE * math.log(16) + -(1 - NOISE) * math.log(1 - NOISE) - NOISE * math.log(NOISE)
    assert first > 0.9 * math.log(16) and last < first / 4 and last > 0.5 * least, (first, last, least)
    assert journal.event("end")["accuracy"] > 0.8, "of tokens that it has not seen; by chance it is 0.06"
    assert journal.event("start")["tokens_a_sample"] == 32


@pytest.mark.parametrize("changes", [{"accumulate": 4}, {"checkpoint_activations": True}, {"accumulate": 2, "checkpoint_activations": True}])
def test_pieces_and_recomputed_blocks_give_the_same_gradients(tmp_path: Path, changes: dict[str, Any]) -> None:
    plain = gradients(begun(tmp_path / "plain"))
    for name, value in gradients(begun(tmp_path / "other", **changes)).items():
        torch.testing.assert_close(value, plain[name], rtol=1e-4, atol=1e-6)


def test_recomputed_blocks_keep_less(tmp_path: Path) -> None:
    """Counted in the bytes that are kept for the gradients."""
    kept = {}
    for again in (False, True):
        trainer, sizes = begun(tmp_path / str(again), checkpoint_activations=again, layers=6), []
        batch = trainer.task.prepare(trainer.task.source.batch(range(16)), None, ALONE.device)

        def pack(value: Any, sizes: list[int] = sizes) -> Any:
            sizes.append(value.numel() * value.element_size())
            return value

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda value: value):
            trainer.task.loss(trainer.plain, batch)
        kept[again] = sum(sizes)
    assert kept[True] < kept[False] / 3, kept


def test_no_token_sees_a_later_one() -> None:
    torch.manual_seed(0)
    model, numbers = Decoder(16, 8, 2, 16, 2, 0.0), torch.randint(16, (2, 8))
    changed = numbers.clone()
    changed[:, 5:] = (changed[:, 5:] + 1) % 16
    before, after = model(numbers), model(changed)
    torch.testing.assert_close(before[:, :5], after[:, :5])
    assert not torch.allclose(before[:, 5:], after[:, 5:])


def test_a_long_gradient_is_shortened(tmp_path: Path) -> None:
    trainer = begun(tmp_path, clip=1e-3)
    lengths = []
    trainer.optimizer.register_step_pre_hook(lambda optimizer, *_: lengths.append(
        torch.stack([one.grad.norm() for one in trainer.plain.parameters() if one.grad is not None]).norm().item()
    ))  # fmt: skip
    trainer.train(trainer.task.source.batch(range(16)))
    assert lengths == [pytest.approx(1e-3, rel=0.01)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "texts" / "deep").mkdir(parents=True)
    (tmp_path / "texts" / "one.txt").write_text("she sells sea shells by the sea shore, " * 60)
    (tmp_path / "texts" / "deep" / "two.md").write_text("a rough coated, dough faced, thoughtful ploughman. " * 40)
    (tmp_path / "texts" / "short.txt").write_text("short")
    (tmp_path / "texts" / "picture.png").write_bytes(bytes(4000))
    return tmp_path / "texts"


def test_a_folders_texts_are_cut_into_windows_that_overlap_by_one_byte(folder: Path) -> None:
    source = TextFolder(str(folder), 32, 10)
    lengths = [(folder / name).stat().st_size for name in ("one.txt", "deep/two.md")]
    assert len(source) + source.held_out == sum((length - 1) // 32 for length in lengths) and source.held_out == 10
    content = {source.name(number).split(" ")[0]: b"" for number in range(len(source))}
    assert content.keys() == {"one.txt", "deep/two.md"}
    tokens = source.batch([3])["tokens"][0]
    name, _, _, at = source.name(3).split(" ")
    assert bytes(tokens.tolist()) == (folder / name).read_bytes()[int(at) : int(at) + 33]


def test_it_learns_from_a_folder(folder: Path, tmp_path: Path) -> None:
    journal = Watched()
    begun(tmp_path / "kept", journal, data=str(folder), steps=60, held_out=10).run()
    assert journal.losses[1] > 5 and journal.losses[60] < 3
    assert journal.event("end")["dataset"].startswith("sha256:")


def test_a_window_that_cannot_be_read_is_named(folder: Path) -> None:
    source = TextFolder(str(folder), 32, 0)
    (folder / "one.txt").write_text("now it is short")
    (folder / "deep" / "two.md").write_bytes(bytes(4000))
    with pytest.raises(Broken, match="it has become shorter|it is no text: it has zero bytes"):
        source.batch(range(len(source)))


@pytest.mark.parametrize(
    ("inside", "sentence"),
    [
        (None, "does not exist on this node."),
        ("", "has 0 texts (.txt, .md), which do not give two windows of --context 32"),
        ("short", "has 1 text (.txt, .md), which do not give two windows of --context 32"),
    ],
)
def test_a_folder_without_anything_to_learn_is_a_sentence(tmp_path: Path, inside: str | None, sentence: str) -> None:
    if inside is not None:
        (tmp_path / "data").mkdir()
    if inside:
        (tmp_path / "data" / "a.txt").write_text(inside)
    with pytest.raises(DataFault) as wrong:
        TextFolder(str(tmp_path / "data"), 32, 0)
    assert sentence in str(wrong.value)


def test_made_sequences_follow_the_language_that_their_first_token_tells() -> None:
    source = MadeTexts(100, 0, 16, 32, 0)
    tokens = source.batch(range(50))["tokens"]
    assert torch.equal(tokens[7:8], MadeTexts(100, 0, 16, 32, 0).batch([7])["tokens"])
    follows = source._next[tokens[:, 0] % 2][torch.arange(50)[:, None], tokens[:, :-1]] == tokens[:, 1:]
    assert 0.9 < float(follows.float().mean()) < 1


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [({"heads": 3}, "--width 32 is no multiple of --heads 3."), ({"dropout": 1.0}, "--dropout 1.0 drops everything; it is below 1.")],
)
def test_settings_that_do_not_go_together_are_a_sentence(tmp_path: Path, changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(WrongSettings) as wrong:
        begun(tmp_path, **changes)
    assert str(wrong.value) == sentence


def test_a_checkpoint_of_the_vision_recipe_is_refused(tmp_path: Path) -> None:
    from tests.agent.recipes import small

    small.train(tmp_path, steps=1, held_out=0)
    with pytest.raises(CheckpointFault, match="is of the recipe vision, and this is language: name another --checkpoint-dir."):
        begun(tmp_path)
