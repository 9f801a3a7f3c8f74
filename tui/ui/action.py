"""What an action of the app is, and on which screens it can be.

Invariant: an action is data: what it does is the method of the screen or of the app that `call` names.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Scope = Literal[
    "app", "fleet", "node", "gpu", "alerts", "events", "jobs", "job", "curves", "submit", "costs", "budgets", "market", "price", "advice", "card", "help"
]  # fmt: skip
SCREENS: tuple[Scope, ...] = (
    "fleet", "node", "gpu", "alerts", "events", "jobs", "job", "curves", "submit", "costs", "budgets", "market", "price", "advice", "card", "help",
)  # fmt: skip


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """`keys` are Textual's names; `shown` is how a person reads them; `footer` is its short name there (empty: not shown)."""

    id: str
    keys: tuple[str, ...]
    shown: str
    title: str
    group: str
    call: str
    scopes: tuple[Scope, ...]
    footer: str = ""
    priority: bool = False
    palette: bool = True
    late: bool = False
    """In the footer only where there is room left after all others."""
    changes: bool = False
    """It changes something on a node: it opens a dialog or a form first, where Enter alone does nothing."""
    like: str = ""
    """The action that is this one on other screens, with fewer keys here: what the configuration says of its keys holds here too."""


EVERYWHERE: tuple[Scope, ...] = SCREENS
TABLES: tuple[Scope, ...] = ("fleet", "jobs", "costs", "market", "events", "budgets")
MONEY: tuple[Scope, ...] = ("costs", "market", "advice")
LOOKS: tuple[Scope, ...] = tuple(scope for scope in SCREENS if scope != "submit")
"""Screens on which nothing is typed."""
