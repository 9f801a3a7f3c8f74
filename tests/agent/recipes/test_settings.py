"""`agent.recipes.settings`: what a recipe can be told. No torch."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.recipes.compress import Compress
from agent.recipes.faults import WrongSettings
from agent.recipes.settings import read, to_toml
from agent.recipes.vision import Vision

FILE = Path(__file__).parents[3] / "agent" / "recipes" / "vision.toml"


def test_the_file_that_ships_has_every_setting_with_its_default() -> None:
    assert FILE.read_text() == to_toml(Vision, Vision.__doc__ or "")
    assert read(Vision, "vision", ["--settings", str(FILE)]) == Vision()


def test_flags_beat_the_file_and_the_file_beats_the_defaults(tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text('steps = 7\nlearning_rate = 1\nprecision = "bf16"\ndeterministic = true\n')
    found = read(Vision, "vision", ["--steps", "9", "--settings", str(tmp_path / "my.toml"), "--flip=false"])
    assert (found.steps, found.learning_rate, found.precision, found.deterministic, found.flip) == (9, 1.0, "bf16", True, False)
    assert found.batch_size == Vision().batch_size
    assert read(Vision, "vision", ["--deterministic"]).deterministic


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["--stepz", "4"], "--stepz: there is no such flag (did you mean --steps?); --help lists them."),
        (["--steps", "many"], "--steps many: it has to be a whole number."),
        (["--steps", "0"], "--steps: 0 is too small; it is at least 1."),
        (["--learning-rate", "nan"], "--learning-rate: nan is no finite number."),
        (["--deterministic=perhaps"], "--deterministic perhaps: it has to be true or false."),
        (["--precision", "fp8"], "--precision: 'fp8' is none of auto, fp32, bf16, fp16."),
        (["--settings", "gone.toml"], "--settings gone.toml: no such file or directory."),
    ],
)
def test_what_cannot_be_meant_is_one_sentence(argv: list[str], sentence: str) -> None:
    with pytest.raises(WrongSettings) as wrong:
        read(Vision, "vision", argv)
    assert str(wrong.value) == sentence


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("batchsize = 4", "`batchsize`: there is no such setting (did you mean batch_size?); --help lists them."),
        ("steps = 1.5", "`steps` has to be a whole number."),
        ("flip = 1", "`flip` has to be true or false."),
        ("steps = -1", "`steps`: -1 is too small; it is at least 1."),
    ],
)
def test_a_file_that_cannot_be_meant_is_named_with_its_key(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "bad.toml"
    file.write_text(text)
    with pytest.raises(WrongSettings) as wrong:
        read(Vision, "vision", ["--settings", str(file)])
    assert str(wrong.value) == f"{file}: {sentence}"


def test_a_file_that_is_no_toml_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("steps = = 4")
    with pytest.raises(WrongSettings, match=r"bad\.toml is not valid TOML: "):
        read(Vision, "vision", ["--settings", str(tmp_path / "bad.toml")])


def test_what_a_recipe_calls_otherwise_is_named(tmp_path: Path) -> None:
    with pytest.raises(WrongSettings, match=r"--checkpoint-dir=here: there is no such flag \(did you mean --out\?\)"):
        read(Compress, "compress", ["--checkpoint-dir=here"])
    (tmp_path / "a.toml").write_text('checkpoint_dir = "here"')
    with pytest.raises(WrongSettings, match=r"`checkpoint_dir`: there is no such setting \(did you mean out\?\)"):
        read(Compress, "compress", ["--settings", str(tmp_path / "a.toml")])
