"""Advice in the app: the command's figures, evidence cards, and what was dismissed with a reason."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from textual.pilot import Pilot

from pricing.advice import Advice
from pricing.ledger import Ledger
from tests.support.advising import Node
from tests.support.fleets import AT
from tests.support.money_app import money_app, until
from tests.support.screens import line_with, press, running, text
from tui import dismissed as kept
from tui.advice_case import Found, find
from tui.advice_text import card, money
from tui.money_files import MoneyFiles
from tui.ui import money_screens
from tui.ui.app import RackrateApp
from tui.ui.glyphs import to_ascii
from tui.ui.screens import advice as advice_module
from tui.ui.screens.advice import AdviceScreen, CardScreen
from tui.ui.theme import ANSI, DARK, LIGHT

HOURS = 24 * 9
PAINTED = [((80, 24), DARK), ((120, 40), LIGHT), ((200, 60), ANSI), ((20, 5), DARK), ((40, 10), ANSI), ((5, 2), LIGHT)]


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A busy node, and two that nobody holds."""
    path = tmp_path_factory.mktemp("advice") / "ledger.db"
    start = AT.replace(minute=0, second=0, microsecond=0) - timedelta(hours=HOURS)
    with Ledger.open(path) as opened:
        for node in (Node("busy-1", ("ann", 0.9)), Node("lazy-1", (None, 0.0)), Node("lazy-2", (None, 0.0), instance_type="p5.48xlarge")):
            node.put(opened, HOURS, start)
    return path


@pytest.fixture(scope="module")
def found(ledger: Path) -> Found:
    return find(MoneyFiles(ledger), (), AT, lambda step: None)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, found: Found) -> None:
    """What was found once is not looked for again."""
    monkeypatch.setattr(advice_module, "find", lambda *_: found)


def screen(app: RackrateApp) -> AdviceScreen:
    return next(one for one in app.screen_stack if isinstance(one, AdviceScreen))


def settled(app: RackrateApp) -> Callable[[], bool]:
    def holds() -> bool:
        one = screen(app)
        return not one._found.busy and not one._ranked.busy and one.ranked is not None

    return holds


async def opened(app: RackrateApp, pilot: Pilot[None]) -> Advice:
    await press(pilot, "v")
    await until(pilot, settled(app))
    ranked = screen(app).ranked
    assert ranked is not None
    return ranked.advice


async def test_the_list_is_the_commands_with_kind_saving_range_and_what(ledger: Path, tmp_path: Path) -> None:
    app = money_app(tmp_path, ledger)
    async with running(app, (140, 40)) as pilot:
        advice = await opened(app, pilot)
        kinds = {one.kind for one in advice.actions}
        assert "stop" in kinds and len(advice.actions) >= 2
        stop = next(one for one in advice.actions if one.kind == "stop" and "lazy-2" in one.nodes)
        line = line_with(app, "nobody held it): lazy-2")
        assert money(stop.saving_per_month) in line and "stop" in line
        assert f"together {money(advice.saving_per_month)}/month" in text(app)
        assert "busy-1" not in "".join(one.what for one in advice.actions if one.kind == "stop")


async def test_enter_shows_the_evidence_card_of_the_command(ledger: Path, tmp_path: Path, quick: None) -> None:
    app = money_app(tmp_path, ledger)
    async with running(app, (100, 30)) as pilot:
        advice = await opened(app, pilot)
        row = screen(app).row_here()
        assert row is not None and row.place is not None
        await press(pilot, "enter")
        assert isinstance(app.screen, CardScreen)
        shown = app.screen.query_one("#page").plain  # type: ignore[attr-defined]
        for line in card(advice, row.place, 99):
            assert line.strip() in shown, line
        first = app.screen.row_here()
        await press(pilot, "right_square_bracket")
        assert app.screen.row_here() != first
        await press(pilot, "escape")
        assert app.screen is screen(app)


