"""`tui.recipes`: a wrong setting is refused where it is typed, in the words of the recipe itself. No torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from agent.recipes.calibrate import RECIPES, Calibrate
from agent.recipes.compress import Compress
from agent.recipes.faults import WrongSettings
from agent.recipes.language import Language
from agent.recipes.recommender import Recommender
from agent.recipes.settings import read
from agent.recipes.vision import Vision
from tests.support.cli import Done
from tui import recipes
from tui.errors import WrongUsage

Run = Callable[..., Done]
KINDS = {"calibrate": Calibrate, "compress": Compress, "language": Language, "recommender": Recommender, "vision": Vision}


def test_what_a_recipe_takes_is_known_without_it() -> None:
    assert sorted(KINDS) == recipes.names()
    for name, kind in KINDS.items():
        expected = {one.name: (one.metadata["choices"], one.metadata["least"]) for one in fields(kind)}
        assert {key: tuple(takes) for key, takes in recipes.taken(name).items()} == expected


@pytest.mark.parametrize(
    ("recipe", "key", "value"),
    [
        ("vision", "steps", "0"),
        ("vision", "learning_rate", "nan"),
        ("vision", "learning_rate", "-0.1"),
        ("vision", "precision", "fp8"),
        ("language", "parallel", "fsdp2"),
        ("compress", "temperature", 0.001),
        ("calibrate", "repeats", 2),
    ],
)
def test_a_wrong_value_is_refused_in_the_words_of_the_recipe(recipe: str, key: str, value: Any) -> None:
    flag = f"--{key.replace('_', '-')}"
    with pytest.raises(WrongSettings) as on_the_node:
        read(KINDS[recipe], recipe, [f"{flag}={value}"])
    with pytest.raises(WrongUsage) as where_it_is_typed:
        recipes.command(recipe, {key: value}, "--set")
    assert str(where_it_is_typed.value) == str(on_the_node.value).replace(flag, f"--set {key}")


def test_all_that_ships_is_taken() -> None:
    for name in recipes.names():
        recipes.command(name, recipes.defaults(name), "--set")


def test_a_run_with_a_wrong_setting_asks_no_node(run: Run, tmp_path: Path) -> None:
    result = run("run", "--recipe", "vision", "--set", "steps=0")
    assert (result.code, result.out) == (2, "")
    assert "--set steps: 0 is too small; it is at least 1." in result.err
    file = tmp_path / "job.toml"
    file.write_text('recipe = "vision"\nset = { precision = "fp8" }\n')
    result = run("run", file)
    assert result.code == 2 and "precision: 'fp8' is none of auto, fp32, bf16, fp16." in result.err


@pytest.mark.parametrize(("words", "said"), [
    (("run", "--recipe", "compress"), "--set checkpoint: which folder of checkpoints is to be compressed?"),
    (("run", "--recipe", "compress", "--set", "checkpoint="), "--set checkpoint: which folder of checkpoints is to be compressed?"),
    (("calibrate", "gpu-01", "--recipes", "vision,langauge"),
     "recipes langauge: there is no such recipe to measure; vision, language, recommender, or none."),
])  # fmt: skip
def test_what_a_recipe_needs_is_asked_for_before_any_node_is(run: Run, words: tuple[str, ...], said: str) -> None:
    result = run(*words)
    assert (result.code, result.out) == (2, "") and said in result.err and result.err.count("\n") == 1


def test_what_calibrate_measures_by_itself_is_all_that_it_can() -> None:
    assert recipes.defaults("calibrate")["recipes"] == ",".join(RECIPES)
