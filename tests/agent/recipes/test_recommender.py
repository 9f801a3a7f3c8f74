"""The recommender recipe on one core: it learns, its embeddings stay sparse, logs are streamed."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the extra `train` is not installed")

from agent.recipes import recommender_task  # noqa: E402
from agent.recipes.clicks import ClickFolder, MadeClicks  # noqa: E402
from agent.recipes.data import Broken, Order  # noqa: E402
from agent.recipes.faults import DataFault, WrongSettings  # noqa: E402
from agent.recipes.recommender import Recommender  # noqa: E402
from agent.recipes.settings import to_toml  # noqa: E402
from agent.recipes.train import Trainer  # noqa: E402
from tests.agent.recipes.small import ALONE, Watched, gradients, weights  # noqa: E402
from tests.agent.recipes.small_runs import RECOMMENDER as SETTINGS  # noqa: E402

FILE = Path(__file__).parents[3] / "agent" / "recipes" / "recommender.toml"
MODELS = pytest.mark.parametrize("model", ["two_tower", "dlrm"])


def begun(folder: Path, journal: Watched | None = None, **changes: Any) -> Trainer:
    settings = replace(SETTINGS, **changes)
    return Trainer(settings, recommender_task.make(settings), ALONE, folder, journal or Watched())


def test_the_file_that_ships_has_every_setting_with_its_default() -> None:
    assert FILE.read_text() == to_toml(Recommender, Recommender.__doc__ or "")


@pytest.mark.parametrize(("model", "learning_rate"), [("two_tower", 0.2), ("dlrm", 0.1)])
def test_in_seconds_on_one_core_it_foretells_most_clicks_that_can_be_foretold(tmp_path: Path, model: str, learning_rate: float) -> None:
    journal = Watched()
    trainer = begun(tmp_path, journal, model=model, learning_rate=learning_rate)
    trainer.run()
    source = MadeClicks(8192, 512, 60, 40, 0)
    unseen = source.batch(range(8192, 8192 + 512))
    chance = source.chance(unseen["sparse"], unseen["dense"])
    least = torch.nn.functional.binary_cross_entropy(chance, unseen["labels"]).item()
    losses = journal.losses
    last = sum(losses[step] for step in range(111, 121)) / 10
    assert losses[1] == pytest.approx(0.693, abs=0.02) and last < 0.693 - 0.6 * (0.693 - least), (last, least)
    assert journal.event("end")["accuracy"] > 0.8, "by chance it is 0.5"


@MODELS
def test_a_step_touches_the_rows_of_its_batch_alone(tmp_path: Path, model: str) -> None:
    trainer = begun(tmp_path, model=model)
    before = weights(trainer)["tables.rows.weight"].clone()
    batch = trainer.task.source.batch(range(8))
    trainer.backward({name: torch.cat([values] * 32) for name, values in batch.items()})
    assert trainer.plain.tables.rows.weight.grad.is_sparse
    trainer.optimizer.step()
    touched = set((weights(trainer)["tables.rows.weight"] != before).any(1).nonzero().flatten().tolist())
    buckets = trainer.task.source.buckets
    assert touched == {int(value) + field * buckets for row in batch["sparse"] for field, value in enumerate(row)}


@MODELS
def test_pieces_give_the_same_gradients(tmp_path: Path, model: str) -> None:
    plain = gradients(begun(tmp_path / "plain", model=model))
    for name, value in gradients(begun(tmp_path / "other", model=model, accumulate=4)).items():
        torch.testing.assert_close(value.to_dense(), plain[name].to_dense(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("samples", "block", "mixed"), [(1000, 1, 1), (1000, 64, 3), (1000, 64, 100), (65, 64, 1), (7, 100, 2)])
def test_every_epoch_has_every_sample_once_in_an_order_of_its_own(samples: int, block: int, mixed: int) -> None:
    order = Order(samples, 50, 0, block, mixed)
    numbers = [number for step in range(1, 3 * samples // 50 + 4) for number in order.step(step)]
    epochs = [numbers[epoch * samples : (epoch + 1) * samples] for epoch in range(3)]
    assert all(sorted(epoch) == list(range(samples)) for epoch in epochs) and epochs[0] != epochs[1]
    assert numbers[100:150] == Order(samples, 50, 0, block, mixed).step(3), "a step depends on its number alone"


def test_a_batch_of_a_log_comes_from_few_blocks() -> None:
    order = Order(100_000, 512, 0, 256, 4)
    assert all(len({number // 256 for number in order.step(step)}) <= 8 for step in range(1, 195))
    assert order.step(1) != sorted(order.step(1))


def write(path: Path, rows: int, start: int = 0) -> None:
    """A row's item is its number, so that rows can be told apart."""
    chance = random.Random(start)
    lines = [f"{chance.randint(0, 1)},{chance.random():.3f},u{chance.randrange(9)},i{start + row}\n" for row in range(rows)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("label,dense_age,user_id,item_id\n" + "".join(lines))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "logs" / "a.csv", 130)
    write(tmp_path / "logs" / "deep" / "b.csv", 75, start=1000)
    return tmp_path / "logs"


