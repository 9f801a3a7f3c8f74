"""A line that says that another time than now is shown, on screens without a header.

Invariant: it is there whenever the app is not live and the header is not, and says it in words.
"""

from __future__ import annotations

from tui.ui.lines import Line, joined
from tui.ui.panes.header import other_time
from tui.ui.widgets.lines_view import RaisedLines


class TimeMark(RaisedLines):
    """`REPLAY Nov 30 14:05:10 +01:00`."""

    DEFAULT_CSS = "TimeMark { height: 1; }"

    def on_mount(self) -> None:
        """It must not wait for the next second."""
        self.show_time()

    def show_time(self) -> None:
        """As the app's clock is now."""
        from tui.ui.app import RackrateApp

        app = self.app
        if not isinstance(app, RackrateApp) or app.travel is None:
            return
        mark: Line = ((" ", "text"), *other_time(app.clock_text(), app.size.width))
        more = "all figures are of that time" if app.travel.keeps_files else "live goes on meanwhile; L returns"
        self.show([joined([mark, ((more, "dim"),)], "  ", app.size.width - 1)])
