"""Commands in this process, with a home of their own and a stub of AWS."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.aws_stubs import Aws
from tests.support.cli import Done, rackrate_here
from tui import price_sources


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """What RACKRATE_HOME is for `run`; a file with more in it makes its own."""
    return tmp_path


@pytest.fixture
def run(request: pytest.FixtureRequest, home: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: Any) -> Callable[..., Done]:
    """`rackrate` with these words, behind those that the file's WORDS say."""
    monkeypatch.setenv("RACKRATE_HOME", str(home))
    words = getattr(request.module, "WORDS", ())
    return lambda *arguments: rackrate_here(capfdbinary, *words, *map(str, arguments))


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Aws]:
    """Answers that a test lays out; all of them must be asked for."""
    stubbed = Aws()
    monkeypatch.setattr(price_sources, "aws_session", lambda: stubbed.session)
    yield stubbed
    stubbed.all_used()
