"""What one does with a job's log: search it, hold it still, follow it, wrap its lines, go to its beginning.

Invariant: the loop never waits for the log; whatever was asked for last counts, and what is on the screen stays until the
answer is there.
"""

from __future__ import annotations

from textual.timer import Timer

from tui import format as fmt
from tui.job_log import KEPT_BYTES, LogBuffer
from tui.job_search import PatternError, wanted
from tui.job_stamps import stamp_of
from tui.ui.job_actions import JobActions
from tui.ui.lines import Line
from tui.ui.log_follow import LogFollower
from tui.ui.log_search import LogSearch
from tui.ui.widgets.log_view import LogView
from tui.ui.widgets.search_bar import SearchBar

TYPED_SECONDS = 0.15
"""After the last key the search begins."""
STAMPED_LINES = 20
"""From the top of the screen on, among which one has a time."""
SHOWN_SECONDS = 0.2
"""Between two looks at how far a search is."""


class LogActions(JobActions):
    """The attributes are set by the screen."""

    _buffer: LogBuffer
    _follower: LogFollower
    _search: LogSearch
    _typing: Timer | None = None
    _showing: Timer | None = None
    _held_at: int | None = None
    """Lines that had come when the log was held still."""
    _before: tuple[bool, int, bool] = (True, 0, False)
    """Where one was when the search began: at the end, the byte at the top, held still."""
    _waits_for: int = 0
    """The direction in which the next match is gone to as soon as one is found."""
    _wrong = ""

    @property
    def _log(self) -> LogView:
        return self.query_one(LogView)

    def _show_log_title(self) -> None:
        raise NotImplementedError

    def _log_changed(self, shift: int) -> None:
        self._search.log_changed()
        for view in self.query(LogView):
            view.show(shift)
            self._show_log_title()

    def _reads_end(self) -> bool:
        return any(view.at_end and not view.held for view in self.query(LogView))

    # -- where one reads -----------------------------------------------------------------------------------------------

    def on_log_view_wants_older(self, event: LogView.WantsOlder) -> None:
        if event.all and not self._buffer.whole_front:
            self.rackrate.asking.start(self._to_top())
        elif not self._buffer.whole_front and not self._follower.loading_older:
            self.rackrate.asking.start(self._follower.older())
        self._show_log_title()

    async def _to_top(self) -> None:
        """Piece by piece where they all fit into the window, else at once to the first."""
        buffer = self._buffer
        if buffer.start - buffer.first > KEPT_BYTES:
            await self._follower.go_to(buffer.first)
        while not buffer.whole_front and buffer.start - buffer.first <= KEPT_BYTES:
            start = buffer.start
            await self._follower.older()
            if buffer.start >= start:
                break
        for view in self.query(LogView):
            view.scroll_to(y=0, animate=False, force=True)

    def on_log_view_wants_newer(self, event: LogView.WantsNewer) -> None:
        if self._buffer.detached and not self._follower.loading_newer:
            self.rackrate.asking.start(self._follower.newer())

    def on_log_view_at_end(self, event: LogView.AtEnd) -> None:
        if not self._log.held:
            self._follower.to_tail()
        self._show_log_title()

    def on_log_view_moved(self, event: LogView.Moved) -> None:
        self._show_log_title()

    def action_pause(self) -> None:
        """The log stands still; again: it goes on where it was followed."""
        log = self._log
        log.held = not log.held
        self._held_at = self._buffer.appended if log.held else None
        if not log.held and log.at_end:
            self._follower.to_tail()
            log.show()
        self._show_log_title()

    def action_follow(self) -> None:
        """The end of the log, and what comes."""
        self._log.held, self._held_at = False, None
        self._log.action_bottom()
        self._log.show()
        self._show_log_title()

    def action_wrap(self) -> None:
        self._log.wrap(not self._log.wraps)
        self._show_log_title()

    # -- search --------------------------------------------------------------------------------------------------------

    def action_search(self) -> None:
        log = self._log
        starts = self._buffer.lines.starts
        top = starts[min(log.top_line(), len(starts) - 1)] if starts else 0
        self._before = (log.at_end, top, log.held)
        self.query_one(SearchBar).open()

    def on_search_bar_wanted(self, event: SearchBar.Wanted) -> None:
        if self._typing is not None:
            self._typing.stop()
        self._typing = self.set_timer(TYPED_SECONDS, self._begin_search)

    def _begin_search(self) -> None:
        if self._typing is not None:
            self._typing.stop()
        text, self._wrong = self.query_one(SearchBar).value, ""
        try:
            pattern = wanted(text)
        except PatternError as error:
            pattern, self._wrong = None, f"/{fmt.clean(text.strip('/'))}/: {error}"
        if pattern == self._search.pattern:
            self._show_log_title()
            return
        self._search.begin(pattern, self.rackrate.asking.start)
        self._log.look_for(pattern)
        self._waits_for = 0 if pattern is None else -1 if self._before[0] else 1
        self._show_log_title()

    def on_search_bar_done(self, event: SearchBar.Done) -> None:
        """Closes the line; what is marked stays marked, and `n` goes on."""
        self._begin_search()
        self._close_search()

    def on_search_bar_left(self, event: SearchBar.Left) -> None:
        """Nothing is looked for any more, and one is where one was."""
        self.query_one(SearchBar).value = ""
        self._begin_search()
        self._close_search()
        at_end, top, held = self._before
        if at_end and not held:
            self.action_follow()
        else:
            self._show_offset(top)

    def _close_search(self) -> None:
        self.query_one(SearchBar).close()
        self.set_focus(self._log)
        self._show_log_title()

    def action_back(self) -> None:
        """First out of the search, then out of the screen."""
        if self._search.pattern is not None and not self.query_one(SearchBar).has_class("-open"):
            self.query_one(SearchBar).value = ""
            self._begin_search()
            return
        self.app.pop_screen()

    def action_find(self, step: int) -> None:
        """The next line that matches (1), or the one before (-1)."""
        if self._search.pattern is None:
            self.action_search()
            return
        self._waits_for = step
        self._go_to_found(self._from(step))

    def _from(self, step: int) -> int:
        """The byte from which on the next one is looked for."""
        if self._log.current is not None:
            return self._log.current
        at_end, top, _ = self._before
        return self._buffer.end + 1 if at_end and step < 0 else top - (step > 0)

    def _found_more(self) -> None:
        if self._waits_for:
            self._go_to_found(self._from(self._waits_for), more=True)
        if self._showing is None and self.is_attached:
            self._showing = self.set_timer(SHOWN_SECONDS, self._show_search)

    def _show_search(self) -> None:
        self._showing = None
        self._show_log_title()

    def _go_to_found(self, since: int, *, more: bool = False) -> None:
        """`more`: because more was found; what is not there yet is waited for."""
        search, step = self._search, self._waits_for
        at = search.beyond(since, step)
        if at is None and search.whole and search.found:
            at = search.found[0] if step > 0 else search.found[-1]
            self.note("from the top again" if step > 0 else "from the end again", "dim")
        if at is not None:
            self._waits_for = 0
            self._show_offset(at, mark=True)
        elif search.whole or search.capped:
            self._waits_for = 0
            self.note(f"{fmt.clean(self._pattern_text())}: nothing found", "idle")
        elif not more:
            self.note(f"{'below' if step > 0 else 'above'} it is still being looked for ...", "dim")

    def _pattern_text(self) -> str:
        return self._search.pattern.text if self._search.pattern is not None else ""

    def _show_offset(self, offset: int, *, mark: bool = False) -> None:
        """Scrolls to the line that begins there; brings its part of the log where the window has it not."""
        if mark:
            self._log.look_for(self._search.pattern, offset)
        buffer = self._buffer
        if buffer.start <= offset < buffer.end or (buffer.lines.starts and buffer.lines.starts[0] <= offset < buffer.end):
            self._log.go_to(buffer.line_at(offset))
            self._show_log_title()
        else:
            self.rackrate.asking.start(self._bring(offset))

    async def _bring(self, offset: int) -> None:
        """Of what is near the window stays."""
        self._log.at_end, buffer = False, self._buffer
        near = 0 < buffer.start - offset <= KEPT_BYTES // 2
        while near and buffer.start > offset:
            start = buffer.start
            await self._follower.older()
            near = buffer.start < start
        if not near:
            await self._follower.go_to(offset)
        if self.is_attached and self._buffer.start <= offset < self._buffer.end:
            self._log.go_to(self._buffer.line_at(offset))
            self._show_log_title()

    # -- what is said of it --------------------------------------------------------------------------------------------

    def _log_parts(self) -> list[Line]:
        buffer, log = self._buffer, self._log
        if self._follower.error:
            return [((fmt.clean(self._follower.error), "lost"),)]
        parts = [*self._search_parts(), *self._standing_parts()]
        if buffer.dropped_lines:
            parts.append(((f"{fmt.counted(buffer.dropped_lines, 'line')} dropped", "idle"),))
        if buffer.first and buffer.whole_front:
            parts.append((("older ones are not kept", "dim"),))
        top = log.top_line()
        if not log.at_end and (stamp := stamp_of(buffer.lines.texts[top : top + STAMPED_LINES])) is not None:
            parts.insert(-1, ((stamp, "text"), (" at the top", "dim")))
        if log.side:
            parts.append(((f"from column {log.side + 1}", "dim"),))
        if log.wraps:
            parts.append((("wrapped", "dim"),))
        return [*parts, ((fmt.size(buffer.end), "dim"),)]

    def _standing_parts(self) -> list[Line]:
        buffer, log = self._buffer, self._log
        if log.held:
            came = buffer.appended - (self._held_at or 0)
            more = "+" if buffer.full and not buffer.ended else ""
            return [((("held still", "idle"), (f": {came:,}{more} {'line' if came == 1 and not more else 'lines'} came", "text"))), (("Space", "key"), (" goes on", "dim"))]
        if not log.at_end:
            return [(("End", "key"), (" follows", "dim"))]
        return [(("ended" if buffer.ended else "live", "dim" if buffer.ended else "accent"),)]

    def _search_parts(self) -> list[Line]:
        """`3/17`, and how far it was looked through."""
        if self._wrong:
            return [((self._wrong, "lost"),)]
        search = self._search
        if search.pattern is None:
            return []
        if search.error:
            return [((fmt.clean(search.error), "lost"),)]
        rank = None if self._log.current is None else search.rank(self._log.current)
        count = f"{len(search.found):,}{'+' if search.capped or not search.whole else ''}"
        text = f"{rank:,}/{count}" if rank is not None else f"{count} found"
        done = "" if search.whole or search.capped else f", {search.progress():.0%} looked through"
        return [((fmt.clean(search.pattern.text), "key"), (f" {text}{done}", "text" if search.found else "idle"))]
