"""What is seen with nothing configured, and on every screen that is empty: what would fill it."""

from __future__ import annotations

from pathlib import Path

from tests.support.fleets import put
from tests.support.money_app import until
from tests.support.screens import make_app, press, running, text
from tui.fleet import Fleet
from tui.ui.panes.first_run import ADD
from tui.ui.screens import advice, costs, market  # noqa: F401 - else they are imported in a thread, and opened later

REASON = "this node has no NVIDIA GPU on its PCI bus"


async def test_this_machine_is_shown_with_why_it_has_no_gpu_and_how_to_add_a_node() -> None:
    fleet = Fleet()
    put(fleet, "laptop", (), gpu_reason=REASON, cloud=None, instance_type=None)
    app, _ = make_app(fleet)
    app.first_run = True
    async with running(app) as pilot:
        shown = text(app)
        for part in ("laptop", f"No GPU: {REASON}.", "rackrate add URL", "rackrate-agent init", "rackrate demo"):
            assert part in shown
        await pilot.resize_terminal(20, 5)
        await pilot.pause()
        assert "laptop" in text(app)
        app.first_run = False
        await pilot.resize_terminal(80, 24)
        await pilot.pause()
        app.redraw()
        await pilot.pause()
        assert "rackrate add" not in text(app)


async def test_every_empty_screen_says_what_would_fill_it(tmp_path: Path) -> None:
    app, _ = make_app(Fleet(), ledger_path=tmp_path / "ledger.db", data_dir=tmp_path)
    wanted = {
        "j": "rackrate run -- COMMAND", "c": "rackrate sync", "B": "[[budgets]]", "v": "rackrate sync", "a": "[alerts] in agent.toml",
        "E": "rackrate watch --plain",
    }  # fmt: skip
    async with running(app) as pilot:
        assert "rackrate add URL" in text(app)
        for key, part in wanted.items():
            await press(pilot, key)
            await until(pilot, lambda: not app.is_reading and app.screen.SCOPE != "fleet")  # type: ignore[attr-defined]
            app.redraw()
            await pilot.pause()
            assert part in text(app), key
            app.go_up_to(0)
            await pilot.pause()


def test_the_first_lines_name_commands_that_exist() -> None:
    from tui.cli import build_parser

    known = build_parser().format_help()
    for line in ADD:
        command = line[0][0].split()
        assert command[0] == "rackrate-agent" or command[1] in known
