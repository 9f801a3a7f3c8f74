"""All actions of the app, a file a subject. The order is that of footer, help and palette.

Invariant: no two actions of one screen share a key; each can be reached without letters (arrows, function keys, palette).
"""

from __future__ import annotations

from tui.ui.action import Action
from tui.ui.registry.jobs import JOBS_ACTIONS
from tui.ui.registry.look import LOOK_ACTIONS
from tui.ui.registry.money import MONEY_ACTIONS
from tui.ui.registry.nodes import NODES_ACTIONS
from tui.ui.registry.program import PROGRAM_ACTIONS
from tui.ui.registry.tables import TABLES_ACTIONS
from tui.ui.registry.time import TIME_ACTIONS

ACTIONS: tuple[Action, ...] = (
    *LOOK_ACTIONS, *MONEY_ACTIONS, *JOBS_ACTIONS, *NODES_ACTIONS, *TABLES_ACTIONS, *TIME_ACTIONS, *PROGRAM_ACTIONS,
)  # fmt: skip
