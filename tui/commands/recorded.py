"""Commands on a recording instead of the nodes: `--record FILE [--at TIME]`.

Invariant: every figure is as of that moment: the fleet, the ledger, the prices, the terms and the clock; nothing is asked and
nothing is changed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, tzinfo
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tui.commands.context import Context
from tui.config import BudgetConfig, Config, NodeConfig, Paths
from tui.record_file import RecordFile
from tui.replay import Recording
from tui.replay_client import RecordedClient
from tui.replay_money import MoneyThen
from tui.replay_time import moment, when

if TYPE_CHECKING:
    from tui.fleet import Fleet


class RecordedContext(Context):
    """A context whose nodes, configuration and files come from a recording. Close it."""

    def __init__(self, outer: Context, file: str, at: str | None, *, begins: bool = False) -> None:
        """`begins`: without `at` it is the beginning, not the end."""
        self._outer = outer
        self.is_named = False
        self._file = RecordFile.read(Path(file).expanduser())
        try:
            self.recording = Recording(self._file)
            self.at_ms = self.recording.starts_ms if at is None and begins else when(at, self.recording, self._zone())
        except BaseException:
            self._file.close()
            raise
        self._money = MoneyThen(self.recording)

    def close(self) -> None:
        """Removes what was unpacked, and tells what could not be read."""
        from tui.output import say

        for sentence in self.recording.damage[:3]:
            say(f"rackrate: {sentence}")
        self._money.close()
        self._file.close()

    @property
    def money(self) -> MoneyThen:
        """Its files of any moment."""
        return self._money

    @cached_property
    def _files(self) -> Any:
        return self._money.go_to(self.at_ms)

    @property
    def paths(self) -> Paths:  # type: ignore[override]
        """Of the moment's files."""
        return Paths(config_file=self._files.terms.parent / "config.toml", data_dir=self._files.ledger.parent)

    @cached_property
    def config(self) -> Config:  # type: ignore[override]
        """As it was recorded, without tokens; nothing may be changed."""
        about = self.recording.session(self.at_ms)[2]
        nodes = tuple(NodeConfig(name=one.name, url=one.url, tags=one.tags) for one in self.recording.nodes(self.at_ms))
        budgets = tuple(msgspec.convert(one, BudgetConfig) for one in about.budgets)
        return Config(
            nodes=nodes, timezone=about.timezone, budgets=budgets, read_only=True, filters=about.filters,
            silent_seconds=about.silent_seconds, theme=self._outer.config.theme, keys=self._outer.config.keys,
        )  # fmt: skip

    def _zone(self) -> tzinfo:
        """Of times that are written without one: the reader's."""
        return self._outer.timezone()

    @contextlib.contextmanager
    def nodes(self, only: Sequence[str] = ()) -> Iterator[tuple[NodeConfig, ...]]:
        """Those of the recording."""
        yield tuple(node for node in self.config.nodes if not only or node.name in only)

    @cached_property
    def _fleet(self) -> Fleet:
        return self.recording.fleet(self.at_ms, 0.0, self.catalog())

    def fleet(self) -> Fleet:
        """As it was at the moment."""
        return self._fleet

    @property
    def client_for(self) -> Callable[[NodeConfig], Any]:  # type: ignore[override]
        return lambda node: RecordedClient(node.name, self.recording, lambda: self.at_ms, lambda: self._fleet)

    def now(self) -> datetime:
        """The moment."""
        return moment(self.at_ms)

    def clock(self) -> float:
        """Ages are those of the moment."""
        return 0.0

    @property
    def terms_path(self) -> Path:
        return self._files.terms

    @cached_property
    def prices_path(self) -> Path:  # type: ignore[override]
        return self._files.prices