def test_rows_of_a_folder_are_those_of_its_lines_whatever_the_block(folder: Path) -> None:
    lines = [line for name in ("a.csv", "deep/b.csv") for line in (folder / name).read_text().splitlines()[1:]]
    for block in (1, 10, 64, 1000):
        source = ClickFolder(str(folder), 20, 10**6, block, 2)
        assert len(source) == 185 and source.held_out == 20
        found = source.batch(range(205))
        assert found["labels"].tolist() == [float(line.split(",")[0]) for line in lines]
        assert source.sparse == ("user_id", "item_id") and source.person == (0,) and source.item == (1,)
        assert len(set(found["sparse"][:, 1].tolist())) == 205, "no two items share a bucket here"
        assert source.name(130) == "deep/b.csv line 2" and source.name(0) == "a.csv line 2"


def test_it_reads_a_log_in_long_pieces(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, opened = ClickFolder(str(folder), 0, 100, 16, 2), []
    plain = Path.open
    monkeypatch.setattr(Path, "open", lambda self, *words: opened.append(self.name) or plain(self, *words))
    order = Order(len(source), 20, 0, source.block, source.mixed)
    for step in range(1, 11):
        source.batch(order.step(step))
    assert len(opened) <= 3 * 14, "14 blocks of 16 rows, each read a few times and not once a row"


def test_it_learns_from_a_folder_and_counts_rows_that_are_broken(folder: Path, tmp_path: Path) -> None:
    text = (folder / "a.csv").read_text().splitlines()
    text[3], text[7], text[9] = "7,1,u1,i1", "1,x,u1,i1", "1,2"
    (folder / "a.csv").write_text("\n".join(text))
    journal = Watched()
    begun(tmp_path / "kept", journal, data=str(folder), batch_size=32, steps=40, max_broken=0.05, buckets=500).run()
    end = journal.event("end")
    assert journal.losses[40] < 0.5 and end["broken_files"] == 3
    told = journal.err.getvalue()
    assert "a.csv line 4 is broken (its label is '7', not 0 or 1)" in told
    assert "a.csv line 8 is broken (could not convert string to float: 'x')" in told
    assert "a.csv line 10 is broken (it has 2 columns, not 4)" in told


def test_criteos_logs_are_known_by_their_columns(tmp_path: Path) -> None:
    row = ["1", *["3"] * 12, "", *["68fd1e64"] * 25, ""]
    (tmp_path / "day.tsv").write_text(("\t".join(row) + "\n") * 50)
    source = ClickFolder(str(tmp_path), 5, 1000, 16, 2)
    batch = source.batch([0, 49])
    assert batch["sparse"].shape == (2, 26) and batch["dense"].shape == (2, 13) and batch["dense"][0, 12] == 0
    with pytest.raises(WrongSettings, match=r"--model two_tower: .* has no fields named user_\* and item_\*"):
        recommender_task.make(replace(SETTINGS, data=str(tmp_path)))
    settings = replace(SETTINGS, data=str(tmp_path), model="dlrm", batch_size=16, steps=3)
    Trainer(settings, recommender_task.make(settings), ALONE, tmp_path / "kept", Watched()).run()


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        (None, "does not exist on this node."),
        ({}, "has no click logs (.csv, .tsv)."),
        ({"a.csv": "label,user_id\n"}, "has no rows of clicks, and it needs two or more."),
        ({"a.csv": "clicked,user_id\n1,2\n"}, "its first line names no column `label` and one to learn from"),
        ({"a.csv": "label,user_id\n1,2\n", "b.csv": "label,item_id\n1,2\n"}, "b.csv has other columns than a.csv"),
    ],
)
def test_a_folder_without_anything_to_learn_is_a_sentence(tmp_path: Path, files: dict[str, str] | None, sentence: str) -> None:
    if files is not None:
        (tmp_path / "logs").mkdir()
        for name, content in files.items():
            (tmp_path / "logs" / name).write_text(content)
    with pytest.raises(DataFault) as wrong:
        ClickFolder(str(tmp_path / "logs"), 0, 10, 10, 1)
    assert sentence in str(wrong.value)


def test_a_file_that_became_shorter_is_named(folder: Path) -> None:
    source = ClickFolder(str(folder), 0, 100, 16, 2)
    write(folder / "a.csv", 5)
    with pytest.raises(Broken, match="the file has become shorter"):
        source.batch([100])
