"""What all dialogs are: a screen over another that is answered once.

Invariant: a second answer (two Enters that come faster than the screen goes) is none, and never closes what is below.
"""

from __future__ import annotations

from typing import TypeVar

from textual.await_complete import AwaitComplete
from textual.screen import ModalScreen

T = TypeVar("T")


class Dialog(ModalScreen[T]):
    """Gives `T`, or None."""

    def dismiss(self, result: T | None = None) -> AwaitComplete:
        return super().dismiss(result) if self.is_active else AwaitComplete()
