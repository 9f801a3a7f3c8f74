"""Runs `rackrate` as a person does: a process of its own, with its own RACKRATE_HOME."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from pytest import CaptureFixture

from tests.support.wording import well_worded

ROOT = Path(__file__).parents[2]


class Done(NamedTuple):
    """What a command printed and how it ended."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


def rackrate(home: Path, *arguments: str, env: dict[str, str] = {}) -> Done:
    """Runs one command to its end; a traceback is never acceptable, so it fails here."""
    done = subprocess.run(
        [sys.executable, "-m", "tui.cli", *arguments], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=120, env={**os.environ, "RACKRATE_HOME": str(home), **env},
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    return Done(done.returncode, well_worded(done.stdout), well_worded(done.stderr))


def rackrate_here(captured: CaptureFixture[bytes], *arguments: str) -> Done:
    """Runs one command in this process: a tenth of the time. `captured` is pytest's `capfdbinary`."""
    from tui.cli import main

    try:
        code = int(main(arguments))
    except SystemExit as exit:
        code = int(exit.code or 0)
    out, err = captured.readouterr()
    assert b"Traceback" not in err, err.decode()
    return Done(code, well_worded(out.decode()), well_worded(err.decode()))


def rackrate_inside(home: Path, *arguments: str, env: dict[str, str] = {}) -> Done:
    """As `rackrate`, in this process: for what is the same there, a tenth of the time."""
    from tui.cli import main

    out, err = (TextIOWrapper(BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    with patch.dict(os.environ, {"RACKRATE_HOME": str(home), **env}), redirect_stdout(out), redirect_stderr(err):
        try:
            code = int(main(arguments))
        except SystemExit as exit:
            code = int(exit.code or 0)
    done = Done(code, *(well_worded(stream.buffer.getvalue().decode()) for stream in (out, err)))  # type: ignore[attr-defined]
    assert "Traceback" not in done.err, done.err
    return done


def write_config(home: Path, text: str) -> Path:
    """Puts a config.toml into the home."""
    home.mkdir(parents=True, exist_ok=True)
    file = home / "config.toml"
    file.write_text(text, encoding="utf-8")
    return file
