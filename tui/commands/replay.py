"""`replay`: the app on a recording, as of its time and with the prices of its time.

Invariant: no node is asked, no file but the recording is read, and what was unpacked of it is gone afterwards.
"""

from __future__ import annotations

import argparse
import contextlib

from tui.commands.context import Context
from tui.commands.recorded import RecordedContext
from tui.exit_codes import ExitCode
from tui.terminal import has_terminal, is_served


def replay(context: Context, arguments: argparse.Namespace) -> int:
    """Opens the app on a recording; without a terminal it lists the nodes of the moment."""
    with contextlib.closing(RecordedContext(context, arguments.file, arguments.at, begins=True)) as recorded:
        if not has_terminal() and not is_served():
            from tui.commands.nodes import nodes

            arguments.query, arguments.json, arguments.sum = [], False, False
            return nodes(recorded, arguments)
        from tui.commands.app import handling_of
        from tui.ui.start import run_replay

        handling = handling_of(recorded, arguments)
        return run_replay(
            recorded.recording, recorded.money, recorded.at_ms, arguments.speed, recorded.config, max_kbps=handling["max_kbps"],
            registry=handling["registry"],
        ) or ExitCode.DONE  # fmt: skip
