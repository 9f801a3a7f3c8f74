"""Filters that are kept under a name: `K` on a filtered table, `@name` wherever a query is typed.

Invariant: config.toml is changed only by an answer to a question, and a name that is taken is asked about; where there is no
config.toml (a demo, a replay) the name holds until the app is left, and that is said.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from tui.config import filter_name_problem, forget_filter, keep_filter
from tui.errors import RackrateError
from tui.format import clean
from tui.ui.happenings import Happenings
from tui.ui.screens.base import RackrateScreen
from tui.ui.widgets.status import FilterBar


class KeptFilters(Happenings):
    """`filters`: name -> query."""

    filters: dict[str, str]
    config_file: Path | None = None
    """Where they are written; None: nowhere."""

    def action_keep_filter(self) -> None:
        """Asks for a name for the filter of the screen on top."""
        from tui.ui.screens.ask_text import AskText

        screen = self.screen
        bar = next(iter(screen.query(FilterBar)), None)
        if not isinstance(screen, RackrateScreen) or bar is None:
            return
        query = bar.applied
        if not query:
            screen.note("There is no filter to keep: / filters.", "dim")
            return
        where = f"It is written into {self.config_file}" if self.config_file else "It is kept until the app is left"
        hint = f"{where}; afterwards @name stands for it. Enter keeps it, Esc does not."

        def answered(name: str | None) -> None:
            if name:
                self._named(name.removeprefix("@"), query)

        def problem(name: str) -> str | None:
            return filter_name_problem(name.removeprefix("@"))

        self.push_screen(AskText(f"A name for the filter {clean(query)}", hint, example="mine", check=problem), answered)

    def _named(self, name: str, query: str) -> None:
        from tui.ui.screens.confirm import ConfirmScreen

        if f"@{name}" in query.split():
            self._tell(f"@{name} cannot stand for a query in which it stands itself.", "lost")
        elif self.filters.get(name, query) != query:
            sentences = [(f"It stands for {clean(self.filters[name])}", "text"), (f"and would stand for {clean(query)}", "text")]

            def answered(yes: bool | None) -> None:
                if yes:
                    self._keep(name, query)

            self.push_screen(ConfirmScreen(f"There is a filter @{name} already.", sentences, "leave it", "replace it"), answered)
        else:
            self._keep(name, query)

    def _keep(self, name: str, query: str) -> None:
        self.filters[name] = query
        self._write(lambda file: keep_filter(file, name, query), f"@{name} stands for {clean(query)}")

    def forget_kept_filter(self, name: str) -> None:
        """Takes the name away."""
        if name not in self.filters:
            self._tell(f"There is no filter @{name}.", "lost")
            return
        del self.filters[name]
        self._write(lambda file: forget_filter(file, name), f"@{name} is gone")

    def _write(self, change: object, said: str) -> None:
        file = self.config_file
        if file is None:
            self._tell(f"{said} until the app is left", "accent")
            return

        async def body() -> None:
            try:
                await asyncio.to_thread(change, file)  # type: ignore[arg-type]
            except (OSError, RackrateError) as error:
                self._tell(f"{said} until the app is left only: {clean(str(error))}", "lost")
                return
            self._tell(f"{said}; written into {file.name}", "accent")

        self.asking.start(body())

    def _tell(self, text: str, style: str) -> None:
        screen = next((one for one in reversed(self.screen_stack) if isinstance(one, RackrateScreen)), None)
        if screen is not None:
            screen.note(text, style)
