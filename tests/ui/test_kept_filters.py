"""Filters that are kept under a name: asked for, written into config.toml beside what stands there, completed, forgotten."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.support.jobs import job_fleet
from tests.support.money_app import until
from tests.support.screens import line_with, make_app, press, running, text
from tui.config import forget_filter, keep_filter
from tui.errors import ConfigurationError

FILE = """# mine, keep it
theme = "rackrate-dark"   # the dark one

[filters]
# what I look at each morning
old = "user:me"
"""


async def test_k_keeps_the_filter_in_the_file_and_at_completes_and_forgets_it(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(FILE)
    app, _ = make_app(job_fleet(), filters={"old": "user:me"})
    app.config_file = file
    async with running(app, (110, 24)) as pilot:
        await press(pilot, "K")
        assert "There is no filter to keep" in text(app)
        await press(pilot, "slash", *"node:gpu-0", "enter", "K")
        assert "A name for the filter node:gpu-0" in text(app) and "@name stands for" in text(app)
        await press(pilot, *"two words", "enter")
        assert "is no name" in text(app), "the dialog stays"
        await press(pilot, *["backspace"] * 9, *"gpus", "enter")
        await until(pilot, lambda: "written into config.toml" in text(app))
        assert tomllib.loads(file.read_text())["filters"] == {"old": "user:me", "gpus": "node:gpu-0"}
        assert "# mine, keep it" in file.read_text() and "# what I look at" in file.read_text()
        await press(pilot, "escape", "j", "slash", *"@g", "tab", "enter")
        assert "/@gpus" in text(app) and "gpu-01" in text(app)
        await press(pilot, "escape", "slash", *"@gpus x", "enter", "K", *"gpus", "enter")
        assert "cannot stand for a query in which it stands itself" in text(app)
        await press(pilot, "escape", "slash", *"user:ada", "enter", "K", *"gpus", "enter")
        assert "There is a filter @gpus already." in text(app) and "It stands for node:gpu-0" in text(app)
        await press(pilot, "enter")
        assert app.filters["gpus"] == "node:gpu-0", "the harmless answer is the marked one"
        await press(pilot, "K", *"gpus", "enter", "right", "enter")
        await until(pilot, lambda: tomllib.loads(file.read_text())["filters"]["gpus"] == "user:ada")
        await press(pilot, "colon", *"forget g", "tab", "enter")
        await until(pilot, lambda: "gpus" not in file.read_text())
        assert "gpus" not in app.filters and "# what I look at" in file.read_text()
        file.write_text("theme = [broken")
        await press(pilot, "K", *"new", "enter")
        await until(pilot, lambda: "until the app is left only" in text(app))
        assert file.read_text() == "theme = [broken" and app.filters["new"] == "user:ada"


async def test_without_a_file_it_is_said_that_the_name_holds_until_the_end() -> None:
    app, _ = make_app(job_fleet())
    async with running(app, (110, 24)) as pilot:
        await press(pilot, "slash", *"gpu-01", "enter", "K")
        assert "It is kept until the app is left" in text(app)
        await press(pilot, *"one", "enter")
        assert "until the app is left" in line_with(app, "@one stands for gpu-01") and app.filters == {"one": "gpu-01"}


def test_the_file_is_written_beside_what_stands_there_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    keep_filter(file, "one", 'tag:team="red hot"')
    assert tomllib.loads(file.read_text()) == {"filters": {"one": 'tag:team="red hot"'}}
    forget_filter(file, "one")
    assert tomllib.loads(file.read_text()) == {}
    forget_filter(file, "never")
    file.write_bytes(b"\xff")
    with pytest.raises(ConfigurationError, match="UTF-8.*nothing was written"):
        keep_filter(file, "one", "x")
    file.write_text('filters = "no table"')
    with pytest.raises(ConfigurationError, match="filters"):
        keep_filter(file, "one", "x")
    assert file.read_text() == 'filters = "no table"'
