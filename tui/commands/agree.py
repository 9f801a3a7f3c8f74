"""The question of a command before it changes something: the blast radius on stderr, then yes or no, or the number typed.

Invariant: what is not a clear yes is a no, and where nobody can be asked nothing is done without `--yes`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from tui.blast import TYPED_ABOVE, Sentence
from tui.errors import Failed, WrongUsage
from tui.output import say


def agree(question: str, sentences: Iterable[Sentence], count: int, *, yes: bool) -> None:
    """Returns where it may be done. Raises `Failed` (no) and `WrongUsage` (nobody can be asked)."""
    say(question)
    for text, _ in sentences:
        say(f"  {text}")
    if yes:
        return
    if not sys.stdin.isatty():
        raise WrongUsage("nothing was done: nobody can be asked here; give --yes to do it without a question.")
    typed = count > TYPED_ABOVE
    sys.stderr.write(f"Type {count} to go on: " if typed else "Go on? [y/N] ")
    sys.stderr.flush()
    answer = sys.stdin.readline().strip().casefold()
    if answer != str(count) if typed else answer not in ("y", "yes"):
        raise Failed("nothing was done.")
