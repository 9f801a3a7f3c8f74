"""`rackrate` without a command: the full-screen app, or the list of nodes where there is no terminal.

Invariant: with nothing configured it shows this machine, and the agent it started ends with it.
"""

from __future__ import annotations

import argparse
from typing import Any

from tui.commands.context import Context
from tui.errors import ConfigurationError
from tui.exit_codes import ExitCode
from tui.terminal import has_terminal, is_served


def handling_of(context: Context, arguments: argparse.Namespace) -> dict[str, Any]:
    """What the configuration says of filters, keys, theme and of changing anything. Raises `ConfigurationError`."""
    from tui.ui.actions import ACTIONS
    from tui.ui.keymap import remapped
    from tui.ui.theme import NAMES

    config = context.config
    if config.theme and config.theme not in NAMES:
        raise ConfigurationError(f"{context.paths.config_file}: theme: there is none called `{config.theme}`; themes: {', '.join(NAMES)}.")
    registry = remapped(ACTIONS, config.keys, str(context.paths.config_file)) if config.keys else ACTIONS
    return {
        "filters": config.filters, "registry": registry, "read_only": config.read_only or arguments.read_only,
        "theme": config.theme, "max_kbps": config.max_kbps if arguments.max_kbps is None else arguments.max_kbps,
    }  # fmt: skip


def app(context: Context, arguments: argparse.Namespace) -> int:
    """Opens the app on the configured nodes."""
    if not has_terminal() and not is_served():
        from tui.commands.nodes import nodes

        arguments.query, arguments.json, arguments.sum = [], False, False
        return nodes(context, arguments)
    from tui.ui.start import run

    handling = handling_of(context, arguments)
    with context.nodes() as configured:
        code = run(
            configured,
            context.client_for,
            ledger_path=context.paths.ledger_path(context.config),
            prices_path=context.prices_path,
            terms_path=context.terms_path,
            data_dir=context.paths.data_dir,
            config_file=context.paths.config_file,
            first_run=not context.config.nodes,
            budgets=context.config.budgets,
            timezone=context.timezone_name(),
            silent_seconds=context.config.silent_seconds,
            **handling,
        )
    return code or ExitCode.DONE
