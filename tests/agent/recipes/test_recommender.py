"""The recommender recipe on one core: it learns, its embeddings stay sparse, logs are streamed."""

from __future__ import annotations

import json
import os
import random
import signal
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the extra `train` is not installed")

from agent.recipes import blocks, clicks, recommender_task  # noqa: E402
from agent.recipes.clicks import ClickFolder, MadeClicks  # noqa: E402
from agent.recipes.data import Broken  # noqa: E402
from agent.recipes.faults import DataFault, WrongSettings  # noqa: E402
from agent.recipes.files import Folder  # noqa: E402
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


@pytest.mark.parametrize("block", [64, 100, 333, 10_000])
def test_rows_of_a_folder_are_those_of_its_lines_whatever_the_block(folder: Path, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "LEAST_BLOCKS", 1)
    monkeypatch.setattr(blocks, "BEYOND_BYTES", 5)
    (folder / "c.csv").write_text("label,dense_age,user_id,item_id\n1,2,u1," + "x" * 500 + "\n0,1,u2,last")
    (folder / "empty.csv").write_bytes(b"")
    (folder / "empty.csv").unlink()
    lines = [line for name in ("a.csv", "c.csv", "deep/b.csv") for line in (folder / name).read_text().splitlines()[1:]]
    source = ClickFolder(str(folder), 0, 10**9, block, 2)
    numbers = sorted(source.order(len(lines), 0).step(1))
    assert source.samples == len(lines) == 207
    found = source.batch(numbers)
    assert found["labels"].tolist() == [float(line.split(",")[0]) for line in lines]
    assert found["sparse"][:, 1].tolist() == [zlib.crc32(line.split(",")[3].encode()) % 10**9 for line in lines]
    assert source.sparse == ("user_id", "item_id") and source.person == (0,) and source.item == (1,)
    assert [source.name(numbers[place]) for place in (0, 130, 131, 132)] == ["a.csv line 2", "c.csv line 2", "c.csv line 3", "deep/b.csv line 2"]


@pytest.mark.parametrize(("counted", "mixed"), [(10**9, 3), (0, 3), (0, 1), (0, 1000)])
def test_every_epoch_has_every_row_once_in_an_order_of_its_own_whether_it_was_counted_or_not(
    folder: Path, monkeypatch: pytest.MonkeyPatch, counted: int, mixed: int
) -> None:
    monkeypatch.setattr(clicks, "COUNTED_BYTES", counted)
    source = ClickFolder(str(folder), 20, 100, 100, mixed)
    assert (source.samples is None) == (not counted) and len(source.held) == 20
    order = source.order(50, 0)
    numbers = [number for step in range(1, 16) for number in order.step(step)]
    total = source.samples
    assert total is not None and 170 <= total <= 185
    epochs = [numbers[epoch * total : (epoch + 1) * total] for epoch in range(3)]
    assert all(len(set(epoch)) == total for epoch in epochs) and set(epochs[0]) == set(epochs[1]) == set(epochs[2])
    assert epochs[0] != epochs[1] != epochs[2] and not set(numbers) & set(source.held)
    assert numbers[500:550] == ClickFolder(str(folder), 20, 100, 100, mixed).order(50, 0).step(11), "a step depends on its number alone"


class Read(list[tuple[str, int]]):
    """Pieces of files that were read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        plain = Folder.piece
        monkeypatch.setattr(Folder, "piece", lambda files, name, at, count: self.append((name, at)) or plain(files, name, at, count))


def test_no_more_is_read_than_the_steps_need_also_when_it_goes_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clicks, "COUNTED_BYTES", 0)
    read = Read(monkeypatch)
    source = ClickFolder(str(folder), 0, 100, 64, 4)
    blocks_in_all = len(source._blocks)
    order = source.order(10, 0)
    first = order.step(1)
    assert len(read) <= 2 + 2 + 2 * 4 < blocks_in_all / 3, "the first lines of two files, and a group or two of blocks"
    assert len({number // blocks.LINES for number in first}) > 1 and first != sorted(first)
    steps = {step: order.step(step) for step in range(1, 40)}
    for step in (7, 19, 33):
        read.clear()
        again = ClickFolder(str(folder), 0, 100, 64, 4).order(10, 0)
        again.take(json.loads(json.dumps(order.mark(step * 10))))
        assert again.step(step + 1) == steps[step + 1] and len(read) <= 2 + 2 + 3 * 4
        assert [again.step(one) for one in range(step + 1, 40)] == [steps[one] for one in range(step + 1, 40)]
    other = ClickFolder(str(folder), 0, 100, 64, 5).order(10, 0)
    other.take(order.mark(70))
    assert other.step(1) == ClickFolder(str(folder), 0, 100, 64, 5).order(10, 0).step(1), "a mark of another order is none"


def test_killed_and_run_again_a_log_that_nobody_counted_goes_on_with_the_same_rows(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clicks, "COUNTED_BYTES", 0)
    changes: dict[str, Any] = {"data": str(folder), "batch_size": 16, "buckets": 100, "held_out": 10, "block": 64, "mixed_blocks": 4, "deterministic": True}
    whole, first, again = Watched(), Watched(), Watched()
    begun(tmp_path / "whole", whole, steps=30, **changes).run()
    assert whole.event("start")["samples_an_epoch"] is None and whole.lines[1]["epoch"] is None
    end = [line for line in whole.lines if "event" not in line][-1]
    assert end["epoch"] > 2, "an epoch was read meanwhile"
    begun(tmp_path / "parts", first, steps=30, **changes)
    stops = Watched(lambda step: os.kill(os.getpid(), signal.SIGTERM) if step == 4 else None)
    begun(tmp_path / "parts", stops, steps=30, **changes).run()
    begun(tmp_path / "parts", again, steps=30, **changes).run()
    assert {**stops.losses, **again.losses} == whole.losses and min(again.losses) > 4


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
    batch = source.batch(source.order(2, 0).step(1))
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
    numbers = source.order(205, 0).step(1)
    write(folder / "a.csv", 5)
    source._blocks._kept.clear()
    with pytest.raises(Broken, match="the file has become shorter"):
        source.batch(numbers)


def test_a_log_with_other_columns_is_named_when_it_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clicks, "CHECKED", 1)
    (folder / "z.csv").write_text("label,item_id\n1,2\n")
    with pytest.raises(DataFault, match=r"z\.csv has other columns than the first of them: all logs of a folder need the same"):
        ClickFolder(str(folder), 0, 100, 64, 2)
