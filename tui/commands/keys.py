"""`keys`: every key of the app, from the one registry, with what config.toml changed.

Invariant: what is printed is what the app does; keys that contradict each other are an error here as there.
"""

from __future__ import annotations

import argparse

from tui.commands.context import Context
from tui.exit_codes import ExitCode
from tui.output import print_json, print_table, say


def keys(context: Context, arguments: argparse.Namespace) -> ExitCode:
    """Prints the registry as a table, JSON or Markdown."""
    from tui.ui import keymap
    from tui.ui.actions import ACTIONS, SCREENS

    config = context.config
    actions = keymap.remapped(ACTIONS, config.keys, str(context.paths.config_file)) if config.keys else ACTIONS
    actions = tuple(action for action in actions if not (action.changes and config.read_only))
    if arguments.json:
        print_json(keymap.records(actions))
    elif arguments.markdown:
        print("\n".join(keymap.markdown(actions, SCREENS)))
    else:
        rows = [
            (keymap.keys_text(action), action.id, action.title, keymap.where_text(action, SCREENS)) for action in actions
        ]
        print_table(("KEYS", "NAME", "DOES", "ON THE SCREENS"), rows, ("left",) * 4)
        say(f'[keys] in {context.paths.config_file} changes them: quit = "Q", or filter = ["/", "F3"]')
    return ExitCode.DONE
