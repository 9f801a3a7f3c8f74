"""How the app is opened on a terminal, and what it says when it is left.

Invariant: the terminal's encoding, its limits and its size are made right before the first byte of the app.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tui import format as fmt
from tui import terminal
from tui.columns import totals_money
from tui.fleet import LOST_SECONDS, Fleet
from tui.ui import actions, garbage
from tui.ui.app import RackrateApp
from tui.ui.governor import Governor

if TYPE_CHECKING:
    from agent.client import AgentClient
    from tui.config import BudgetConfig, Config, NodeConfig
    from tui.replay import Recording
    from tui.replay_money import MoneyThen

BYTES_PER_KILOBIT = 125
def exit_line(fleet: Fleet, clock: Callable[[], float], seconds: float) -> str:
    """`watched 12 nodes for 10 m: $312.40/h, idle $45.20/h`."""
    totals = fleet.totals(clock())
    span = f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} m" if seconds < 5400 else f"{seconds / 3600:.1f} h"
    return f"watched {fmt.counted(totals.nodes, 'node')} for {span}: {totals_money(totals)}"


def run(
    nodes: Sequence[NodeConfig],
    client_for: Callable[[NodeConfig], AgentClient],
    *,
    ledger_path: Path | None,
    prices_path: Path | None = None,
    terms_path: Path | None = None,
    data_dir: Path | None = None,
    config_file: Path | None = None,
    first_run: bool = False,
    budgets: Sequence[BudgetConfig] = (),
    timezone: str,
    theme: str = "",
    silent_seconds: float = LOST_SECONDS,
    filters: Mapping[str, str] = {},
    registry: tuple[actions.Action, ...] = actions.ACTIONS,
    read_only: bool = False,
    max_kbps: float | None = None,
    on_exit_line: bool = True,
) -> int:
    """Opens the app on the nodes; returns the exit code (143 after SIGTERM, 129 after SIGHUP or a vanished terminal)."""
    fleet = Fleet(silent_seconds=silent_seconds)
    for node in nodes:
        fleet.add(node.name, node.url, node.tags)
    terminal.tolerate_encoding()
    terminal.allow_many_files()
    terminal.follow_real_size()
    app = RackrateApp(
        fleet, nodes=nodes, client_for=client_for, ledger_path=ledger_path, prices_path=prices_path, terms_path=terms_path,
        data_dir=data_dir, budgets=budgets, timezone=timezone, theme=theme, filters=filters, registry=registry,
        read_only=read_only, governor=Governor(terminal.kbps(max_kbps) * BYTES_PER_KILOBIT),
    )  # fmt: skip
    app.config_file, app.first_run = config_file, first_run
    started = time.monotonic()
    code = _run(app)
    if on_exit_line and code == 0 and sys.stdout.isatty():
        print(exit_line(fleet, time.monotonic, time.monotonic() - started))
    return code


def _run(app: RackrateApp) -> int:
    garbage.begin()
    app.collects_garbage = True
    app.run(mouse=terminal.mouse_works())
    for sentence in app.unsent():
        print(f"rackrate: {sentence}", file=sys.stderr)
    return app.return_code or 0


def run_replay(
    recording: Recording, money: MoneyThen, at_ms: int, speed: int, config: Config, *, max_kbps: float | None,
    registry: tuple[actions.Action, ...] = actions.ACTIONS,
) -> int:  # fmt: skip
    """Opens the app on a recording."""
    terminal.tolerate_encoding()
    terminal.follow_real_size()
    return _run(replay_app(
        recording, money, at_ms, speed, config, registry=registry, governor=Governor(terminal.kbps(max_kbps) * BYTES_PER_KILOBIT)
    ))  # fmt: skip


def replay_app(recording: Recording, money: MoneyThen, at_ms: int, speed: int, config: Config, **options: Any) -> RackrateApp:
    """The app at a moment of a recording; `config` is the recorded one."""
    from tui.replay_client import RecordedClient
    from tui.ui.travel import Travel

    fleet = Fleet(silent_seconds=config.silent_seconds)
    for node in config.nodes:
        fleet.add(node.name, node.url, node.tags)
    travel = Travel(recording, at_ms, speed, money)

    def client_for(node: NodeConfig) -> Any:
        return RecordedClient(node.name, recording, lambda: int(travel.at_ms), lambda: fleet)

    return RackrateApp(
        fleet, nodes=config.nodes, client_for=client_for, timezone=config.timezone, filters=config.filters, budgets=config.budgets,
        travel=travel, read_only=True, **{"theme": config.theme, "data_dir": money.folder, **options},
    )  # fmt: skip
