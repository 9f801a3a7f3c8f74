"""Puts the table of keys into the README: `python -m tests.support.readme_keys`."""

from __future__ import annotations

from pathlib import Path

from tui.ui.actions import ACTIONS, SCREENS
from tui.ui.keymap import markdown

README = Path(__file__).parents[2] / "README.md"


def main() -> None:
    """Replaces the table that starts with the registry's heading by the registry of now."""
    table = markdown(ACTIONS, SCREENS)
    lines = README.read_text(encoding="utf-8").split("\n")
    first = lines.index(table[0])
    last = next(place for place in range(first, len(lines)) if not lines[place].startswith("|"))
    README.write_text("\n".join([*lines[:first], *table, *lines[last:]]), encoding="utf-8")


if __name__ == "__main__":
    main()
