"""What is done with nodes and their GPUs."""

from __future__ import annotations

from tui.ui.action import Action

NODES_ACTIONS: tuple[Action, ...] = (
)  # fmt: skip
