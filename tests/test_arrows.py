"""The arrows between the packages that must never be, and what a start must not drag in."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_import_linter_finds_no_forbidden_arrow() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def loaded_after(statement: str) -> set[str]:
    """Top-level modules in memory after `statement` in a fresh interpreter."""
    script = f"import sys; {statement}; print(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import pricing.attribution, pricing.catalog, pricing.ledger, pricing.reports", {"agent", "tui", "textual", "httpx"}),
        (
            "import pricing.sources.aws, pricing.sources.aws_price_files, pricing.sources.aws_owned, pricing.sources.aws_costs",
            {"boto3", "botocore", "httpx", "agent", "tui"},
        ),
        ("import agent.server, agent.daemon", {"pricing", "tui", "textual", "sqlite_utils", "torch"}),
        ("import agent.wire", {"httpx", "litestar", "psutil", "pynvml"}),
        ("import agent.client", {"litestar", "psutil", "pynvml", "uvicorn"}),
        ("import tui.cli; tui.cli.build_parser()", {"textual", "httpx", "sqlite_utils", "rich", "litestar", "numpy"}),
        ("import tui.fleet, tui.query, tui.records, tui.live, tui.sync", {"textual", "litestar"}),
    ],
)
def test_a_start_drags_in_no_more_than_it_needs(statement: str, absent: set[str]) -> None:
    assert not absent & loaded_after(statement)
