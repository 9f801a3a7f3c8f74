"""Advice that was dismissed: known again on another day, kept with its reason, left out by the command when asked."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pricing.advice import cents
from pricing.ledger import Ledger
from tests.support.advising import Node, action
from tests.support.cli import rackrate_here, write_config
from tests.support.fleets import AT
from tui import dismissed as kept
from tui.advice_case import find
from tui.errors import ConfigurationError
from tui.money_files import MoneyFiles

HOURS = 24 * 9


def test_advice_is_known_again_when_its_figures_changed_and_only_then() -> None:
    one = action(100, kind="shrink", what="shrink 3 nodes from 8 to 4 GPUs ($100.20)", nodes=("a-1", "a-2"))
    later = action(120, kind="shrink", what="shrink 2 nodes from 8 to 2 GPUs ($99)", nodes=("a-2", "a-1"))
    assert kept.identity(one) == kept.identity(later)
    others = [
        action(100, kind="stop", what=one.what, nodes=one.nodes),
        action(100, kind="shrink", what=one.what, nodes=("a-1", "a-3")),
        action(100, kind="shrink", what="move 3 nodes", nodes=one.nodes),
    ]
    assert len({kept.identity(one), *map(kept.identity, others)}) == 4


def test_what_is_dismissed_is_kept_with_its_reason_and_a_damaged_file_is_named(tmp_path: Path) -> None:
    first, second = action(100, nodes=("a",)), action(50, nodes=("b",))
    kept.dismiss(tmp_path / "new", first, "a reason: ünïcode", AT)
    kept.dismiss(tmp_path / "new", second, "no", AT)
    loaded = kept.load(tmp_path / "new")
    assert loaded[kept.identity(first)].reason == "a reason: ünïcode" and loaded[kept.identity(first)].saving_per_month == "100.00"
    assert list(kept.restore(tmp_path / "new", kept.identity(first))) == [kept.identity(second)]
    assert kept.load(None) == kept.load(tmp_path) == {}
    (tmp_path / kept.FILE).write_text('{"x": {"kind": 3}}')
    with pytest.raises(ConfigurationError, match="repair it, or remove it"):
        kept.load(tmp_path)


def test_the_command_finds_what_the_app_finds_and_leaves_out_what_was_dismissed_when_asked(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RACKRATE_HOME", str(tmp_path))
    write_config(tmp_path, "")
    now = datetime.now(UTC)
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        for node in (Node("busy-1", ("ann", 0.9)), Node("lazy-1", (None, 0.0)), Node("lazy-2", (None, 0.0))):
            node.put(ledger, HOURS, now.replace(minute=0, second=0, microsecond=0) - timedelta(hours=HOURS))
    found = find(MoneyFiles(tmp_path / "ledger.db"), (), now, lambda step: None)
    advice = found.ranked(lambda one: True)

    def told(*options: str) -> list[tuple[str, str, int]]:
        actions = rackrate_here(capfdbinary, "advise", "--no-sync", "--json", *options).json()["actions"]
        return [(one["what"], one["saving_per_month"], one["rank"]) for one in actions]

    assert told() == [(one.what, str(cents(one.saving_per_month)), place + 1) for place, one in enumerate(advice.actions)]
    first = advice.actions[0]
    kept.dismiss(tmp_path, first, "seasonal", now)
    assert told()[0][0] == first.what
    hidden = told("--hide-dismissed")
    assert [what for what, _, _ in hidden] == [one.what for one in advice.actions[1:]] and hidden[0][2] == 1
