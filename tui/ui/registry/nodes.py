"""What is done with nodes and their GPUs."""

from __future__ import annotations

from tui.ui.action import LOOKS, Action

NODES_ACTIONS: tuple[Action, ...] = (
    Action(id="drain", keys=("d", "f11"), shown="d", title="Drain the node, or those that are marked; drained: undrain", group="Nodes",
           call="app.drain", scopes=("fleet", "node", "gpu"), footer="drain", late=True, changes=True),
    Action(id="pause_alerts", keys=("p", "shift+f9"), shown="p", title="Pause alerts for a while; paused: resume them",
           group="Nodes", call="app.pause_alerts", scopes=("fleet", "node", "gpu", "alerts"), footer="pause alerts", late=True, changes=True),
    Action(id="mps_share", keys=("i", "shift+f11"), shown="i", title="Set the share of a GPU through MPS", group="Nodes",
           call="app.mps_share", scopes=("node", "gpu"), footer="share", late=True, changes=True),
    Action(id="copy_names", keys=("y", "ctrl+insert"), shown="y", title="Copy the node's name, the GPU's UUID, or what the alert says", group="Nodes",
           call="app.copy_names", scopes=("fleet", "node", "gpu", "alerts")),
    Action(id="copy_rows", keys=("y", "ctrl+insert"), shown="y", title="Copy the row as it is shown", group="Look",
           call="app.copy_rows", scopes=("events", "costs", "budgets", "market", "advice")),
    Action(id="take_back", keys=("z", "shift+f10"), shown="z", title="Take back what waits to be done, within five seconds", group="Nodes",
           call="app.take_back", scopes=LOOKS),
)  # fmt: skip