async def test_a_dismissed_one_leaves_list_and_total_and_comes_back(ledger: Path, tmp_path: Path, quick: None) -> None:
    app = money_app(tmp_path, ledger)
    async with running(app, (140, 40)) as pilot:
        before = await opened(app, pilot)
        row = screen(app).row_here()
        assert row is not None
        await press(pilot, "x", "enter")
        assert not (tmp_path / kept.FILE).exists(), "without a reason nothing is dismissed"
        await press(pilot, *"seasonal", "enter")
        await until(pilot, lambda: (tmp_path / kept.FILE).exists())
        await until(pilot, lambda: settled(app)() and len(screen(app).ranked.advice.actions) < len(before.actions))  # type: ignore[union-attr]
        ranked = screen(app).ranked
        assert ranked is not None and row.action not in ranked.advice.actions
        assert "1 dismissed" in text(app)
        await press(pilot, "d")
        assert "dismissed (seasonal): " in text(app)
        await press(pilot, "end", "enter")
        assert "dismissed on 2026-11-30" in text(app)
        await press(pilot, "x")
        await until(pilot, lambda: settled(app)() and not screen(app).ranked.dismissed)  # type: ignore[union-attr]
        assert json.loads((tmp_path / kept.FILE).read_text()) == {}


async def test_esc_dismisses_nothing(ledger: Path, tmp_path: Path, quick: None) -> None:
    app = money_app(tmp_path, ledger)
    async with running(app, (140, 40)) as pilot:
        await opened(app, pilot)
        await press(pilot, "x", *"no", "escape")
        assert not (tmp_path / kept.FILE).exists() and app.screen is screen(app)


async def test_it_says_how_far_it_is_and_can_be_broken_off(
    ledger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: Found
) -> None:
    going = threading.Event()

    def slow(files, jobs, now, step):  # noqa: ANN001, ANN202
        step("looking for what to stop (1 of 4)")
        assert going.wait(600)
        step("ranking")
        return found

    monkeypatch.setattr(advice_module, "find", slow)
    app = money_app(tmp_path, ledger)
    async with running(app, (140, 40)) as pilot:
        await press(pilot, "v")
        await until(pilot, lambda: "of 4" in screen(app)._step)
        app.redraw()
        await pilot.pause()
        assert "looking for what to stop (1 of 4) ..." in text(app)
        await press(pilot, "escape", "v", "b")
        assert "breaking off after this step" in text(app)
        going.set()
        await until(pilot, lambda: not screen(app)._found.busy)
        assert "Broken off; u computes it anew." in text(app)
        app.ledger_version += 1
        app.redraw()
        assert not screen(app)._found.busy, "nor by itself"
        await press(pilot, "u")
        await until(pilot, settled(app))
        assert "lazy-2" in text(app)


async def test_what_cannot_be_computed_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "ledger.db").write_bytes(b"no database, but long enough to be taken for one" * 99)
    app = money_app(tmp_path, tmp_path / "ledger.db")
    async with running(app, (120, 40)) as pilot:
        await press(pilot, "v")
        await until(pilot, lambda: screen(app)._found.error is not None)
        assert "ledger" in text(app) and app._exception is None


async def test_a_damaged_list_of_dismissed_advice_is_named_and_kept(ledger: Path, tmp_path: Path, quick: None) -> None:
    (tmp_path / kept.FILE).write_text("not json")
    app = money_app(tmp_path, ledger)
    async with running(app, (140, 40)) as pilot:
        await press(pilot, "v")
        await until(pilot, lambda: screen(app)._ranked.error is not None)
        assert kept.FILE in text(app)
    assert (tmp_path / kept.FILE).read_text() == "not json"


async def test_what_a_screen_needs_is_imported_beside_the_loop(
    ledger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: None
) -> None:
    monkeypatch.setattr(money_screens, "sys", SimpleNamespace(modules={}))
    app = money_app(tmp_path, ledger)
    async with running(app, (100, 30)) as pilot:
        await pilot.press("v")
        await until(pilot, lambda: isinstance(app.screen, AdviceScreen))
        await until(pilot, settled(app))


@pytest.mark.parametrize(("size", "theme"), PAINTED)
async def test_every_size_and_theme_can_be_painted(ledger: Path, tmp_path: Path, quick: None, size: tuple[int, int], theme: str) -> None:
    app = money_app(tmp_path, ledger, theme=theme)
    async with running(app, size) as pilot:
        await opened(app, pilot)
        assert len(text(app).split("\n")) == size[1]
        if size[0] >= 80:
            assert all(part in text(app) for part in ("SAVES/MONTH", "RANGE", "WHAT", "together $"))
            assert ("Evidence" in text(app)) == (size[1] >= 30)
            assert to_ascii(text(app)).isascii()
        await press(pilot, "enter")
        assert len(text(app).split("\n")) == size[1] and app._exception is None
