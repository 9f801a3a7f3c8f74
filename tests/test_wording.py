"""One of a thing is not called many, and a whole number has no `.0`: in every kept picture and in the README."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.snapshots import SIZES, lines_of, name_of, stored
from tests.support.wording import faults_of
from tui.ui.action import SCREENS

README = Path(__file__).parents[1] / "README.md"


@pytest.mark.parametrize(
    "said",
    ["1 actions", "(1 rows)", "of 1 nodes", "and 1 more rows", "run the 1.0 spot p3.2xlarge", "1 GPUs held", "for 1 days", "2.0 nodes"],
)
def test_wrong_words_are_found(said: str) -> None:
    assert faults_of(said)


@pytest.mark.parametrize(
    "said",
    ["1 action", "11 actions", "$1 days", "job 1 waits", "1.0 hours", "0.1 nodes", "gpu-1 rows", "1,001 rows", "--gpus 1 jobs", "1 s", "x1 GPUs"],
)
def test_right_words_are_not(said: str) -> None:
    assert not faults_of(said)


@pytest.mark.parametrize("screen", SCREENS)
def test_no_picture_has_one_of_many(screen: str) -> None:
    for size in SIZES:
        svg = stored(name_of(screen, size, "dark"))
        assert svg is None or not faults_of("\n".join(lines_of(svg))), (screen, size)


def test_the_readme_has_none_either() -> None:
    assert not faults_of(README.read_text(encoding="utf-8"))
