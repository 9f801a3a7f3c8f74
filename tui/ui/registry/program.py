"""The program itself: help, palette, theme, the end."""

from __future__ import annotations

from tui.ui.action import LOOKS, Action

PROGRAM_ACTIONS: tuple[Action, ...] = (
    Action(id="help", keys=("question_mark", "f1"), shown="?", title="This help", group="Program", call="app.help",
           scopes=tuple(scope for scope in LOOKS if scope != "help"), footer="help"),
    Action(id="help_typing", keys=("f1",), shown="F1", title="This help, where letters are typed", group="Program",
           call="app.help", scopes=("submit",), footer="help"),
    Action(id="palette", keys=("colon", "ctrl+p", "f2"), shown=":", title="All actions, by name", group="Program",
           call="app.palette", scopes=LOOKS, footer="menu"),
    Action(id="palette_typing", keys=("f2", "ctrl+p"), shown="F2", title="All actions, where letters are typed",
           group="Program", call="app.palette", scopes=("submit",), footer="menu", palette=False),
    Action(id="theme", keys=("t", "f9"), shown="t", title="Next theme", group="Program", call="app.next_theme",
           scopes=LOOKS),
    Action(id="quit", keys=("q", "f10"), shown="q", title="Quit", group="Program", call="app.leave", scopes=LOOKS,
           footer="quit"),
    Action(id="interrupt", keys=("ctrl+c", "ctrl+q"), shown="Ctrl+C", title="Quit, from anywhere", group="Program",
           call="app.leave", scopes=("app",), priority=True, palette=False),
)  # fmt: skip
