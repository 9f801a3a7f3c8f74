"""The compress recipe: each result is smaller in its way, and every figure of its report can be measured again."""

from __future__ import annotations

import copy
import json
import os
import shutil
import signal
import zlib
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.support.extras import needs

torch = pytest.importorskip("torch", reason="the extra `train` is not installed")
needs("torchao", extra="train")

from agent.recipes import compress_models, compress_run, language_task, recommender_task  # noqa: E402
from agent.recipes.compress import METHODS, Compress  # noqa: E402
from agent.recipes.compress_measure import cost, right_share, zero_weights  # noqa: E402
from agent.recipes.compress_run import load, original, run  # noqa: E402
from agent.recipes.faults import CheckpointFault, WrongSettings  # noqa: E402
from agent.recipes.settings import to_toml  # noqa: E402
from agent.recipes.train import Trainer  # noqa: E402
from agent.recipes.vision_model import SmallResNet  # noqa: E402
from tests.agent.recipes import small, test_language, test_recommender  # noqa: E402
from tests.agent.recipes.small import ALONE, Watched  # noqa: E402

FILE = Path(__file__).parents[3] / "agent" / "recipes" / "compress.toml"
TASKS = {"language": (language_task, test_language.SETTINGS), "recommender": (recommender_task, test_recommender.SETTINGS)}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints of a language model that has learned."""
    folder = tmp_path_factory.mktemp("trained")
    Trainer(test_language.SETTINGS, language_task.make(test_language.SETTINGS), ALONE, folder, Watched()).run()
    return folder


@pytest.fixture(scope="module")
def compressed(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], Watched]:
    folder, journal = tmp_path_factory.mktemp("compressed"), Watched()
    return folder, run(settings(trained, folder), journal), journal


def settings(of: Path, out: Path, **changes: Any) -> Compress:
    return Compress(**{
        "checkpoint": str(of), "out": str(out), "device": "cpu", "usd_per_hour": "1.21", "tune_steps": 20, "repeats": 5,
        "distil_steps": 150, "batch_size": 32, "learning_rate": 0.01, **changes,
    })  # fmt: skip


def test_the_file_that_ships_has_every_setting_with_its_default() -> None:
    assert FILE.read_text() == to_toml(Compress, Compress.__doc__ or "")


def test_every_result_is_smaller_in_its_way_and_still_right(compressed: tuple[Path, dict[str, Any], Watched]) -> None:
    rows = compressed[1]["results"]
    assert list(rows) == ["original", *METHODS]
    first = rows["original"]
    assert first["accuracy"] > 0.8 and first["zero_ratio"] < 0.01
    assert rows["prune"]["zero_ratio"] > 0.4 and rows["prune"]["zipped_bytes"] < 0.75 * first["zipped_bytes"]
    assert rows["cut"]["parameters"] < 0.9 * first["parameters"] and rows["cut"]["size_bytes"] < first["size_bytes"]
    assert rows["quantise"]["size_bytes"] < 0.6 * first["size_bytes"]
    assert rows["distil"]["parameters"] < 0.5 * first["parameters"]
    for name, row in rows.items():
        assert row["accuracy"] > 0.7, name


def test_the_reports_figures_can_be_measured_again_from_what_was_written(
    trained: Path, compressed: tuple[Path, dict[str, Any], Watched]
) -> None:
    folder, report, journal = compressed
    assert json.loads((folder / "report.json").read_text()) == report
    assert [line["name"] for line in journal.lines if line.get("event") == "result"] == ["original", *METHODS]
    _, _, task = original(str(trained), "")
    for name, row in report["results"].items():
        model, content = load(folder / name), (folder / name / "state.pt").read_bytes()
        with torch.inference_mode():
            assert right_share(task, model, 32, ALONE.device) == pytest.approx(row["accuracy"], abs=1e-9), name
        zeros, count = zero_weights(model)
        assert (zeros / count, count) == (row["zero_ratio"], row["parameters"]), name
        assert (len(content), len(zlib.compress(content, 6))) == (row["size_bytes"], row["zipped_bytes"]), name
        assert 0 < row["latency_seconds"] <= row["latency_seconds_worst"]
        assert row["usd_per_million_samples"] == cost(row["samples_per_second"], Decimal("1.21"))
    shown = journal.err.getvalue()
    assert shown.rstrip().endswith("$/million samples: at $1.21 an hour, as --usd-per-hour says.")
    steps = [line["step"] for line in journal.lines if "event" not in line]
    assert steps == list(range(1, journal.event("start")["steps"] + 1)) and len(steps) == 20 + 20 + 150
    assert "model" in shown and "$/million" in shown and f"{report['results']['cut']['accuracy']:.1%}" in shown


def test_a_million_samples_at_a_thousand_a_second_are_a_thousand_seconds() -> None:
    assert cost(1000.0, Decimal("3.60")) == "1.000000" and cost(1000.0, None) is None


def test_run_again_results_that_are_whole_are_kept_and_others_are_made_anew(
    trained: Path, compressed: tuple[Path, dict[str, Any], Watched], tmp_path: Path
) -> None:
    folder = tmp_path / "again"
    shutil.copytree(compressed[0], folder)
    content = (folder / "cut" / "state.pt").read_bytes()
    (folder / "cut" / "state.pt").write_bytes(content[:-9])
    (folder / ".writing-distil").mkdir()
    journal = Watched()
    again = run(settings(trained, folder), journal)
    assert [line["name"] for line in journal.lines if line.get("event") == "result"] == ["cut"]
    assert again["results"]["distil"] == compressed[1]["results"]["distil"]
    assert load(folder / "cut") is not None


def test_another_price_makes_nothing_anew_and_is_told_with_its_source(
    trained: Path, compressed: tuple[Path, dict[str, Any], Watched], tmp_path: Path
) -> None:
    folder, journal = tmp_path / "again", Watched()
    shutil.copytree(compressed[0], folder)
    again = run(settings(trained, folder, usd_per_hour="2.42", price_from="the price of its job when it was sent"), journal)
    assert not [line for line in journal.lines if line.get("event") == "result"]
    assert journal.err.getvalue().rstrip().endswith("at $2.42 an hour, the price of its job when it was sent.")
    for name, row in again["results"].items():
        before = Decimal(compressed[1]["results"][name]["usd_per_million_samples"])
        assert Decimal(row["usd_per_million_samples"]) == pytest.approx(2 * before, abs=Decimal("0.000002"))


def test_told_to_stop_it_saves_and_run_again_it_goes_on(trained: Path, tmp_path: Path) -> None:
    stopped, again = Watched(lambda step: os.kill(os.getpid(), signal.SIGTERM) if step == 3 else None), Watched()
    few = settings(trained, tmp_path, methods="prune", tune_steps=6, repeats=3)
    assert run(few, stopped) == {} and stopped.event("stopped")["signal"] == "SIGTERM"
    assert json.loads((tmp_path / "stopped.json").read_text()) == {"signal": "SIGTERM"}
    assert run(few, again)["results"].keys() == {"original", "prune"}
    assert min(again.losses) == max(stopped.losses) + 1 == 4 and again.event("start")["step"] == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["original", "prune", "report.json"]


def test_a_checkpoint_that_would_be_misread_is_refused(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "old")
    (about,) = (tmp_path / "old").glob("step-*/about.json")
    told = json.loads(about.read_text())
    del told["model"]["layout"]
    about.write_text(json.dumps(told))
    with pytest.raises(CheckpointFault, match="was written without a number of its layout, and this recipe language reads 2"):
        run(settings(tmp_path / "old", tmp_path / "out"), Watched())
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("all of it " * 100)
    with pytest.raises(CheckpointFault, match=r"does not go with --data .*texts \(vocabulary 16 there, 256 here\)"):
        run(settings(trained, tmp_path / "out", data=str(tmp_path / "texts")), Watched())


@pytest.mark.parametrize("make", [
    lambda: (SmallResNet(4, 32, 1), (torch.randn(2, 3, 16, 16),)),
    lambda: (language_task.make(test_language.SETTINGS).model(), (torch.randint(16, (2, 8)),)),
    lambda: (recommender_task.make(test_recommender.SETTINGS).model(), (torch.randint(40, (2, 2)), torch.randn(2, 1))),
], ids=["vision", "language", "recommender"])  # fmt: skip
def test_taking_units_out_answers_as_with_those_units_silent(make: Any) -> None:
    torch.manual_seed(0)
    model, inputs = make()
    silent, cut = copy.deepcopy(model).eval(), copy.deepcopy(model).eval()
    kept = compress_models.cut_units(cut, 0.5)
    assert kept and sum(one.numel() for one in cut.parameters()) < sum(one.numel() for one in model.parameters())
    with torch.no_grad():
        for units in compress_models.inner_units(silent):
            gone = torch.ones(units.out.weight.shape[1], dtype=torch.bool)
            gone[kept[units.name]] = False
            units.out.weight[:, gone] = 0
        torch.testing.assert_close(cut(*inputs), silent(*inputs), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("recipe", ["vision", "recommender"])
def test_it_compresses_the_other_recipes_too(recipe: str, tmp_path: Path) -> None:
    if recipe == "vision":
        small.train(tmp_path / "trained", steps=10, width=16)
    else:
        module, its = TASKS[recipe]
        Trainer(small.replace(its, steps=10), module.make(its), ALONE, tmp_path / "trained", Watched()).run()
    report = run(settings(tmp_path / "trained", tmp_path / "out", tune_steps=2, distil_steps=2, repeats=3), Watched())
    assert report["recipe"] == recipe and all(row["usd_per_million_samples"] for row in report["results"].values())
    assert all(load(tmp_path / "out" / name) is not None for name in report["results"])


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"methods": "prune,shrink"}, "--methods shrink: there is no such method; prune, cut, quantise, distil."),
        ({"prune": 1.0}, "--prune 1 leaves nothing, or everything: it is below 1."),
        ({"usd_per_hour": "much"}, "--usd-per-hour much: it has to be a number above 0, as in 1.21."),
        ({"checkpoint": ""}, "--checkpoint: which folder of checkpoints is to be compressed? The first line of a training names its own."),
        ({"checkpoint": "/nowhere/at/all"}, "--checkpoint /nowhere/at/all does not exist on this node."),
    ],
)
def test_what_cannot_be_done_is_a_sentence(trained: Path, tmp_path: Path, changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises((WrongSettings, CheckpointFault)) as wrong:
        run(settings(trained, tmp_path, **changes), Watched())
    assert str(wrong.value) == sentence


def test_a_folder_without_a_whole_checkpoint_and_ranks_are_sentences(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CheckpointFault, match="holds no whole checkpoint"):
        run(settings(tmp_path, tmp_path / "out"), Watched())
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(WrongSettings, match="compress is the work of one process"):
        run(settings(trained, tmp_path / "out"), Watched())


def test_without_torchao_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torchao.quantization", None)
    with pytest.raises(WrongSettings, match="quantise needs torchao, which is not installed here"):
        compress_models.quantise(torch.nn.Linear(2, 2), "int8_dynamic")
    assert compress_run.METHODS == METHODS
